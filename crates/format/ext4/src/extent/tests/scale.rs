//! Large trees, limits, and running out of space at every possible moment.

use super::{Store, StoreError, check, extent};
use crate::checksum::Seed;
use crate::extent::{
    Extent, Mapping, Progress, build, empty_root, init_root, insert, lookup, mark, remove, tree_blocks,
    verify_checksum,
};
use hectare_units::{BlockNr, BlockSize, LogicalBlock, u64_of};
use std::rc::Rc;

const MANY: u32 = 50_000;

fn scattered(i: u32) -> Extent {
    extent(2 * i, 1, 1000 + 3 * u64::from(i), false)
}

fn grown(order: impl Iterator<Item = u32>) -> Store {
    let mut store = Store::new(1024);
    store.verifies = false; // checking all entries on each of a million reads is what a store's cache is for
    order.for_each(|i| insert(&mut store, scattered(i)).unwrap());
    store.verifies = true;
    assert_eq!(check(&store), (0..MANY).map(scattered).collect::<Vec<_>>());
    store
}

fn node_count(store: &Store) -> u64 {
    u64_of(store.nodes.len())
}

#[test]
fn a_file_written_in_order_or_backwards_has_full_nodes() {
    let least = tree_blocks(MANY as usize, BlockSize::KIB1).get();
    assert_eq!(node_count(&grown(0..MANY)), least);
    let backwards = node_count(&grown((0..MANY).rev()));
    assert!(backwards <= least + 200, "{backwards} nodes, {least} would do");
}

#[test]
fn a_file_written_at_random_has_nodes_that_are_more_than_half_full_and_is_removed_in_steps() {
    let mut store = grown((0..MANY).map(|i| i * 7919 % MANY));
    let least = tree_blocks(MANY as usize, BlockSize::KIB1).get();
    assert!(node_count(&store) < 2 * least);
    let (mut steps, mut freed) = (0, 0);
    store.verifies = false;
    while remove(&mut store, LogicalBlock::ZERO, 1 << 32, 100, &mut |_, len, _| freed += len).unwrap()
        == Progress::More
    {
        steps += 1;
        if steps % 100 == 0 {
            check(&store);
        }
    }
    assert_eq!(freed, MANY);
    assert!(steps >= MANY / 100 - 1, "{steps} steps of 100");
    assert_eq!(store.root, empty_root());
    assert!(store.nodes.is_empty());
}

#[test]
fn what_is_built_is_what_would_have_grown() {
    for count in [0, 1, 4, 5, 84, 85, 336, 337, 28_224, 28_225, MANY] {
        let extents: Vec<Extent> = (0..count).map(scattered).collect();
        let seed = Seed::stored(7);
        let mut next = 1u64 << 40;
        let built = build(&extents, BlockSize::KIB1, Some(seed), &mut || {
            next += 1;
            BlockNr::new(next)
        });
        assert_eq!(u64_of(built.nodes.len()), tree_blocks(extents.len(), BlockSize::KIB1).get(), "{count}");
        let mut store = Store::new(1024);
        store.root = built.root;
        for (nr, bytes) in built.nodes {
            verify_checksum(&bytes, nr, seed).unwrap();
            store.nodes.insert(nr.get(), Rc::new(bytes));
        }
        assert_eq!(check(&store), extents, "{count}");
        // And it keeps growing.
        insert(&mut store, scattered(count)).unwrap();
        check(&store);
    }
}

#[test]
fn a_tree_that_runs_out_of_space_keeps_what_it_had() {
    // Full at every level: the next insert in the middle takes a node per level and one for the root.
    let mut full = Store::new(100);
    let mut i = 0;
    while full.root[6] < 3 || full.root[2] < 4 || node_count(&full) < 4 + 28 + 196 {
        insert(&mut full, extent(3 * i, 1, 5000 + 7 * u64::from(i), false)).unwrap();
        i += 1;
    }
    while !full.nodes.values().all(|node| node[2] == node[4]) {
        insert(&mut full, extent(3 * i, 1, 5000 + 7 * u64::from(i), false)).unwrap();
        i += 1;
    }
    let before = check(&full);
    for budget in 0..4 {
        let mut store = full.clone();
        store.nodes.values_mut().for_each(|node| *node = Rc::new(node.to_vec()));
        store.budget = budget;
        assert_eq!(insert(&mut store, extent(301, 1, 9, false)), Err(StoreError::NoSpace), "budget {budget}");
        assert_eq!(check(&store), before, "budget {budget}");
    }
    full.nodes.values_mut().for_each(|node| *node = Rc::new(node.to_vec()));
    full.budget = 4;
    insert(&mut full, extent(301, 1, 9, false)).unwrap();
    assert_eq!(check(&full).len(), before.len() + 1);
}

#[test]
fn a_hole_inside_an_extent_needs_space_before_anything_is_freed() {
    let mut store = Store::new(1024);
    for i in 0..4 {
        insert(&mut store, extent(200 * i, 100, 10_000 * u64::from(i + 1), false)).unwrap();
    }
    let before = check(&store);
    store.budget = 0;
    let nothing = &mut |_: BlockNr, _, _| panic!("something was freed");
    assert_eq!(remove(&mut store, LogicalBlock::new(210), 220, 9, nothing), Err(StoreError::NoSpace));
    assert_eq!(mark(&mut store, LogicalBlock::new(210), 220, true), Err(StoreError::NoSpace));
    assert_eq!(check(&store), before);
    store.budget = 1;
    let mut freed = Vec::new();
    let done =
        remove(&mut store, LogicalBlock::new(210), 220, 9, &mut |nr, len, at| freed.push((nr, len, at)));
    assert_eq!(done, Ok(Progress::Done));
    assert_eq!(freed, [(BlockNr::new(20_010), 10, LogicalBlock::new(210))]);
    assert_eq!(check(&store).len(), 5);
}

#[test]
fn extents_keep_the_limits_of_their_state() {
    let mut store = Store::new(1024);
    insert(&mut store, extent(0, 32768, 1000, false)).unwrap();
    insert(&mut store, extent(32768, 32768, 1000 + 32768, false)).unwrap();
    assert_eq!(store.extents().len(), 2, "two of the greatest length don't join");
    mark(&mut store, LogicalBlock::ZERO, 65536, true).unwrap();
    let extents = store.extents();
    assert!(extents.iter().all(|extent| extent.unwritten && extent.len <= 32767), "{extents:?}");
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u32>(), 65536);
    mark(&mut store, LogicalBlock::ZERO, 65536, false).unwrap();
    assert!(store.extents().iter().all(|extent| !extent.unwritten));
    for (extent, why) in [
        (extent(100_000, 0, 5000, false), "empty"),
        (extent(100_000, 32769, 5000, false), "too long"),
        (extent(100_000, 32768, 5000, true), "too long unwritten"),
        (extent(u32::MAX, 1, 5000, false), "the last block"),
        (extent(100_000, 1, 1, false), "the superblock"),
        (extent(100_000, 2, (1 << 42) - 1, false), "beyond the volume"),
        (extent(100_000, 1, u64::MAX, false), "beyond all"),
        (extent(65535, 2, 5000, false), "mapped already"),
    ] {
        assert!(matches!(insert(&mut store, extent), Err(StoreError::Corrupt(_))), "{why}");
    }
    // A gap whose filling would join both neighbours, but not in one extent.
    insert(&mut store, extent(200_000, 20_000, 500_000, false)).unwrap();
    insert(&mut store, extent(230_000, 20_000, 530_000, false)).unwrap();
    insert(&mut store, extent(220_000, 10_000, 520_000, false)).unwrap();
    let last_two = [extent(200_000, 30_000, 500_000, false), extent(230_000, 20_000, 530_000, false)];
    assert!(store.extents().ends_with(&last_two));
    insert(&mut store, extent(u32::MAX - 1, 1, 5000, false)).unwrap();
    assert_eq!(lookup(&store, LogicalBlock::new(u32::MAX)), Ok(Mapping::Hole { next: None }));
}

#[test]
fn writing_over_preallocated_space_in_order_takes_no_nodes() {
    let mut store = Store::new(1024);
    for i in 0..4 {
        insert(&mut store, extent(100 * i, 50, 10_000 * u64::from(i + 1), true)).unwrap();
        mark(&mut store, LogicalBlock::new(100 * i), u64::from(100 * i) + 1, false).unwrap();
    }
    let nodes = store.nodes.len();
    store.budget = 0;
    for at in 1..50 {
        mark(&mut store, LogicalBlock::new(100 + at), u64::from(100 + at) + 1, false).unwrap();
        check(&store);
    }
    for at in (1..50).rev() {
        mark(&mut store, LogicalBlock::new(100 + at), 150, true).unwrap();
    }
    assert_eq!(store.nodes.len(), nodes);
}

#[test]
fn a_root_is_made_in_place() {
    let mut root = [0xff; 60];
    init_root(&mut root);
    assert_eq!(root[..12], [0x0a, 0xf3, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    assert!(root[12..].iter().all(|byte| *byte == 0));
}
