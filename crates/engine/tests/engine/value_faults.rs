//! Devices that fail while attribute values in inodes of their own are set, shared, replaced and removed.

use crate::common::{assert_clean_bytes, format_bytes, pattern, save, unhurried};
use hectare_device::{Device, FaultDevice, MemoryDevice, Outcome, Rule};
use hectare_engine::{Creation, Error, Volume, XattrHow};
use hectare_oracle::skip;
use std::sync::Arc;

/// Some of everything.
fn workload(volume: &Volume) -> Result<(), Error> {
    for file in ["a", "b"] {
        volume.write_file(file, b"content", Creation::default())?;
        let nr = volume.resolve(file, false)?;
        for n in 0..3 {
            volume.set_xattr(nr, format!("user.v{n}"), &pattern(n, 0, 9_000), XattrHow::Either)?;
        }
    }
    volume.sync()?;
    let nr = volume.resolve("a", false)?;
    volume.set_xattr(nr, "user.v0", &pattern(7, 0, 20_000), XattrHow::Either)?;
    volume.remove_xattr(nr, "user.v1")?;
    volume.remove_file("b")?;
    assert!(volume.get_xattr(nr, "user.v2")? == pattern(2, 0, 9_000));
    volume.remove_file("a")?;
    volume.close()
}

/// What a power cut would leave is recovered, and is sound but for the mark that an error was met.
fn recovers(bytes: &[u8], k: u64) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    // The journal, then the rest: the mark alone makes the first check a full one.
    let _ = hectare_oracle::fsck::e2fsck_with(&image, &["-fp"]).unwrap();
    let report = hectare_oracle::fsck::e2fsck_with(&image, &["-fn"]).unwrap();
    assert!(report.is_sound(), "operation {k}: {}", report.output);
}

#[test]
fn each_operation_failing_in_turn_leaves_a_volume_that_recovers() {
    for features in ["ea_inode", "ea_inode,^has_journal"] {
        let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-O", features], "8M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("value_faults::each_operation_failing", reason),
        };
        let mut k = 0;
        loop {
            let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
            let device = Arc::new(FaultDevice::new(Arc::clone(&memory)));
            device.add(Rule::new(Outcome::IO).after(k).times(1));
            let result = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried())
                .and_then(|volume| workload(&volume));
            if device.strikes() == 0 {
                result.unwrap();
                assert_clean_bytes(&memory.to_vec());
                break;
            }
            if let Err(error) = result {
                let known = matches!(error, Error::Device { errno: 5, .. } | Error::Aborted(_));
                assert!(known, "{features}, operation {k}: {error}");
            }
            if !features.contains("^has_journal") {
                recovers(&memory.to_vec(), k);
            }
            k += 1;
        }
        assert!(k > 30, "{features}: only {k} operations");
    }
}
