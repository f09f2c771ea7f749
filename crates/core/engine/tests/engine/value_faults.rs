//! Devices that fail while attribute values in inodes of their own are set, shared, replaced and removed.

use crate::common::{each_operation_failing, format_bytes, pattern, save, unhurried};
use hectare_engine::{Creation, Error, Volume, XattrHow};
use hectare_oracle::skip;

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
        let k = each_operation_failing(&bytes, unhurried, workload, |left, k| {
            if !features.contains("^has_journal") {
                recovers(left, k);
            }
        });
        assert!(k > 30, "{features}: only {k} operations");
    }
}
