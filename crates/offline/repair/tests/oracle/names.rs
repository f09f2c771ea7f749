//! Names of directories: records whose lengths are wrong, names that are there twice, second names of
//! directories, and where what has no name gets one.

use crate::seal;
use crate::structures::{Case, survey};
use crate::survey::Survey;
use crate::trial::e2fsck;
use hectare_oracle::{Skip, debugfs_write, mke2fs, skip};
use std::fs;

/// Where a record has its length, the length of its name, and its name.
const LENGTH: usize = 4;
const NAME_LENGTH: usize = 6;
const NAME: usize = 8;

/// A volume that debugfs fills.
pub(crate) fn made(args: &[&str], size: &str, requests: &[&str]) -> Result<Case, Skip> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    mke2fs(args, &image, size)?;
    debugfs_write(&image, requests)?;
    Ok(Case { folder, image })
}

/// Changes the bytes of an image, and makes its checksums right.
pub(crate) fn patch(case: &Case, change: impl FnOnce(&mut [u8])) {
    let mut bytes = case.bytes();
    change(&mut bytes);
    seal::seal(&mut bytes);
    fs::write(&case.image, bytes).unwrap();
}

/// Where the record of a name of one byte for each of its letters lies, in a volume with one such name.
pub(crate) fn record(bytes: &[u8], name: &str) -> usize {
    let (len, head) = (u8::try_from(name.len()).unwrap(), name.as_bytes());
    let is_it = |at: &usize| bytes[at + NAME_LENGTH] == len && bytes[at + NAME..].starts_with(head);
    (0..bytes.len() - 300).step_by(4).find(is_it).unwrap_or_else(|| panic!("no record of {name}"))
}

/// The inode of a path.
pub(crate) fn inode(survey: &Survey, path: &str) -> Option<u32> {
    survey.paths.iter().find(|(known, _)| known == path.as_bytes()).map(|(_, nr)| *nr)
}

/// That e2fsck minds an image, and the check, too.
pub(crate) fn assert_minded(case: &Case, place: &str) {
    assert!(e2fsck("-fn", &case.image).code != Some(0), "{place}: e2fsck finds nothing");
    assert!(!is_clean(case), "{place}: the check finds nothing");
}

/// Whether the check finds an image sound.
pub(crate) fn is_clean(case: &Case) -> bool {
    let device = hectare_device::MemoryDevice::from_bytes(&case.bytes());
    hectare_check::check(&device, &hectare_check::Options::default()).unwrap().is_clean()
}

/// The records after one whose name is too long for it are where its length says.
#[test]
fn regression_a_name_that_is_too_long_costs_no_other() {
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"]] {
        let requests = ["mkdir dir", "mknod fifo p", "mkdir other", "mknod one p", "mknod two p"];
        let case = match made(args, "8M", &requests) {
            Ok(case) => case,
            Err(reason) => skip!("repair names::regression_a_name_that_is_too_long", reason),
        };
        let before = case.survey();
        for len in [5, 9, 255] {
            patch(&case, |bytes| {
                let at = record(bytes, "fifo");
                bytes[at + NAME_LENGTH] = len;
            });
            assert_minded(&case, &format!("{args:?}, {len}"));
            let (repaired, after) = case.repaired(&format!("{args:?}, {len}"));
            assert_eq!(survey(&after).paths, before.paths, "{args:?}, {len}: {:?}", repaired.mends);
            patch(&case, |bytes| {
                let at = bytes.windows(4).position(|four| four == b"fifo").unwrap() - NAME;
                bytes[at + NAME_LENGTH] = 4;
            });
        }
    }
}

/// Of several entries with one name that of the highest inode keeps it, as e2fsck decides.
#[test]
fn regression_the_highest_inode_keeps_a_name_that_is_there_twice() {
    let requests =
        ["mkdir d1", "mkdir d2", "mknod f1 p", "mknod f2 p", "mknod f3 p", "mknod abc p", "mknod abd p"];
    let case = match made(&["-t", "ext4", "-b", "1024"], "8M", &requests) {
        Ok(case) => case,
        Err(reason) => skip!("repair names::regression_the_highest_inode_keeps_a_name", reason),
    };
    patch(&case, |bytes| {
        for (from, to) in [("d2", "d1"), ("f2", "f1"), ("f3", "f1"), ("abd", "abc")] {
            let at = record(bytes, from) + NAME;
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    });
    assert_minded(&case, "twice");
    let (repaired, after) = case.repaired("twice");
    let theirs = survey(&case.e2fsck().1);
    assert_eq!(inode(&theirs, "/f1"), Some(16));
    assert_eq!(survey(&after).paths, theirs.paths, "{:?}", repaired.mends);
}

/// In blocks of 64 KiB no length but that of a whole block is stored as 0 or 65535.
#[test]
fn regression_a_record_of_a_whole_block_begins_it() {
    let args = ["-t", "ext4", "-b", "65536", "-O", "^has_journal,^metadata_csum"];
    for (name, len) in [("..", 0), ("f2", 0), ("f2", 0xffff)] {
        let case = match made(&args, "32M", &["mkdir d", "cd d", "mknod f1 p", "mknod f2 p", "mknod f3 p"]) {
            Ok(case) => case,
            Err(reason) => skip!("repair names::regression_a_record_of_a_whole_block", reason),
        };
        let before = case.survey();
        let block = case.block_of("d");
        patch(&case, |bytes| {
            let at = block * 65536 + record(&bytes[block * 65536..], name);
            bytes[at + LENGTH..at + LENGTH + 2].copy_from_slice(&u16::to_le_bytes(len));
        });
        assert_minded(&case, name);
        let (repaired, after) = case.repaired(name);
        assert_eq!(survey(&after), before, "{name}: {:?}", repaired.mends);
    }
}

/// Without a free block there is no new lost+found: what has no name gets one in the root.
#[test]
fn regression_without_space_lost_files_are_put_in_the_root() {
    let args = ["-t", "ext2", "-b", "1024", "-N", "32", "-m", "0"];
    let case = match made(&args, "256k", &["rmdir lost+found", "mknod f1 p", "mknod f2 p"]) {
        Ok(case) => case,
        Err(reason) => skip!("repair names::regression_without_space", reason),
    };
    e2fsck("-fy", &case.image);
    case.change(&["rmdir lost+found"]);
    let free = hectare_oracle::dumpe2fs(&case.image).unwrap().number("Free blocks");
    let filler = case.folder.path().join("filler");
    fs::write(&filler, vec![7; 1024]).unwrap();
    let writes: Vec<String> = (0..8).map(|nr| format!("write {} w{nr}", filler.display())).collect();
    // Few inodes, so a large file and then small ones.
    let large = case.folder.path().join("large");
    fs::write(&large, vec![7; usize::try_from(free.saturating_sub(8)).unwrap() * 1024]).unwrap();
    case.change(&[&format!("write {} large", large.display())]);
    case.change(&writes.iter().map(String::as_str).collect::<Vec<_>>());
    case.change(&["unlink f2"]);
    assert_eq!(hectare_oracle::dumpe2fs(&case.image).unwrap().number("Free blocks"), 0);
    let (repaired, after) = case.repaired("full");
    let found = survey(&after);
    assert!(found.paths.iter().any(|(path, _)| path.starts_with(b"/#")), "{:?}", repaired.mends);
    assert_eq!(found.inodes.len(), survey(&case.e2fsck().1).inodes.len());
}
