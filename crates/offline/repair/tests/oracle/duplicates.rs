//! Blocks that several inodes have, beside e2fsck: with copies every file reads as before the repair, as
//! after
//! that of e2fsck; without, the owner that comes first does, and the others have holes there and nowhere
//! else.

use crate::structures::{Case, assert_sound, survey};
use crate::trial::{NOW, bytes_of};
use hectare_device::MemoryDevice;
use hectare_engine::{OpenOptions, Volume};
use hectare_oracle::{debugfs, skip};
use hectare_repair::{Duplicates, Options, Repaired, Staged};
use std::sync::Arc;

/// Feature sets with extents, with block maps, and with clusters of several blocks.
const EXTENTS: &[&str] = &["-t", "ext4", "-b", "1024"];
const UNSEALED: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
const BLOCKS: &[&str] = &["-t", "ext2", "-b", "1024"];
const CLUSTERS: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"];

fn repaired(case: &Case, duplicates: Duplicates, place: &str) -> (Repaired, Vec<u8>) {
    let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&case.bytes())));
    let options = Options { now: NOW, duplicates, ..Options::default() };
    let repaired = staged.repair(&options).unwrap_or_else(|error| panic!("{place}: {error}"));
    let after = bytes_of(&**staged.overlay());
    assert_sound(&after, case.folder.path(), place);
    (repaired, after)
}

/// What a file holds.
pub(crate) fn content(bytes: &[u8], path: &str) -> Vec<u8> {
    let volume = Volume::open(Arc::new(MemoryDevice::from_bytes(bytes)), OpenOptions::read_only()).unwrap();
    let nr = volume.resolve(path, false).unwrap();
    let mut content = vec![0; usize::try_from(volume.stat(nr).unwrap().size).unwrap()];
    let (file, mut at) = (volume.open_inode(nr).unwrap(), 0);
    while at < content.len() {
        at += file.read_at(u64::try_from(at).unwrap(), &mut content[at..]).unwrap();
    }
    content
}

/// The word of an inode that names its first block: of an extent, or of a block map.
fn first_word(args: &[&str]) -> usize {
    if args == BLOCKS { 0 } else { 5 }
}

/// Two files with all blocks of one, or the first one, and a third. Which file is the first by its number
/// is up
/// to mke2fs.
#[test]
fn data_of_several_owners_is_copied_or_given_up() {
    for args in [EXTENTS, UNSEALED, BLOCKS, CLUSTERS] {
        for owners in [2, 3] {
            let made = Case::filled(args, if args == CLUSTERS { "48M" } else { "16M" });
            let case = match made {
                Ok(case) => case,
                Err(reason) => skip!("repair duplicates::data_of_several_owners", reason),
            };
            let numbers = case.survey();
            let number = |file: &str| {
                numbers.paths.iter().find(|(path, _)| path == format!("/{file}").as_bytes()).unwrap().1
            };
            let mut files = vec!["f37", "f38", "f39"];
            files.sort_by_key(|file| number(file));
            files.truncate(owners);
            let before = case.bytes();
            let shared = case.block_of(files[0]);
            for file in &files[1..] {
                case.change(&[&format!("sif {file} block[{}] {shared}", first_word(args))]);
            }
            let (place, damaged) = (format!("{args:?}, {owners} owners"), case.bytes());
            let read = survey(&damaged);
            let (done, after) = repaired(&case, Duplicates::Clone, &place);
            assert!(!done.loses(), "{place}: {:?}", done.mends);
            assert_eq!(survey(&after), read, "{place}");
            assert_eq!(survey(&case.e2fsck().1), read, "{place}: e2fsck");

            let (done, after) = repaired(&case, Duplicates::Delete, &place);
            assert!(done.loses(), "{place}: {:?}", done.mends);
            let found = survey(&after);
            let others: Vec<u32> = files[1..].iter().map(|file| number(file)).collect();
            assert_eq!(
                found.lacks(&read),
                {
                    let mut o = others.clone();
                    o.sort_unstable();
                    o
                },
                "{place}"
            );
            assert_eq!(found.paths, read.paths, "{place}");
            for file in &files[1..] {
                // What was the owner's own stays; the rest is a hole.
                let (left, was) = (content(&after, file), content(&before, file));
                assert_eq!(left.len(), was.len(), "{place}, {file}");
                let own = if args == BLOCKS { 1024 } else { was.len() };
                assert!(left[..own].iter().all(|byte| *byte == 0), "{place}, {file}");
                assert!(left[own..] == was[own..], "{place}, {file}");
            }
        }
    }
}

/// Blocks of the volume itself, of a directory and of attributes keep their owner, whatever its number is.
#[test]
fn structures_come_before_data() {
    for args in [EXTENTS, UNSEALED, BLOCKS] {
        for what in ["inode table", "bitmap", "superblock's backup", "directory", "attributes"] {
            let case = match Case::filled(args, "16M") {
                Ok(case) => case,
                Err(reason) => skip!("repair duplicates::structures_come_before_data", reason),
            };
            let value = "v".repeat(600);
            case.change(&[&format!("ea_set f7 user.large {value}")]);
            let stat = debugfs(&case.image, &["stat f7"]).unwrap();
            let acl = stat.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
            let dump = hectare_oracle::dumpe2fs(&case.image).unwrap();
            let table = debugfs(&case.image, &["imap <12>"]).unwrap();
            let table = table
                .split("located at block ")
                .nth(1)
                .unwrap()
                .split([',', ' ', '\n'])
                .next()
                .unwrap()
                .to_owned();
            assert!(dump.number("Block count") > 8193);
            let block = match what {
                "inode table" => table,
                "bitmap" => {
                    let heading = debugfs(&case.image, &["stats"]).unwrap();
                    let at = heading.split("block bitmap at ").nth(1).unwrap();
                    at.split([',', ' ', '\n']).next().unwrap().to_owned()
                }
                "superblock's backup" => "8193".to_owned(),
                "directory" => case.block_of("d3").to_string(),
                _ => acl,
            };
            case.change(&[&format!("sif f9 block[{}] {block}", first_word(args))]);
            let (place, damaged) = (format!("{args:?}, {what}"), case.bytes());
            let read = survey(&damaged);
            for duplicates in [Duplicates::Clone, Duplicates::Delete] {
                let (done, after) = repaired(&case, duplicates, &place);
                let found = survey(&after);
                assert_eq!(found.paths, read.paths, "{place}, {duplicates:?}: {:?}", done.mends);
                // Only that file may hold something else: a copy of what changes, or a hole.
                assert!(found.lacks(&read).len() <= 1, "{place}, {duplicates:?}: {:?}", found.lacks(&read));
                assert_eq!(done.loses(), duplicates == Duplicates::Delete, "{place}: {:?}", done.mends);
                let has_value = debugfs_value(&case, &after);
                assert_eq!(has_value, value, "{place}, {duplicates:?}");
            }
            assert_eq!(survey(&case.e2fsck().1).paths, read.paths, "{place}: e2fsck");
        }
    }
}

/// The large attribute of f7.
fn debugfs_value(case: &Case, bytes: &[u8]) -> String {
    let image = case.folder.path().join("attribute");
    std::fs::write(&image, bytes).unwrap();
    let said = debugfs(&image, &["ea_get -V f7 user.large"]).unwrap();
    said.lines().last().unwrap_or_default().trim().trim_matches('"').to_owned()
}

/// A block of a map that two files have: the other gets a map of its own, and copies of what it names.
#[test]
fn a_map_of_two_owners_is_made_for_each() {
    for args in [EXTENTS, UNSEALED, BLOCKS] {
        let case = match Case::filled(args, "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair duplicates::a_map_of_two_owners", reason),
        };
        let word = if args == BLOCKS {
            12
        } else {
            // Holes make an extent tree with a node.
            let holes: Vec<String> = (0..12)
                .flat_map(|i| ["f38", "f39"].map(|file| format!("punch {file} {0} {0}", i * 4 + 1)))
                .collect();
            case.change(&holes.iter().map(String::as_str).collect::<Vec<_>>());
            4
        };
        let node = word_of(&case, "f38", word);
        assert!(node > 0 && node != word_of(&case, "f39", word), "{args:?}: node {node}");
        let field = if args == BLOCKS { "IND" } else { "4" };
        case.change(&[&format!("sif f39 block[{field}] {node}")]);
        assert!(word_of(&case, "f39", word) == node);
        let place = format!("{args:?}");
        let paths = case.survey().paths;
        let (done, after) = repaired(&case, Duplicates::Clone, &place);
        assert!(!done.loses(), "{place}: {:?}", done.mends);
        assert_eq!(survey(&after).paths, paths, "{place}");
        // Both now hold what the node names: the same, up to the length of the shorter.
        let (one, other) = (content(&after, "f38"), content(&after, "f39"));
        let from = if args == BLOCKS { 12 * 1024 } else { 0 };
        let to = one.len() / 1024 * 1024;
        assert!(one[from..to] == other[from..to], "{place}");
        if args != EXTENTS {
            // A node with a checksum of another inode is given up by e2fsck, and kept here.
            assert_eq!(survey(&case.e2fsck().1), survey(&after), "{place}: e2fsck");
        }
        let (done, after) = repaired(&case, Duplicates::Delete, &place);
        assert!(done.loses(), "{place}: {:?}", done.mends);
        assert_eq!(survey(&after).paths, paths, "{place}");
    }
}

/// A word of an inode's map.
fn word_of(case: &Case, file: &str, word: usize) -> u32 {
    let dump = debugfs(&case.image, &[&format!("idump {file}")]).unwrap();
    let bytes: Vec<u8> = dump
        .lines()
        .filter_map(|line| line.split_once("  "))
        .flat_map(|(_, rest)| rest.split("  ").next().unwrap_or_default().split_whitespace())
        .flat_map(|four| [&four[..2], &four[2..]].map(|two| u8::from_str_radix(two, 16).unwrap_or(0)))
        .collect();
    let at = 0x28 + word * 4;
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Without space for copies the later owner gets a hole, and that is a loss.
#[test]
fn without_space_for_copies_the_first_owner_keeps_its_blocks() {
    for args in [EXTENTS, BLOCKS] {
        let case = match Case::filled(args, "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair duplicates::without_space_for_copies", reason),
        };
        let (filler, free) =
            (case.folder.path().join("filler"), hectare_oracle::dumpe2fs(&case.image).unwrap());
        // All but what the map of the filler takes, and a few.
        let len = (free.number("Free blocks") - 80) * 1024;
        std::fs::write(&filler, vec![9; usize::try_from(len).unwrap()]).unwrap();
        case.change(&[&format!("write {} filler", filler.display())]);
        let left = hectare_oracle::dumpe2fs(&case.image).unwrap().number("Free blocks");
        let name = |nr: u64| format!("small{nr}");
        std::fs::write(&filler, [8; 1024]).unwrap();
        let smalls: Vec<String> = (0..left.saturating_sub(2))
            .map(|nr| format!("write {} {}", filler.display(), name(nr)))
            .collect();
        case.change(&smalls.iter().map(String::as_str).collect::<Vec<_>>());
        let shared = case.block_of("f38");
        case.change(&[&format!("sif f39 block[{}] {shared}", first_word(args))]);
        // The blocks that f39 had are in use for nothing: e2fsck and a repair would find them free.
        let place = format!("{args:?}");
        let read = case.survey();
        let (_, after) = repaired(&case, Duplicates::Clone, &place);
        let found = survey(&after);
        assert_eq!(found.paths, read.paths, "{place}");
        assert!(found.lacks(&read).len() <= 1, "{place}");
    }
}
