//! Random operations on a tree, compared after each with a map of single blocks.

use super::{Store, StoreError, check, extent};
use crate::extent::{Extent, Mapping, Progress, insert, last, lookup, mark, remove, shift_down, shift_up};
use hectare_units::LogicalBlock;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// File blocks that operations use.
const SPACE: u32 = 400;

#[derive(Clone, Debug)]
enum Op {
    Insert { at: u32, len: u32, unwritten: bool, scattered: bool },
    Append { len: u32, scattered: bool },
    Prepend { len: u32 },
    Remove { at: u32, len: u32, limit: usize },
    Mark { at: u32, len: u32, unwritten: bool },
    Collapse { at: u32, len: u32, leaves: usize },
    Open { at: u32, len: u32, leaves: usize },
    Starve { nodes: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..SPACE;
    prop_oneof![
        6 => (at.clone(), 1..6u32, any::<bool>(), any::<bool>())
            .prop_map(|(at, len, unwritten, scattered)| Op::Insert { at, len, unwritten, scattered }),
        2 => (1..4u32, any::<bool>()).prop_map(|(len, scattered)| Op::Append { len, scattered }),
        2 => (1..4u32).prop_map(|len| Op::Prepend { len }),
        2 => (at.clone(), 1..40u32, 1..8usize).prop_map(|(at, len, limit)| Op::Remove { at, len, limit }),
        2 => (at.clone(), 1..40u32, 1..4usize)
            .prop_map(|(at, len, leaves)| Op::Collapse { at, len, leaves }),
        2 => (at.clone(), 1..20u32, 1..4usize).prop_map(|(at, len, leaves)| Op::Open { at, len, leaves }),
        3 => (at, 1..30u32, any::<bool>()).prop_map(|(at, len, unwritten)| Op::Mark { at, len, unwritten }),
        1 => (0..3usize).prop_map(|nodes| Op::Starve { nodes }),
    ]
}

/// A tree and what it should map.
struct Pair {
    tree: Store,
    blocks: BTreeMap<u32, (u64, bool)>,
    stamp: u64,
}

impl Pair {
    /// Starts with every second block mapped, so that the tree is deep at once.
    fn new(node_len: usize, dense: u32) -> Self {
        let mut pair = Self { tree: Store::new(node_len), blocks: BTreeMap::new(), stamp: 1 << 33 };
        for i in 0..dense {
            pair.insert(1 + 2 * i, 1, false, true);
        }
        pair
    }

    fn insert(&mut self, at: u32, len: u32, unwritten: bool, scattered: bool) {
        self.stamp += 1000;
        let physical = if scattered { self.stamp } else { 1_000_000 + u64::from(at) };
        let taken = self.blocks.range(at..at + len).next().is_some();
        match insert(&mut self.tree, extent(at, len, physical, unwritten)) {
            Ok(()) => assert!(!taken, "an insert over mapped blocks went through"),
            Err(StoreError::NoSpace) => return,
            Err(StoreError::Corrupt(_)) if taken => return,
            Err(error) => panic!("{error}"),
        }
        self.blocks.extend((0..len).map(|i| (at + i, (physical + u64::from(i), unwritten))));
    }

    fn remove(&mut self, at: u32, len: u32, limit: usize) {
        let mut freed = BTreeMap::new();
        loop {
            let mut runs = 0;
            let result = remove(
                &mut self.tree,
                LogicalBlock::new(at),
                u64::from(at + len),
                limit,
                &mut |physical, len, logical| {
                    runs += 1;
                    for i in 0..len {
                        let block = (logical.get() + i, physical.get() + u64::from(i));
                        assert!(freed.insert(block.0, block.1).is_none(), "a block is freed twice");
                    }
                },
            );
            assert!(runs <= limit, "{runs} extents removed, {limit} allowed");
            match result {
                Ok(Progress::Done) => break,
                Ok(Progress::More) => {
                    assert!(runs > 0 || !self.tree.nodes.is_empty(), "a step without progress");
                }
                Err(StoreError::NoSpace) => {
                    assert!(freed.is_empty(), "space ran out after something was freed");
                    return;
                }
                Err(error) => panic!("{error}"),
            }
            check(&self.tree);
        }
        let gone: Vec<u32> = self.blocks.range(at..at + len).map(|(at, _)| *at).collect();
        let expected: BTreeMap<u32, u64> =
            gone.iter().filter_map(|at| self.blocks.remove(at).map(|(block, _)| (*at, block))).collect();
        assert_eq!(freed, expected);
    }

    fn mark(&mut self, at: u32, len: u32, unwritten: bool) {
        match mark(&mut self.tree, LogicalBlock::new(at), u64::from(at + len), unwritten) {
            Ok(()) => self.blocks.range_mut(at..at + len).for_each(|(_, block)| block.1 = unwritten),
            Err(StoreError::NoSpace) => self.adopt_states(at, len, unwritten),
            Err(error) => panic!("{error}"),
        }
    }

    fn collapse(&mut self, at: u32, len: u32, leaves: usize) {
        self.remove(at, len, 5);
        if self.blocks.range(at..at + len).next().is_some() {
            return; // no space for the hole
        }
        let mut next = Some(LogicalBlock::new(at + len));
        while let Some(from) = next {
            next = shift_down(&mut self.tree, from, len, leaves).unwrap();
            check(&self.tree);
            assert!(next.is_none_or(|next| next > from), "a step without progress");
        }
        let moved = self.blocks.split_off(&at);
        self.blocks.extend(moved.into_iter().map(|(at, block)| (at - len, block)));
    }

    fn open(&mut self, at: u32, len: u32, leaves: usize) {
        let mut next = Some(1 << 32);
        while let Some(to) = next {
            next = match shift_up(&mut self.tree, LogicalBlock::new(at), to, len, leaves) {
                Ok(next) => next,
                Err(StoreError::NoSpace) if to == 1 << 32 => return,
                Err(error) => panic!("{error}"),
            };
            // Not what is joined: the two parts that it comes to lie between may wait for a later step.
            for pair in self.tree.extents().windows(2) {
                assert!(pair[0].end() <= u64::from(pair[1].logical.get()), "{pair:?} overlap");
            }
            assert!(next.is_none_or(|next| next < to), "a step without progress");
        }
        check(&self.tree);
        let moved = self.blocks.split_off(&at);
        self.blocks.extend(moved.into_iter().map(|(at, block)| (at + len, block)));
    }

    /// After a mark that ran out of space: a first part of the range has changed, the rest has not.
    fn adopt_states(&mut self, at: u32, len: u32, unwritten: bool) {
        let mut still_changed = true;
        for (block, state) in self.blocks.range_mut(at..at + len) {
            let Mapping::Mapped(found) = lookup(&self.tree, LogicalBlock::new(*block)).unwrap() else {
                panic!("block {block} is lost");
            };
            if found.unwritten != state.1 {
                assert!(still_changed, "block {block} changed after one that did not");
                assert_eq!(found.unwritten, unwritten);
                state.1 = unwritten;
            } else if state.1 != unwritten {
                still_changed = false;
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Insert { at, len, unwritten, scattered } => self.insert(at, len, unwritten, scattered),
            Op::Append { len, scattered } => {
                let end = self.blocks.last_key_value().map_or(0, |(at, _)| at + 1);
                self.insert(end, len, false, scattered);
            }
            Op::Prepend { len } => {
                let first = self.blocks.first_key_value().map_or(SPACE, |(at, _)| *at);
                if first >= len {
                    self.insert(first - len, len, true, true);
                }
            }
            Op::Remove { at, len, limit } => self.remove(at, len, limit),
            Op::Mark { at, len, unwritten } => self.mark(at, len, unwritten),
            Op::Collapse { at, len, leaves } => self.collapse(at, len, leaves),
            Op::Open { at, len, leaves } => self.open(at, len, leaves),
            Op::Starve { nodes } => self.tree.budget = nodes,
        }
        if !matches!(op, Op::Starve { .. }) {
            self.tree.budget = usize::MAX;
        }
    }

    fn compare(&self, joined: bool) {
        let extents = if joined { check(&self.tree) } else { self.tree.extents() };
        let blocks: BTreeMap<u32, (u64, bool)> = extents.iter().flat_map(blocks_of).collect();
        assert_eq!(blocks, self.blocks);
        assert_eq!(last(&self.tree).unwrap(), extents.last().copied());
        for at in 0..SPACE + 10 {
            let next = self.blocks.range(at..).next().map(|(at, _)| LogicalBlock::new(*at));
            match lookup(&self.tree, LogicalBlock::new(at)).unwrap() {
                Mapping::Mapped(found) => {
                    let block = found.block_of(LogicalBlock::new(at)).map(|nr| (nr.get(), found.unwritten));
                    assert_eq!(block.as_ref(), self.blocks.get(&at), "block {at}");
                }
                Mapping::Hole { next: found } => {
                    assert!(!self.blocks.contains_key(&at), "block {at} is lost");
                    assert_eq!(found, next, "after the hole at {at}");
                }
            }
        }
    }
}

fn blocks_of(extent: &Extent) -> Vec<(u32, (u64, bool))> {
    (0..extent.len)
        .map(|i| (extent.logical.get() + i, (extent.physical.get() + u64::from(i), extent.unwritten)))
        .collect()
}

#[test]
fn a_shift_that_has_no_room_changes_nothing() {
    let mut pair = Pair::new(100, 50);
    pair.insert(u32::MAX - 10, 10, false, true);
    let before = pair.tree.clone();
    let from = LogicalBlock::new(7);
    assert!(matches!(shift_up(&mut pair.tree, from, 1 << 32, 1, 9), Err(StoreError::Corrupt(_))));
    for (from, by) in [(7, 2), (7, 8), (8, 1), (0, 1), (1, 2)] {
        let result = shift_down(&mut pair.tree, LogicalBlock::new(from), by, 9);
        assert!(matches!(result, Err(StoreError::Corrupt(_))), "{from} by {by}: {result:?}");
    }
    assert_eq!((pair.tree.root, &pair.tree.nodes), (before.root, &before.nodes));
    drop(before);
    assert_eq!(shift_down(&mut pair.tree, LogicalBlock::new(1), 1, usize::MAX), Ok(None));
    assert_eq!(check(&pair.tree).last().map(Extent::end), Some(u64::from(u32::MAX) - 1));
}

proptest! {
    #![proptest_config(crate::testing::cases("extent::model", 150))]

    #[test]
    fn a_tree_maps_what_a_list_of_blocks_maps(
        node_len in prop_oneof![Just(100usize), Just(148), Just(1024)],
        dense in 0..150u32,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut pair = Pair::new(node_len, dense);
        for (i, op) in ops.iter().enumerate() {
            pair.apply(op);
            let starved = i > 0 && matches!(ops[i - 1], Op::Starve { .. });
            // Running out of space between splitting and marking leaves neighbours that could be one.
            if starved { pair.compare(false); break; }
            pair.compare(true);
        }
        pair.tree.budget = usize::MAX;
        pair.remove(0, SPACE * 10, 5);
        prop_assert_eq!(pair.tree.root, crate::extent::empty_root());
        prop_assert!(pair.tree.nodes.is_empty());
    }
}
