//! Structures that once were mended wrongly, each found by random damage: superblocks from a backup, counts of
//! inodes, claims of blocks, records of quotas, links.

use crate::survey::Survey;
use crate::trial::{Ran, bytes_of, e2fsck, watched};
use hectare_check::What;
use hectare_device::MemoryDevice;
use hectare_oracle::{Skip, debugfs, debugfs_write, dumpe2fs, mke2fs, name_journal, skip};
use hectare_repair::{Repaired, Staged};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SUPERBLOCK: std::ops::Range<usize> = 1024..2048;

/// A folder with a volume, and what becomes of it.
pub(crate) struct Case {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) image: PathBuf,
}

impl Case {
    /// A volume with 40 files of up to 58 KiB, the text of each its number, and as many directories.
    pub(crate) fn filled(args: &[&str], size: &str) -> Result<Self, Skip> {
        let folder = tempfile::tempdir().unwrap();
        let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
        fs::create_dir(&tree).unwrap();
        for nr in 0..40usize {
            fs::write(tree.join(format!("f{nr}")), format!("{nr:4}").repeat(nr.min(37) * 400)).unwrap();
            fs::create_dir(tree.join(format!("d{nr}"))).unwrap();
        }
        mke2fs(&[args, &["-d", tree.to_str().unwrap()]].concat(), &image, size)?;
        e2fsck("-fy", &image);
        Ok(Self { folder, image })
    }

    pub(crate) fn change(&self, requests: &[&str]) {
        debugfs_write(&self.image, requests).unwrap();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(&self.image).unwrap()
    }

    pub(crate) fn survey(&self) -> Survey {
        survey(&self.bytes())
    }

    /// The first block of a file.
    pub(crate) fn block_of(&self, file: &str) -> usize {
        let blocks = debugfs(&self.image, &[&format!("blocks {file}")]).unwrap();
        blocks.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
    }

    /// What a repair does, and what it leaves, which must be sound for e2fsck.
    pub(crate) fn repaired(&self, place: &str) -> (Repaired, Vec<u8>) {
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&self.bytes())));
        let repaired = watched(staged.overlay()).unwrap_or_else(|error| panic!("{place}: {error}"));
        let after = bytes_of(&**staged.overlay());
        assert_sound(&after, self.folder.path(), place);
        (repaired, after)
    }

    /// What `e2fsck -fy` says, and leaves.
    pub(crate) fn e2fsck(&self) -> (Ran, Vec<u8>) {
        let theirs = self.folder.path().join("theirs");
        fs::copy(&self.image, &theirs).unwrap();
        let said = e2fsck("-fy", &theirs);
        (said, fs::read(theirs).unwrap())
    }
}

pub(crate) fn assert_sound(bytes: &[u8], folder: &Path, place: &str) {
    let after = folder.join("after");
    fs::write(&after, bytes).unwrap();
    let said = e2fsck("-fn", &after);
    assert_eq!(said.code, Some(0), "{place}: {}", said.out);
}

pub(crate) fn survey(bytes: &[u8]) -> Survey {
    Survey::of(Arc::new(MemoryDevice::from_bytes(bytes))).unwrap()
}

/// A backup of the superblock does not know that the log is to be replayed.
#[test]
fn regression_a_log_is_replayed_with_a_superblock_from_a_backup() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024"], "32M") {
        Ok(case) => case,
        Err(reason) => skip!("repair structures::regression_a_log_is_replayed", reason),
    };
    let (content, block) = (case.folder.path().join("content"), case.block_of("f39"));
    fs::write(&content, [7; 1024]).unwrap();
    case.change(&["jo", &format!("jw -b {block} {}", content.display()), "jc"]);
    assert!(dumpe2fs(&case.image).unwrap().has("needs_recovery"));
    let mut bytes = case.bytes();
    bytes[SUPERBLOCK].fill(0);
    fs::write(&case.image, &bytes).unwrap();
    let (repaired, after) = case.repaired("backup");
    assert!(!repaired.loses(), "{:?}", repaired.mends);
    assert!(after[block * 1024..][..1024] == [7; 1024], "the log is lost");
    assert_eq!(survey(&after), survey(&case.e2fsck().1));
}

/// Where the journal's inode is lost, the superblock has a copy of its map.
#[test]
fn regression_a_log_is_replayed_by_the_copy_of_its_map() {
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext3", "-b", "1024"]] {
        let case = match Case::filled(args, "32M") {
            Ok(case) => case,
            Err(reason) => skip!("repair structures::regression_a_log_is_replayed_by_the_copy", reason),
        };
        let (content, block) = (case.folder.path().join("content"), case.block_of("f39"));
        fs::write(&content, [7; 1024]).unwrap();
        let before = case.survey();
        case.change(&["jo", &format!("jw -b {block} {}", content.display()), "jc"]);
        case.change(&["clri <8>"]);
        let place = format!("{args:?}");
        let (repaired, after) = case.repaired(&place);
        assert!(!repaired.loses(), "{place}: {:?}", repaired.mends);
        // e2fsck, here, gives the log up and makes a new journal.
        assert!(after[block * 1024..][..1024] == [7; 1024], "{place}: the log is lost");
        assert_eq!(survey(&after).paths, before.paths, "{place}");
        assert_eq!(survey(&after).lacks(&before).len(), 1, "{place}: the file of that block");
    }
}

#[test]
fn a_superblock_comes_from_a_backup() {
    for args in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    ] {
        let case = match Case::filled(args, "32M") {
            Ok(case) => case,
            Err(reason) => skip!("repair structures::a_superblock_comes_from_a_backup", reason),
        };
        let (before, whole) = (case.survey(), case.bytes());
        // All of it; its magic number; its block size; a checksum; blocks per group.
        for (at, len, value) in [(0, 1024, 0), (0x38, 2, 0), (0x18, 1, 9), (0x3fc, 4, 1), (0x20, 2, 3)] {
            let mut bytes = whole.clone();
            bytes[SUPERBLOCK][at..at + len].fill(value);
            fs::write(&case.image, &bytes).unwrap();
            let place = format!("{args:?}, byte {at:#x}");
            let (repaired, after) = case.repaired(&place);
            assert!(!repaired.loses(), "{place}: {:?}", repaired.mends);
            assert_eq!(survey(&after), before, "{place}");
        }
    }
}

/// Without a backup, the counts of inodes follow from each other.
#[test]
fn regression_counts_of_inodes_are_made_right() {
    let args: [&[&str]; 3] = [
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
        &["-t", "ext2", "-b", "4096"],
    ];
    for args in args {
        let case = match Case::filled(args, "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair structures::regression_counts_of_inodes", reason),
        };
        let (before, whole) = (case.survey(), case.bytes());
        for count in ["1", "3000", "5000", "4294967295"] {
            fs::write(&case.image, &whole).unwrap();
            case.change(&[&format!("ssv inodes_count {count}")]);
            let place = format!("{args:?}, {count} inodes");
            let (repaired, after) = case.repaired(&place);
            assert!(!repaired.loses(), "{place}: {:?}", repaired.mends);
            assert_eq!(survey(&after), before, "{place}");
            assert_eq!(survey(&case.e2fsck().1), before, "{place}");
        }
    }
}

/// One extent over most of the volume takes nothing from the files after it. Where size or count say how long it
/// was, its file ends there.
#[test]
fn regression_a_sound_map_claims_its_blocks_first() {
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]] {
        let case = match Case::filled(args, "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair structures::regression_a_sound_map_claims", reason),
        };
        let (before, whole) = (case.survey(), case.bytes());
        let is_file = |path: &[u8]| path.starts_with(b"/f") && path != b"/f0";
        let (path, nr) =
            before.paths.iter().filter(|(path, _)| is_file(path)).min_by_key(|(_, nr)| nr).unwrap();
        let file = String::from_utf8(path.clone()).unwrap();
        // Up to the end: then there is no space for copies of what it would take.
        let len = (16 << 10) - 1 - case.block_of(&file);
        let longer = format!("sif {file} block[4] {len}");
        for (changes, lost) in [
            (vec![&*longer], vec![]),
            (vec![&*longer, &*format!("sif {file} size {}", len * 1024)], vec![*nr]),
        ] {
            fs::write(&case.image, &whole).unwrap();
            case.change(&changes);
            let place = format!("{args:?}, {changes:?}");
            let (repaired, after) = case.repaired(&place);
            let found = survey(&after);
            assert_eq!(found.lacks(&before), lost, "{place}: {:?}", repaired.mends);
            assert_eq!(found.paths, before.paths, "{place}");
        }
    }
}

/// The kernel leaves what was in a block behind the end of a target; it was taken for a target without an end.
#[test]
fn regression_what_lies_behind_the_end_of_a_target_is_no_loss() {
    let case = match Case::filled(&["-t", "ext4", "-b", "4096"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair structures::regression_what_lies_behind_the_end", reason),
    };
    let link = format!("symlink link {}", "x".repeat(80));
    case.change(&[&link, "zap_block -f link -o 4095 -l 1 -p 90 0", "set_bg 0 free_inodes_count 7"]);
    let (repaired, after) = case.repaired("a link before old bytes");
    assert!(!repaired.loses() && !repaired.mends.is_empty(), "{:?}", repaired.mends);
    fs::write(&case.image, after).unwrap();
    let shown = debugfs(&case.image, &["stat link"]).unwrap();
    assert!(shown.contains("Size: 80"), "{shown}");
}

/// A link whose short target is in its inode, while a flag says that a tree is: the link was cleared.
#[test]
fn regression_a_link_of_four_bytes_is_kept_whose_flags_are_wrong() {
    let case = match Case::filled(&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair structures::regression_a_link_of_four_bytes", reason),
    };
    case.change(&["symlink link abcd", "sif link flags 0x80000"]);
    let (_, after) = case.repaired("a link with a wrong flag");
    fs::write(&case.image, after).unwrap();
    let shown = debugfs(&case.image, &["stat link"]).unwrap();
    assert!(shown.contains("Fast link dest: \"abcd\""), "{shown}");
}

/// A record to which nothing in the tree leads goes; e2fsck counts what is in a leaf.
#[test]
fn regression_stray_quota_records_go() {
    let case = match Case::filled(&["-t", "ext4", "-b", "4096", "-O", "quota"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair structures::regression_stray_quota_records", reason),
    };
    let before = case.survey();
    // The leaf is the sixth KiB of the file: 16 bytes of a head, and records of 72.
    let blocks = debugfs(&case.image, &["blocks <3>"]).unwrap();
    let second: usize = blocks.split_whitespace().filter_map(|word| word.parse().ok()).nth(1).unwrap();
    let mut bytes = case.bytes();
    let record = second * 4096 + 1024 + 16 + 3 * 72;
    bytes[record] = 77;
    bytes[record + 24] = 5;
    fs::write(&case.image, &bytes).unwrap();
    assert!(e2fsck("-fn", &case.image).code != Some(0), "e2fsck minds it");
    let (repaired, after) = case.repaired("stray");
    assert!(!repaired.loses() && !repaired.mends.is_empty(), "{:?}", repaired.mends);
    assert_eq!(survey(&after), before);
    // No limits are lost with it, and no record comes.
    assert_eq!(after[record..record + 72], [0; 72]);
}

/// The journal that tune2fs gives to a mounted volume is the file `.journal`, of an ordinary inode. Its name was
/// taken away, on a volume that was sound.
#[test]
fn regression_a_journal_with_a_name_keeps_it() {
    const NAME: &str = "repair structures::regression_a_journal_with_a_name";
    let case = match Case::filled(&["-t", "ext3", "-b", "1024", "-O", "quota"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!(NAME, reason),
    };
    let nr = name_journal(&case.image).unwrap();
    let before = case.survey();
    // Its owner's record does not count it yet.
    let (repaired, after) = case.repaired("with a name");
    assert!(repaired.mends.iter().flatten().all(|mend| mend.what == What::Quota), "{:?}", repaired.mends);
    assert!(survey(&after) == before);
    fs::write(&case.image, &after).unwrap();
    assert!(case.repaired("counted").0.mends.is_empty());
    case.change(&["unlink .journal"]);
    let (repaired, after) = case.repaired("without a name");
    assert!(repaired.mends.iter().flatten().any(|mend| mend.text.contains(&format!("lost+found/#{nr}"))));
    fs::write(&case.image, after).unwrap();
    assert!(case.repaired("connected").0.mends.is_empty());
}

/// With another UUID no checksum is right any more, in no copy. Inode tables that cross the start of a group
/// without a superblock were taken to overlap it, and laid out elsewhere: it could not be made sound.
#[test]
fn regression_tables_across_groups_stay_when_all_checksums_are_wrong() {
    const NAME: &str = "repair structures::regression_tables_across_groups";
    let features = "metadata_csum,flex_bg,^metadata_csum_seed";
    let args = ["-t", "ext4", "-b", "1024", "-I", "256", "-i", "1024", "-O", features];
    let case = match Case::filled(&args, "48M") {
        Ok(case) => case,
        Err(reason) => skip!(NAME, reason),
    };
    let before = case.survey();
    case.change(&["ssv uuid 11111111-2222-3333-4444-555555555555"]);
    let (repaired, after) = case.repaired("another UUID");
    assert!(!repaired.mends.is_empty());
    assert!(survey(&after) == before, "all files are there");
}
