//! The placement of inodes: directories spread or stay together, files lie by their directory, and every
//! search finds the last inode.

use crate::common::{InMemory, close_clean, format_bytes, in_memory_with, open_image};
use hectare_engine::{Creation, Error, NewNode, OpenOptions, Timestamp};
use hectare_oracle::skip;
use hectare_units::{GroupNr, InodeNr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

const ROOT: InodeNr = InodeNr::ROOT;
const FLEX: u32 = 4;

/// 64 groups of 1 MiB in 16 flex groups, 64 inodes in each group.
const SMALL_GROUPS: (&[&str], &str) = (
    &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal", "-g", "1024", "-G", "4", "-N", "4096"],
    "64M",
);

fn seeded(seed: u64) -> OpenOptions {
    let fixed_time = Some(Timestamp { seconds: 1_700_000_000, nanoseconds: 0 });
    OpenOptions { seed: Some(seed), fixed_time, ..OpenOptions::default() }
}

fn small_groups(seed: u64) -> Result<InMemory, hectare_oracle::Skip> {
    let (args, size) = SMALL_GROUPS;
    Ok(in_memory_with(&format_bytes(args, size)?, seeded(seed)).unwrap())
}

fn group(held: &InMemory, nr: InodeNr) -> u32 {
    held.volume.superblock().geometry().inode_slot(nr).unwrap().0.get()
}

fn flex(held: &InMemory, nr: InodeNr) -> u32 {
    group(held, nr) / FLEX
}

fn make(held: &InMemory, parent: InodeNr, name: &str, node: NewNode<'_>) -> InodeNr {
    held.volume.create(parent, name.as_bytes(), node, Creation::default()).unwrap()
}

#[test]
fn directories_under_the_root_spread_over_flex_groups() {
    let held = match small_groups(1) {
        Ok(held) => held,
        Err(reason) => skip!("inodes::directories_under_the_root", reason),
    };
    let geometry = held.volume.superblock().geometry();
    // Flex groups that hold a backup of the superblock have less room than the average, and are passed over.
    let (poorer, others): (BTreeSet<u32>, BTreeSet<u32>) = (0..geometry.groups() / FLEX)
        .partition(|flex| (flex * FLEX..(flex + 1) * FLEX).any(|nr| geometry.has_super(GroupNr::new(nr))));
    assert!(!poorer.is_empty() && others.len() > 8, "{poorer:?} {others:?}");
    let mut places = BTreeMap::<u32, u32>::new();
    for n in 0..4 * others.len() {
        let nr = make(&held, ROOT, &format!("dir-{n}"), NewNode::Directory);
        *places.entry(flex(&held, nr)).or_default() += 1;
    }
    assert_eq!(places.keys().copied().collect::<BTreeSet<_>>(), others);
    assert!(places.values().all(|dirs| (3..=5).contains(dirs)), "{places:?}");
    close_clean(&held);
}

#[test]
fn a_tree_stays_together_and_moves_on_when_its_flex_group_is_full() {
    let held = match small_groups(2) {
        Ok(held) => held,
        Err(reason) => skip!("inodes::a_tree_stays_together", reason),
    };
    let top = make(&held, ROOT, "top", NewNode::Directory);
    let home = flex(&held, top);
    // A flex group takes 16 directories more than the average; here it has one of them.
    let near: Vec<u32> =
        (0..15).map(|n| flex(&held, make(&held, top, &format!("near-{n}"), NewNode::Directory))).collect();
    assert!(near.iter().all(|place| *place == home), "{home}: {near:?}");
    let far: BTreeSet<u32> =
        (0..32).map(|n| flex(&held, make(&held, top, &format!("far-{n}"), NewNode::Directory))).collect();
    assert!(far.len() <= 4, "they gather in as few flex groups as will do: {far:?}");
    assert!(far.iter().any(|place| *place != home), "{far:?}");
    close_clean(&held);
}

#[test]
fn a_directory_marked_as_the_top_of_trees_spreads_what_is_made_in_it() {
    let name = "inodes::a_directory_marked_as_the_top_of_trees";
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let (args, size) = SMALL_GROUPS;
    if let Err(reason) = hectare_oracle::mke2fs(args, &image, size) {
        skip!(name, reason);
    }
    let volume = open_image(&image);
    volume.create_dir("homes", Creation::default()).unwrap();
    volume.close().unwrap();
    drop(volume);
    // EXT4_TOPDIR_FL beside the extents flag, as `chattr +T` sets it.
    if let Err(reason) = hectare_oracle::debugfs_write(&image, &["set_inode_field /homes flags 0xa0000"]) {
        skip!(name, reason);
    }
    let volume = open_image(&image);
    let per_flex = volume.superblock().geometry().inodes_per_group * FLEX;
    let places: BTreeSet<u32> = (0..10)
        .map(|n| volume.create_dir(format!("homes/{n}"), Creation::default()).unwrap())
        .map(|nr| (nr.get() - 1) / per_flex)
        .collect();
    assert!(places.len() >= 8, "{places:?}");
    volume.close().unwrap();
    hectare_oracle::assert_clean(&image).unwrap();
}

#[test]
fn files_sit_in_the_group_of_their_directory_in_ascending_order() {
    let held = match small_groups(3) {
        Ok(held) => held,
        Err(reason) => skip!("inodes::files_sit_in_the_group", reason),
    };
    for n in 0..8 {
        let dir = make(&held, ROOT, &format!("dir-{n}"), NewNode::Directory);
        let home = group(&held, dir);
        let files: Vec<InodeNr> =
            (0..40).map(|n| make(&held, dir, &format!("file-{n}"), NewNode::File)).collect();
        assert!(files.iter().all(|nr| group(&held, *nr) == home), "{home}: {files:?}");
        assert!(files.windows(2).all(|pair| pair[0].get() + 1 == pair[1].get()), "{files:?}");
    }
    // The rest goes elsewhere within the flex group, and then beyond it, still in order.
    let dir = make(&held, ROOT, "big", NewNode::Directory);
    let files: Vec<InodeNr> =
        (0..600).map(|n| make(&held, dir, &format!("file-{n}"), NewNode::File)).collect();
    let inside = files.iter().filter(|nr| flex(&held, **nr) == flex(&held, dir)).count();
    assert!((150..300).contains(&inside), "{inside}");
    let jumps = files.windows(2).filter(|pair| pair[0].get() + 1 != pair[1].get()).count();
    assert!(jumps <= 600 / 64 + 12, "{jumps} jumps");
    // A freed number is the next one to be given out.
    let freed = files[3];
    held.volume.unlink(dir, b"file-3").unwrap();
    assert_eq!(make(&held, dir, "again", NewNode::File), freed);
    close_clean(&held);
}

#[test]
fn the_same_seed_gives_the_same_volume() {
    let build = |bytes: &[u8], seed| {
        let held = in_memory_with(bytes, seeded(seed)).unwrap();
        for n in 0..20 {
            let dir = make(&held, ROOT, &format!("dir-{n}"), NewNode::Directory);
            make(&held, dir, "file", NewNode::File);
            make(&held, dir, "dir", NewNode::Directory);
        }
        held.volume.close().unwrap();
        held.device.to_vec()
    };
    let (args, size) = SMALL_GROUPS;
    let bytes = match format_bytes(args, size) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("inodes::the_same_seed", reason),
    };
    let first = build(&bytes, 7);
    assert!(first == build(&bytes, 7));
    assert!(first != build(&bytes, 8));
}

#[test]
fn eight_threads_take_every_inode_there_is() {
    let flexed: &[&str] = &["-O", "^has_journal", "-G", "4"];
    for more in [flexed, &["-O", "^has_journal,^flex_bg"]] {
        let args = [&["-t", "ext4", "-b", "1024", "-m", "0", "-g", "1024", "-N", "2048"], more].concat();
        let held = match format_bytes(&args, "32M") {
            Ok(bytes) => in_memory_with(&bytes, seeded(4)).unwrap(),
            Err(reason) => skip!("inodes::eight_threads", reason),
        };
        let before = held.volume.statfs().unwrap().free_inodes;
        let dirs: Vec<InodeNr> =
            (0..8).map(|n| make(&held, ROOT, &format!("dir-{n}"), NewNode::Directory)).collect();
        let first = make(&held, dirs[3], "first", NewNode::File);
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for (thread, dir) in dirs.iter().enumerate() {
                let (held, made) = (&held, &made);
                scope.spawn(move || {
                    for n in 0.. {
                        let node = if n % 16 == 5 { NewNode::Directory } else { NewNode::File };
                        let name = format!("{thread}-{n}");
                        match held.volume.create(*dir, name.as_bytes(), node, Creation::default()) {
                            Ok(_) => made.fetch_add(1, Ordering::Relaxed),
                            Err(Error::NoInodes) => break,
                            Err(other) => panic!("{name}: {other}"),
                        };
                    }
                });
            }
        });
        assert_eq!(made.into_inner() + 9, before);
        assert_eq!(held.volume.statfs().unwrap().free_inodes, 0);
        // One freed anywhere is found again.
        held.volume.unlink(dirs[3], b"first").unwrap();
        assert_eq!(make(&held, dirs[6], "last", NewNode::File), first);
        let more = held.volume.create(dirs[0], b"more", NewNode::Directory, Creation::default());
        assert!(matches!(more, Err(Error::NoInodes)), "{more:?}");
        close_clean(&held);
    }
}
