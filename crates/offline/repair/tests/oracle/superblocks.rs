//! Superblocks, group descriptors and inodes with a task that contradict the rest of the volume, each made by
//! hand: the check says so where e2fsck counts an error, and a repair leaves every file in its place.

use crate::seal;
use crate::structures::{Case, survey};
use crate::trial::{e2fsck, watched};
use hectare_check::Options;
use hectare_device::MemoryDevice;
use hectare_ext4::superblock::SuperBlock;
use hectare_oracle::{debugfs, skip};
use hectare_repair::Staged;
use hectare_units::{Bytes, GroupNr, InodeNr};
use std::fs;
use std::sync::Arc;

const SUPERBLOCK: std::ops::Range<usize> = 1024..2048;
/// Features, by where a superblock has them.
const COMPAT: usize = 0x5c;
const INCOMPAT: usize = 0x60;
const RO_COMPAT: usize = 0x64;

/// A volume whose bytes are changed.
struct Image {
    bytes: Vec<u8>,
    /// As it was made.
    sb: SuperBlock,
}

impl Image {
    fn of(case: &Case) -> Self {
        let bytes = case.bytes();
        let sb = SuperBlock::parse(&bytes[SUPERBLOCK], Bytes::new(u64::MAX)).unwrap();
        Self { bytes, sb }
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(*self.bytes[at..].first_chunk().unwrap())
    }

    /// Writes a field of the superblock.
    fn set(&mut self, at: usize, field: &[u8]) {
        self.bytes[1024 + at..][..field.len()].copy_from_slice(field);
        seal::seal_superblock(&mut self.bytes[SUPERBLOCK]);
    }

    /// Switches features, of one word.
    fn toggle(&mut self, word: usize, bits: u32) {
        let now = self.word(1024 + word) ^ bits;
        self.set(word, &now.to_le_bytes());
    }

    fn descriptor(&self, group: u32) -> usize {
        let geometry = self.sb.geometry();
        let block = usize::try_from(geometry.desc_block(0).get()).unwrap();
        block * geometry.block_size.len() + usize::try_from(group * geometry.desc_size).unwrap()
    }

    /// The inode table that a group's descriptor names.
    fn table(&self, group: u32) -> u32 {
        self.word(self.descriptor(group) + 8)
    }

    /// Writes a field of a descriptor.
    fn describe(&mut self, group: u32, at: usize, field: u32) {
        let (start, size) = (self.descriptor(group), usize::try_from(self.sb.geometry().desc_size).unwrap());
        self.bytes[start + at..][..4].copy_from_slice(&field.to_le_bytes());
        seal::seal_descriptor(&mut self.bytes[start..start + size], GroupNr::new(group), &self.sb);
    }

    /// Writes a field of an inode; without a new checksum if it is to be wrong.
    fn inode(&mut self, nr: u32, at: usize, field: &[u8], sealed: bool) {
        let geometry = self.sb.geometry();
        let (group, index) = geometry.inode_slot(InodeNr::new(nr)).unwrap();
        let size = usize::try_from(geometry.inode_size).unwrap();
        let table = usize::try_from(self.table(group.get())).unwrap();
        let start = table * geometry.block_size.len() + usize::try_from(index).unwrap() * size;
        self.bytes[start + at..][..field.len()].copy_from_slice(field);
        if let Some(seed) = self.sb.seed().filter(|_| sealed) {
            seal::seal_inode_slot(&mut self.bytes[start..start + size], InodeNr::new(nr), seed);
        }
    }

    fn put(&self, case: &Case) {
        fs::write(&case.image, &self.bytes).unwrap();
    }
}

/// What the check says of an image: whether it is sound.
fn is_sound(case: &Case) -> bool {
    let report = hectare_check::check(&MemoryDevice::from_bytes(&case.bytes()), &Options::default());
    report.is_ok_and(|report| report.is_clean())
}

/// Changes a volume: the check and e2fsck find it, and what a repair leaves has all files.
fn mends(name: &str, args: &[&str], size: &str, change: impl FnOnce(&mut Image, &Case)) {
    let case = match Case::filled(args, size) {
        Ok(case) => case,
        Err(reason) => skip!(&format!("repair superblocks::{name}"), reason),
    };
    let before = case.survey();
    let mut image = Image::of(&case);
    change(&mut image, &case);
    assert_ne!(image.bytes, case.bytes(), "{name}: nothing is damaged");
    image.put(&case);
    let said = e2fsck("-fn", &case.image);
    let sound = is_sound(&case);
    assert!(said.code == Some(0) || !sound, "{name}: the check finds nothing, but {}", said.out);
    let (repaired, after) = case.repaired(name);
    assert_eq!(repaired.mends.is_empty(), sound, "{name}: what the check finds is mended, and said");
    let lost = survey(&after).lacks(&before);
    assert!(lost.is_empty(), "{name}: {lost:?} {:?}", repaired.mends.iter().collect::<Vec<_>>());
}

fn inode_of(case: &Case, path: &str) -> u32 {
    let said = debugfs(&case.image, &[&format!("stat {path}")]).unwrap();
    let mut words = said.split_whitespace().skip_while(|word| *word != "Inode:");
    words.nth(1).and_then(|word| word.parse().ok()).unwrap()
}

const PLAIN: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
const EXT2: &[&str] = &["-t", "ext2", "-b", "1024"];

#[test]
fn regression_a_resize_inode_with_wrong_fields() {
    mends("checksum", PLAIN, "6M", |image, _| image.inode(7, 0x7c, &[0x34, 0x12], false));
    mends("mode", PLAIN, "6M", |image, _| image.inode(7, 0, &0o100_577u16.to_le_bytes(), false));
    mends("flags", PLAIN, "6M", |image, _| image.inode(7, 0x20, &0x8_0000u32.to_le_bytes(), true));
    mends("size", EXT2, "6M", |image, _| image.inode(7, 0x6c, &0xffff_fffeu32.to_le_bytes(), true));
    for args in [PLAIN, EXT2] {
        mends("no size", args, "20M", |image, _| {
            image.inode(7, 0x4, &[0; 4], true);
            image.inode(7, 0x6c, &[0; 4], true);
        });
        mends("no links", args, "20M", |image, _| image.inode(7, 0x1a, &[0; 2], true));
    }
}

#[test]
fn regression_a_high_half_of_a_block_count_is_said_to_be_cleared() {
    for path in ["f7", "d7"] {
        mends(path, EXT2, "6M", |image, case| image.inode(inode_of(case, path), 0x74, &[0xfe, 0xff], true));
    }
}

/// On a volume of the Hurd an inode may have a block beside its map.
#[test]
fn regression_translators_of_the_hurd() {
    let hurd = &["-t", "ext2", "-b", "1024", "-o", "hurd"];
    let translator = |image: &mut Image, nr, block: usize| {
        image.inode(nr, 0x24, &u32::try_from(block).unwrap().to_le_bytes(), true);
    };
    mends("free", hurd, "6M", |image, case| translator(image, inode_of(case, "f7"), 6000));
    mends("taken", hurd, "6M", |image, case| {
        translator(image, inode_of(case, "f7"), case.block_of("f9"));
        translator(image, inode_of(case, "f9"), case.block_of("f9"));
        translator(image, inode_of(case, "d3"), 5);
    });
    mends("outside", hurd, "6M", |image, case| translator(image, inode_of(case, "f7"), 99_999));
}

#[test]
fn regression_orphan_files_without_a_journal() {
    let with_file = &["-t", "ext4", "-b", "1024", "-O", "orphan_file"];
    mends("no journal", with_file, "16M", |image, _| image.toggle(COMPAT, 4));
    mends("neither file nor journal", PLAIN, "6M", |image, _| image.toggle(COMPAT, 0x1000));
    mends("no file", PLAIN, "6M", |image, _| image.toggle(RO_COMPAT, 0x1_0000));
}

#[test]
fn regression_a_first_block_of_zero() {
    for args in [EXT2, PLAIN] {
        for size in ["6M", "20M"] {
            mends("first block", args, size, |image, _| image.set(0x14, &[0; 4]));
        }
    }
}

#[test]
fn regression_features_of_which_one_excludes_another() {
    for size in ["6M", "20M"] {
        mends("both checksums", PLAIN, size, |image, _| image.toggle(RO_COMPAT, 0x10));
    }
}

#[test]
fn regression_features_of_revision_0() {
    let small = &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^has_journal"];
    mends("revision", small, "6M", |image, _| image.set(0x4c, &[0; 4]));
    mends("larger inodes", &["-t", "ext4", "-b", "1024"], "16M", |image, _| image.set(0x4c, &[0; 4]));
}

#[test]
fn regression_a_wrong_size_of_descriptors() {
    let groups = &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "64bit,^has_journal,^flex_bg"];
    let metadata = &["-t", "ext4", "-b", "1024", "-O", "64bit,^has_journal"];
    mends("too large", groups, "6M", |image, _| image.set(0xfe, &[128, 0]));
    for size in ["6M", "20M"] {
        mends("too small", metadata, size, |image, _| image.set(0xfe, &[4, 0]));
    }
}

#[test]
fn regression_more_blocks_kept_for_growing_than_metadata_leave() {
    mends("ext2", EXT2, "6M", |image, _| image.set(0xce, &[100, 0]));
    mends("ext4", &["-t", "ext4", "-b", "1024"], "20M", |image, _| image.set(0xce, &[230, 0]));
    mends("without journal", PLAIN, "6M", |image, _| image.set(0xce, &[135, 0]));
}

#[test]
fn regression_descriptors_that_contradict_each_other() {
    let ext3 = &["-t", "ext3", "-b", "1024", "-N", "64", "-g", "2048", "-O", "^has_journal"];
    let ext4 = &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^has_journal,^flex_bg"];
    for args in [&ext3[..], ext4] {
        mends("low", &[args, &["-N", "256"]].concat(), "8M", |image, _| {
            image.describe(1, 8, image.table(1) - 1);
        });
        mends("swapped", &[args, &["-N", "256"]].concat(), "8M", |image, _| {
            let (a, b) = (image.table(0), image.table(1));
            image.describe(0, 8, b);
            image.describe(1, 8, a);
        });
    }
    let flex = &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "256", "-O", "^has_journal"];
    mends("tables of a flex group", flex, "8M", |image, _| {
        let (a, b) = (image.table(0), image.table(1));
        image.describe(0, 8, b);
        image.describe(1, 8, a);
    });
}

/// Features by which metadata would lie elsewhere, or descriptors be shorter: the backup knows better.
#[test]
fn regression_features_that_the_descriptors_contradict() {
    let flex = &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "256", "-O", "^has_journal,64bit"];
    let ext3 = &["-t", "ext3", "-b", "1024", "-g", "2048", "-N", "256"];
    mends("no flex_bg", flex, "8M", |image, _| image.toggle(INCOMPAT, 0x200));
    mends("no 64bit", flex, "8M", |image, _| image.toggle(INCOMPAT, 0x80));
    mends("no sparse_super", ext3, "16M", |image, _| image.toggle(RO_COMPAT, 1));
    mends("all tables", flex, "8M", |image, _| {
        (0..4).for_each(|group| image.describe(group, 8, image.table(group) - 1));
    });
}

/// A log is looked for before hidden inodes are read. What is mended in the superblock meanwhile copies no
/// descriptors over their backups that are not judged yet.
#[test]
fn regression_hidden_inodes_leave_the_backups_of_wrong_descriptors() {
    let flex = &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "128", "-O", "^has_journal"];
    mends("backups", flex, "8M", |image, _| {
        image.set(0x8, &60_000u32.to_le_bytes());
        image.describe(1, 0x1c, 32);
        let (a, b) = (image.table(2), image.table(3));
        image.describe(2, 8, b);
        image.describe(3, 8, a);
    });
}

/// Who does not know a feature, or an encoding of names, can't say that a volume is sound.
#[test]
fn regression_what_is_unknown_is_not_sound() {
    let cases = [
        (COMPAT, 0x40),
        (COMPAT, 0x80),
        (COMPAT, 0x100),
        (COMPAT, 0x4000_0000),
        (RO_COMPAT, 0x4),
        (RO_COMPAT, 0x80),
        (RO_COMPAT, 0x800),
        (RO_COMPAT, 0x4000_0000),
        (INCOMPAT, 0x4000_0000),
    ];
    for (word, bits) in cases {
        refuses(PLAIN, |image| image.toggle(word, bits));
    }
    // The right checksum says that it was set on purpose, whatever else is wrong: no backup without it counts.
    refuses(PLAIN, |image| {
        image.toggle(COMPAT, 0x8000);
        image.set(0x8, &60_000u32.to_le_bytes());
    });
    // Nor does one that agrees better with the descriptors.
    let flex = &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "256", "-O", "^has_journal,64bit"];
    refuses(flex, |image| {
        image.toggle(COMPAT, 0x8000);
        image.toggle(INCOMPAT, 0x200);
    });
    let folds = &["-t", "ext4", "-b", "1024", "-O", "casefold,^has_journal", "-E", "encoding=utf8"];
    refuses(folds, |image| image.set(0x27c, &[99, 0]));
}

fn refuses(args: &[&str], change: impl FnOnce(&mut Image)) {
    let case = match Case::filled(args, "6M") {
        Ok(case) => case,
        Err(reason) => skip!("repair superblocks::regression_what_is_unknown_is_not_sound", reason),
    };
    let mut image = Image::of(&case);
    change(&mut image);
    image.put(&case);
    let said = e2fsck("-fn", &case.image);
    assert_ne!(said.code, Some(0), "{}", said.out);
    assert!(!is_sound(&case), "{}", said.out);
    let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&case.bytes())));
    watched(staged.overlay()).unwrap_err();
}

/// A journal that was aborted says by which error: e2fsck and the kernel take it for one of the volume.
#[test]
fn regression_the_error_that_aborted_a_journal_is_cleared() {
    for args in [&["-t", "ext3", "-b", "1024"][..], &["-t", "ext4", "-b", "4096"]] {
        let case = match Case::filled(args, "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair superblocks::the_error_that_aborted_a_journal", reason),
        };
        let mut image = Image::of(&case);
        let start = case.block_of("<8>") * image.sb.geometry().block_size.len();
        image.bytes[start + 32..start + 36].copy_from_slice(&(-5i32).to_be_bytes());
        image.put(&case);
        assert!(e2fsck("-fn", &case.image).out.contains("Error writing block"));
        let (repaired, after) = case.repaired("aborted");
        let texts: Vec<_> = repaired.mends.iter().map(|mend| mend.unwrap().text).collect();
        assert_eq!(texts, ["it was aborted by error -5: cleared"]);
        assert_eq!(after[start + 32..start + 36], [0; 4]);
        assert!(!repaired.loses());
    }
}

/// The superblock of a journal of the first version ends before the users; what follows says nothing.
#[test]
fn regression_an_old_journal_has_no_users() {
    let case = match Case::filled(&["-t", "ext3", "-b", "1024"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair superblocks::regression_an_old_journal_has_no_users", reason),
    };
    let (mut bytes, start) = (case.bytes(), case.block_of("<8>") * 1024);
    bytes[start + 4..start + 8].copy_from_slice(&3u32.to_be_bytes());
    bytes[start + 36..start + 1024].fill(0x11);
    fs::write(&case.image, &bytes).unwrap();
    assert!(is_sound(&case));
    let (repaired, _) = case.repaired("journal");
    assert!(repaired.mends.is_empty());
}
