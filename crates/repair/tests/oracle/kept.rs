//! What e2fsck keeps, and a repair once gave up, refused or did not see: each beside `e2fsck -fy`.

use crate::structures::assert_sound;
use crate::trial::{bytes_of, watched};
use hectare_device::MemoryDevice;
use hectare_oracle::{Skip, debugfs_write, mke2fs, skip};
use hectare_repair::Staged;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A volume, changed by requests to debugfs.
fn changed(args: &[&str], requests: &[&str], folder: &Path) -> Result<Vec<u8>, Skip> {
    let image = folder.join("image");
    mke2fs(args, &image, "16M")?;
    debugfs_write(&image, requests)?;
    Ok(fs::read(image).unwrap())
}

/// Problems that the check finds.
fn problems(bytes: &[u8]) -> Vec<String> {
    let device = MemoryDevice::from_bytes(bytes);
    let report = hectare_check::check(&device, &hectare_check::Options::default()).unwrap();
    report.problems.iter().map(ToString::to_string).collect()
}

/// What the check finds is never mended without a word: what has nothing to say is not written.
#[test]
fn regression_nothing_is_mended_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let uninit: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"];
    let cases: [(&[&str], &[&str]); 2] = [
        (uninit, &["symlink s /etc/passwd", "sif s flags 0x80000"]),
        (&["-t", "ext2"], &["mkdir d", "sif d blocks_hi 7"]),
    ];
    for (args, requests) in cases {
        let bytes = match changed(args, requests, folder.path()) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("repair kept::regression_nothing_is_mended_in_silence", reason),
        };
        let before = problems(&bytes);
        assert!(!before.is_empty(), "{requests:?}");
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&bytes)));
        let repaired = watched(staged.overlay()).unwrap();
        assert!(!repaired.mends.is_empty() && !repaired.loses(), "{before:?}: {:?}", repaired.mends);
        assert_sound(&bytes_of(&**staged.overlay()), folder.path(), requests[0]);
    }
}
