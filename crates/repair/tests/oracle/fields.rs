//! Fields that once only e2fsck minded: each is found by the check, too, and mended.

use crate::trial::{e2fsck, watched};
use hectare_device::{Device, MemoryDevice};
use hectare_oracle::{debugfs, debugfs_write, mke2fs, skip};
use hectare_repair::Staged;
use std::fs;
use std::sync::Arc;

/// What mke2fs makes, and what debugfs changes in it.
const CASES: [(&[&str], &[&str]); 19] = [
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
    (
        &["-t", "ext4", "-b", "1024", "-O", "orphan_file,^metadata_csum"],
        &["zap_block -f <12> -o 1020 -l 4 -p 17 0"],
    ),
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

/// A file inside its inode whose size has a damaged upper half: the lower one says how long it is.
#[test]
fn regression_the_lower_half_of_a_size_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (image, content) = (folder.path().join("image"), folder.path().join("content"));
    for (text, size) in [("", "0x9a0000000000"), ("short", "0x9a0000000005")] {
        fs::write(&content, text).unwrap();
        let write = format!("write {} f", content.display());
        let changes = [&*write, &format!("sif f size {size}"), "sif f block[3] 209"];
        let made = mke2fs(&["-t", "ext4", "-O", "inline_data"], &image, "16M")
            .and_then(|()| debugfs_write(&image, &changes));
        if let Err(reason) = made {
            skip!("repair fields::regression_the_lower_half_of_a_size_counts", reason);
        }
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap())));
        watched(staged.overlay()).unwrap();
        fs::write(&image, crate::trial::bytes_of(&**staged.overlay())).unwrap();
        let (after, left) = (e2fsck("-fn", &image), folder.path().join("left"));
        assert_eq!(after.code, Some(0), "{text:?}: {}", after.out);
        debugfs(&image, &[&format!("dump f {}", left.display())]).unwrap();
        assert_eq!(fs::read_to_string(&left).unwrap(), text);
    }
}
