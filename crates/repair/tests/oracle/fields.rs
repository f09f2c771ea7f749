//! Fields that once only e2fsck minded: each is found by the check, too, and mended.

use crate::trial::{e2fsck, watched};
use hectare_device::{Device, MemoryDevice};
use hectare_oracle::{debugfs_write, mke2fs, skip};
use hectare_repair::Staged;
use std::fs;
use std::sync::Arc;

/// What mke2fs makes, and what debugfs changes in it.
const CASES: [(&[&str], &[&str]); 18] = [
    (&["-t", "ext4"], &["sif <5> size 103079215104"]),
    (&["-t", "ext4"], &["sif <6> mode 0160000"]),
    (&["-t", "ext4"], &["sif <9> mode 0100600", "sif <9> links_count 1"]),
    (&["-t", "ext4", "-O", "^resize_inode"], &["sif <7> block[1] 77"]),
    (&["-t", "ext2"], &["sif <8> block[0] 77"]),
    (&["-t", "ext4"], &["sif <3> blocks 2"]),
    (&["-t", "ext4"], &["sif <1> mode 0100600", "sif <1> links_count 1"]),
    (&["-t", "ext4"], &["sif <1> uid 9"]),
    (&["-t", "ext4"], &["sif <8> size 1048578"]),
    (&["-t", "ext4"], &["mknod p p", "sif p flags 0x10"]),
    (&["-t", "ext4"], &["mknod p p", "sif p mtime 0x80000001", "sif p mtime_extra 3"]),
    (&["-t", "ext4", "-O", "bigalloc"], &["mkdir d", "sif d flags 0"]),
    (&["-t", "ext4", "-O", "orphan_file"], &["unlink lost+found", "clri <11>", "mkdir d", "unlink d"]),
    (&["-t", "ext4"], &["sif <8> dtime 1700000000"]),
    (&["-t", "ext4"], &["ssv journal_inum 352321544"]),
    (
        &["-t", "ext4"],
        &[
            "symlink s 0123456789012345678901234567890123456789012345678901234567890123456789",
            "sif s size 30",
        ],
    ),
    (&["-t", "ext4", "-O", "inline_data"], &["mkdir d", "sif d extra_isize 0"]),
    (&["-t", "ext2"], &["ssv journal_uuid 12345678-1234-1234-1234-123456789abc"]),
];

#[test]
fn regression_fields_that_only_e2fsck_minded() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for (args, changes) in CASES {
        let changed = mke2fs(args, &image, "16M").and_then(|_| debugfs_write(&image, changes));
        if let Err(reason) = changed {
            skip!("repair fields::regression_fields_that_only_e2fsck_minded", reason);
        }
        // For some it asks, and does not count them as errors.
        let before = e2fsck("-fn", &image);
        let asks = before.code != Some(0) || before.out.contains("? no");
        assert!(asks || changes[0].contains("dtime"), "{changes:?}: e2fsck finds nothing");
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap()));
        let report = hectare_check::check(&*device, &hectare_check::Options::default()).unwrap();
        assert!(!report.is_clean(), "{changes:?}: the check finds nothing");
        let staged = Staged::new(device);
        watched(staged.overlay()).unwrap();
        fs::write(&image, crate::trial::bytes_of(&**staged.overlay())).unwrap();
        let after = e2fsck("-fn", &image);
        assert_eq!(after.code, Some(0), "{changes:?}: {}", after.out);
    }
}
