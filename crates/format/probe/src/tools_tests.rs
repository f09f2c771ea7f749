//! What [`probe`] finds, judged by the tools that make and name such things.
//!
//! The module's own tests take places and numbers from its table and so can't tell whether the table is
//! right; here the makers (mkswap, mkfs.xfs, mke2fs) and blkid decide. What no tool at hand can make or name
//! from a bare magic number (bcachefs, ISO 9660, LVM, RAID 1.x, FAT, NTFS, partition tables, ZFS) is not
//! judged.

use crate::{What, probe};
use hectare_device::{Device, FileDevice, FileOptions, Overwrite};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{mke2fs, skip, skip_part};
use hectare_units::Bytes;
use std::path::Path;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn create(image: &Path, size: Bytes) -> FileDevice {
    let _ = std::fs::remove_file(image);
    FileOptions::new().write(true).create(image, size, Overwrite::Replace).unwrap()
}

fn found(image: &Path) -> (Option<What>, Option<String>) {
    let found = probe(&FileOptions::new().open(image).unwrap()).unwrap();
    (found.as_ref().map(|found| found.what), found.and_then(|found| found.label))
}

#[test]
fn what_the_tools_make_is_found_with_its_label() {
    let folder = folder();
    for (tool, args, mib, what) in [
        ("mkswap", ["-q", "-L", "thelabel"], 8, What::Swap),
        ("mkfs.xfs", ["-q", "-L", "thelabel"], 512, What::Xfs),
    ] {
        let image = folder.path().join(tool);
        drop(create(&image, Bytes::mib(mib)));
        match need(tool) {
            Ok(mut command) => drop(run(command.args(args).arg(&image)).expect_success()),
            Err(reason) => {
                skip_part!(format!("what_the_tools_make_is_found_with_its_label, {tool}"), reason);
                continue;
            }
        }
        assert_eq!(found(&image), (Some(what), Some("thelabel".into())));
    }
    for (kind, what) in [("ext2", What::Ext2), ("ext3", What::Ext3), ("ext4", What::Ext4)] {
        let image = folder.path().join(kind);
        if let Err(reason) = mke2fs(&["-t", kind, "-L", "thelabel"], &image, "8M") {
            skip!("what_the_tools_make_is_found_with_its_label", reason);
        }
        assert_eq!(found(&image), (Some(what), Some("thelabel".into())));
    }
}

#[test]
fn blkid_names_the_same_magic_numbers() {
    let folder = folder();
    let image = folder.path().join("image");
    let len = Bytes::mib(16);
    for (at, magic, what, name) in [
        (0x1_0040, b"_BHRfS_M".as_slice(), What::Btrfs, "btrfs"),
        (0, b"LUKS\xba\xbe", What::Luks, "crypto_LUKS"),
        (0, b"hsqs", What::Squashfs, "squashfs"),
        (1024, b"\xe2\xe1\xf5\xe0", What::Erofs, "erofs"),
        (1024, b"\x10\x20\xf5\xf2", What::F2fs, "f2fs"),
        (3, b"EXFAT   ", What::ExFat, "exfat"),
        ((16 << 20) - 65536, b"\xfc\x4e\x2b\xa9", What::Raid, "linux_raid_member"),
    ] {
        create(&image, len).write_at(Bytes::new(at), magic).unwrap();
        let said = match need("blkid") {
            Ok(mut blkid) => run(blkid.args(["-p", "-o", "value", "-s", "TYPE"]).arg(&image)),
            Err(reason) => skip!("blkid_names_the_same_magic_numbers", reason),
        };
        assert!(said.stdout.starts_with(name), "{what:?}: {}", said.report());
        assert_eq!(found(&image).0, Some(what));
    }
}

#[test]
fn what_is_packed_is_named() {
    let folder = folder();
    let content = folder.path().join("content");
    std::fs::write(&content, vec![b'a'; 100_000]).unwrap();
    for (tool, args, what) in [
        ("gzip", ["-c"].as_slice(), What::Gzip),
        ("bzip2", &["-c"], What::Bzip2),
        ("xz", &["-c"], What::Xz),
        ("zstd", &["-qc"], What::Zstd),
        ("lz4", &["-qc"], What::Lz4),
        ("tar", &["--create", "--absolute-names"], What::Tar),
        ("zip", &["-q", "-"], What::Zip),
    ] {
        let image = folder.path().join(tool);
        let made = match need(tool) {
            Ok(mut command) => command.args(args).arg(&content).output().unwrap(),
            Err(reason) => {
                skip_part!(format!("what_is_packed_is_named, {tool}"), reason);
                continue;
            }
        };
        assert!(made.status.success(), "{tool}");
        std::fs::write(&image, made.stdout).unwrap();
        assert_eq!(found(&image).0, Some(what), "{tool}");
    }
}
