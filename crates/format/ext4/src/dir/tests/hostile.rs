//! Hostile bytes: an error or an answer, never a panic, never an endless loop.

use super::super::*;
use super::store::*;
use crate::checksum::Seed;
use hectare_units::LogicalBlock;
use proptest::prelude::*;
use proptest::sample::Index;
use std::ops::ControlFlow;

/// Does everything there is to do to a directory, whatever comes of it.
fn exercise(store: &VecStore, format: &Format) {
    let seed = Some(Seed::stored(7));
    for (i, block) in store.blocks.iter().enumerate() {
        let at = LogicalBlock::new(i.try_into().unwrap());
        let Some(block) = block else { continue };
        _ = verify_block(block, format, seed, at, store.indexed, store.place(at));
        let mut block = block.to_vec();
        if set_checksum(&mut block, format, seed, at, store.indexed, store.place(at)).is_ok() {
            verify_block(&block, format, seed, at, store.indexed, store.place(at)).unwrap();
        }
        _ = leaf::remove(&mut block, format, store.place(at), 24);
        _ = leaf::insert(&mut block, format, store.place(at), &entry(b"leaf", 12));
        _ = leaf::set_target(&mut block, format, store.place(at), u32::MAX, OWN, FileType::Fifo);
    }
    _ = is_empty(store, format);
    for cookie in [0, 1, 3, 5000, 1 << 40, 1 << 62, u64::MAX] {
        let mut left = 100_000;
        _ = read_dir(store, format, Cookie::new(cookie), &mut |entry| {
            assert!(Name::new(entry.name).is_some());
            left -= 1;
            assert!(left > 0, "more entries than the directory has room for");
            ControlFlow::Continue(())
        });
    }
    let mut store = store.clone();
    store.capacity = store.blocks.len() + 40;
    for i in 0..60 {
        let bytes = format!("name {i}");
        _ = lookup(&store, format, name(bytes.as_bytes()));
        _ = replace(&mut store, format, name(bytes.as_bytes()), OWN, FileType::Socket);
        if i % 3 == 0 {
            _ = remove(&mut store, format, name(bytes.as_bytes()));
        }
        let long = format!("{i:0220}");
        insert_or_refuse(&mut store, format, &entry(long.as_bytes(), 12));
    }
}

/// What is wrong must be found before the inode that the name leads to is made: by the search.
fn insert_or_refuse(store: &mut VecStore, format: &Format, entry: &Entry<'_>) {
    if let Ok(Search::Absent(spot)) = search(store, format, entry.name) {
        let inserted = insert_at(store, format, spot, entry);
        let is_full = store.blocks.len() >= store.capacity;
        assert!(inserted.is_ok() || is_full, "{inserted:?}");
    }
}

fn grown(format: &Format, names: u32) -> VecStore {
    let mut store = VecStore::new(format);
    for i in 0..names {
        let bytes = format!("name {i} {}", "x".repeat(i as usize % 90));
        _ = insert(&mut store, format, &entry(bytes.as_bytes(), 12)).unwrap();
    }
    store
}

proptest! {
    #![proptest_config(crate::testing::cases("dir::hostile", 200))]

    #[test]
    fn damaged_directories_do_no_harm(
        checksums: bool,
        large: bool,
        names in prop_oneof![0..40u32, 200..400u32, 2500..3000u32],
        pokes in prop::collection::vec((any::<Index>(), 0..72usize, any::<u8>(), any::<bool>()), 1..12),
        tables in prop::collection::vec((any::<Index>(), 0..60usize, any::<Index>()), 0..40),
        hole in prop::option::of(any::<Index>()),
    ) {
        let format = format(1024, checksums, large);
        let mut store = grown(&format, names);
        let count = store.blocks.len();
        for (block, at, value, in_head) in pokes {
            let block = if in_head { 0 } else { block.index(count) };
            store.edit(LogicalBlock::new(block.try_into().unwrap()), |block| block[at] = value).unwrap();
        }
        // Index entries that lead somewhere else, also back up.
        for (block, entry, child) in tables {
            let block = block.index(count.min(4));
            let child = u32::try_from(child.index(count.min(40))).unwrap();
            let at = if block == 0 { 36 } else { 12 } + entry * 8;
            store.edit(LogicalBlock::new(block.try_into().unwrap()), |block| {
                block[at..at + 4].copy_from_slice(&child.to_le_bytes());
            }).unwrap();
        }
        if let Some(hole) = hole {
            store.blocks[hole.index(count)] = None;
        }
        exercise(&store, &format);
    }

    #[test]
    fn random_bytes_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 3072),
        zeroed in 0..3072usize,
        flags: [bool; 4],
    ) {
        let mut bytes = bytes;
        bytes[..zeroed].fill(0);
        let [checksums, large, indexed, index] = flags;
        let format = Format { index, ..format(1024, checksums, large) };
        exercise(&VecStore::from_bytes(&bytes, &format, indexed), &format);
    }
}

#[test]
fn a_directory_without_blocks_is_refused() {
    let format = format(1024, true, true);
    let store = VecStore { blocks: Vec::new(), indexed: false, block_size: 1024, capacity: 10 };
    exercise(&store, &format);
    assert!(insert(&mut store.clone(), &format, &entry(b"name", 12)).is_err());
    exercise(&VecStore { indexed: true, ..store }, &format);
}

/// The inode was made first, and the directory's only block then turned out to be a hole.
#[test]
fn regression_a_list_that_can_not_become_an_index_is_refused_by_the_search() {
    let format = format(1024, false, true);
    let wanted = name(b"name");
    let mut store = VecStore::new(&format);
    store.blocks[0] = None;
    assert!(search(&store, &format, wanted).is_err());
    // Full, and without its dots.
    let mut store = VecStore::new(&format);
    while store.blocks.len() == 1 {
        let before = store.clone();
        let long = format!("{:0200}", before.blocks[0].as_ref().unwrap().iter().filter(|b| **b != 0).count());
        _ = insert(&mut store, &format, &entry(long.as_bytes(), 12)).unwrap();
        if store.blocks.len() > 1 {
            store = before;
            break;
        }
    }
    let long = "x".repeat(200);
    assert!(search(&store, &format, name(long.as_bytes())).is_ok());
    store.edit(LogicalBlock::ZERO, |block| block[8] = b'-').unwrap();
    assert!(search(&store, &format, name(long.as_bytes())).is_err());
}

#[test]
fn an_index_that_names_one_leaf_over_and_over_ends() {
    let format = format(1024, false, true);
    let mut store = grown(&format, 3000);
    let leaf = store.blocks[0].as_ref().unwrap()[36..40].to_vec();
    store
        .edit(LogicalBlock::ZERO, |block| {
            for at in (36..1020).step_by(8) {
                block[at..at + 4].copy_from_slice(&leaf);
                block[at - 4..at].copy_from_slice(&[1, 0, 0, 0]);
            }
            block[32..36].copy_from_slice(&[124, 0, 124, 0]);
            block[30] = 0;
        })
        .unwrap();
    exercise(&store, &format);
    assert!(read_dir(&store, &format, Cookie::START, &mut |_| ControlFlow::Continue(())).is_err());
}

#[test]
fn every_damaged_byte_is_noticed_by_the_checksum() {
    let format = format(1024, true, false);
    let seed = Some(Seed::stored(0x1234));
    let store = grown(&format, 3000);
    let bytes = store.sealed(&format, seed);
    let node = bytes.chunks(1024).position(|block| block[..8] == [0, 0, 0, 0, 0, 4, 0, 0]).expect("a node");
    let root_used = 32 + 8 * usize::from(u16::from_le_bytes([bytes[34], bytes[35]]));
    for (i, len) in [(0, root_used), (1, 1024), (node, 24)] {
        for at in 0..len {
            let mut block = bytes[i * 1024..][..1024].to_vec();
            block[at] ^= 0x10;
            let logical = LogicalBlock::new(i.try_into().unwrap());
            let verified = verify_block(&block, &format, seed, logical, true, store.place(logical));
            assert!(verified.is_err(), "byte {at} of block {i}");
        }
    }
}
