//! Random changes of an indirect map, compared after each with a map of single blocks; and maps that lie.

use super::{for_each, for_each_table, height, insert, last, lookup, reach, remove, run, size_max};
use crate::error::Corrupt;
use crate::extent::tests::{StoreError, extent};
use crate::extent::{Extent, Mapping, Progress, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite};
use hectare_units::{BlockNr, BlockSize, Blocks, InodeNr, LogicalBlock, low32};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Tables in memory.
struct Store {
    root: [u8; ROOT_LEN],
    tables: BTreeMap<u64, Vec<u8>>,
    budget: usize,
    next: u64,
}

impl Store {
    fn new() -> Self {
        Self { root: [0; ROOT_LEN], tables: BTreeMap::new(), budget: usize::MAX, next: 3_000_000_000 }
    }

    fn extents(&self) -> Vec<Extent> {
        let mut all = Vec::new();
        let table = |nr| self.node(nr);
        for_each(&self.root, &self.geometry(), LogicalBlock::ZERO, table, &mut |extent| {
            all.push(extent);
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    }
}

impl TreeRead for Store {
    type Error = StoreError;
    type Node = Vec<u8>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.root
    }

    fn node(&self, nr: BlockNr) -> Result<Vec<u8>, StoreError> {
        self.tables.get(&nr.get()).cloned().ok_or(StoreError::Missing(nr.get()))
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry {
            block_size: BlockSize::KIB1,
            first_data_block: BlockNr::new(1),
            blocks_count: Blocks::new(1 << 32),
            inode: InodeNr::new(12),
        }
    }
}

impl TreeWrite for Store {
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut self.root)
    }

    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, StoreError> {
        self.tables.get_mut(&nr.get()).map(|bytes| change(bytes)).ok_or(StoreError::Missing(nr.get()))
    }

    fn allocate(&mut self, _goal: BlockNr) -> Result<BlockNr, StoreError> {
        self.budget = self.budget.checked_sub(1).ok_or(StoreError::NoSpace)?;
        self.next += 1;
        self.tables.insert(self.next, vec![0; 1024]);
        Ok(BlockNr::new(self.next))
    }

    fn free(&mut self, nr: BlockNr) -> Result<(), StoreError> {
        self.tables.remove(&nr.get()).map(drop).ok_or(StoreError::Missing(nr.get()))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert { at: u32, len: u32, scattered: bool },
    Remove { at: u32, len: u32, limit: usize },
    Starve { tables: usize },
}

/// Around the places where another level begins, for blocks of 1 KiB.
fn place() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..40u32,
        250..300u32,
        500..800u32,
        65_700..66_200u32,
        65_804 + 65_536 - 20..65_804 + 65_600u32
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (place(), 1..300u32, any::<bool>())
            .prop_map(|(at, len, scattered)| Op::Insert { at, len, scattered }),
        4 => (place(), 1..70_000u32, 1..9usize).prop_map(|(at, len, limit)| Op::Remove { at, len, limit }),
        1 => (0..5usize).prop_map(|tables| Op::Starve { tables }),
    ]
}

struct Pair {
    map: Store,
    blocks: BTreeMap<u32, u64>,
    stamp: u64,
}

impl Pair {
    fn insert(&mut self, mut at: u32, mut len: u32, scattered: bool) {
        self.stamp += 1000;
        let mut physical = if scattered { self.stamp } else { 1_000_000 + u64::from(at) };
        while len > 0 {
            let step = len.min(low32(run(LogicalBlock::new(at), BlockSize::KIB1)));
            let taken = self.blocks.range(at..at + step).next().is_some();
            match insert(&mut self.map, extent(at, step, physical, false)) {
                Ok(()) => assert!(!taken, "an insert over mapped blocks went through"),
                Err(StoreError::NoSpace) => return,
                Err(StoreError::Corrupt(_)) if taken => return,
                Err(error) => panic!("{error}"),
            }
            self.blocks.extend((0..step).map(|i| (at + i, physical + u64::from(i))));
            (at, len, physical) = (at + step, len - step, physical + u64::from(step));
        }
    }

    fn remove(&mut self, at: u32, len: u32, limit: usize) {
        let (from, mut before) = (LogicalBlock::new(at), u64::MAX);
        loop {
            let (blocks, mut runs) = (&mut self.blocks, 0);
            let progress =
                remove(&mut self.map, from, u64::from(at) + u64::from(len), limit, &mut |nr, len, first| {
                    runs += 1;
                    assert!(
                        u64::from(first.get()) + u64::from(len) <= before,
                        "from the end to the beginning"
                    );
                    before = first.get().into();
                    for i in 0..len {
                        let freed = blocks.remove(&(first.get() + i));
                        assert_eq!(freed, Some(nr.get() + u64::from(i)), "what is freed was mapped there");
                    }
                })
                .unwrap();
            assert!(runs <= limit);
            if progress == Progress::Done {
                break;
            }
        }
        assert!(self.blocks.range(at..at + len).next().is_none(), "nothing is left in the range");
    }

    fn check(&self) {
        let read: BTreeMap<u32, u64> = self
            .map
            .extents()
            .iter()
            .flat_map(|e| (0..e.len).map(|i| (e.logical.get() + i, e.physical.get() + u64::from(i))))
            .collect();
        assert_eq!(read, self.blocks);
        let mut tables = BTreeSet::new();
        for_each_table(&self.map, &mut |nr, _| {
            assert!(tables.insert(nr.get()), "a table is named twice");
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(tables, self.map.tables.keys().copied().collect(), "tables named and tables taken");
        assert!(self.map.tables.values().all(|bytes| bytes.iter().any(|byte| *byte != 0)), "none is empty");
        let end = last(&self.map).unwrap().map(|last| {
            assert_eq!(self.blocks[&last.logical.get()], last.physical.get());
            low32(last.end() - 1)
        });
        assert_eq!(end, self.blocks.keys().next_back().copied());
        let needed = end.map_or(0, |end| match end {
            0..12 => 0,
            12..268 => 1,
            268..65_804 => 2,
            _ => 3,
        });
        assert_eq!(height(&self.map.root), needed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn changes_are_those_of_a_map_of_single_blocks(ops in proptest::collection::vec(op(), 1..25)) {
        let mut pair = Pair { map: Store::new(), blocks: BTreeMap::new(), stamp: 1 << 24 };
        for op in ops {
            match op {
                Op::Insert { at, len, scattered } => pair.insert(at, len, scattered),
                Op::Remove { at, len, limit } => pair.remove(at, len, limit),
                Op::Starve { tables } => pair.map.budget = tables,
            }
            pair.check();
        }
        pair.remove(0, u32::MAX, 7);
        pair.check();
        prop_assert!(pair.map.tables.is_empty() && pair.map.root == [0; ROOT_LEN]);
    }
}

#[test]
fn what_no_block_map_holds_is_refused_with_nothing_changed() {
    let mut map = Store::new();
    let cases = [
        (extent(0, 1, 100, true), "unwritten"),
        (extent(5, 8, 100, false), "one table"),
        (extent(0, 1, (1 << 32) - 1, false), ""),
        (extent(0, 2, (1 << 32) - 1, false), "no block map reaches"),
        (extent(0, 1, 1, false), "no block map reaches"),
        (extent(low32(reach(BlockSize::KIB1)), 1, 100, false), "so far"),
    ];
    for (new, word) in cases {
        match insert(&mut map, new) {
            Ok(()) => assert!(word.is_empty(), "{new:?}"),
            Err(error) => assert!(!word.is_empty() && error.to_string().contains(word), "{new:?}: {error}"),
        }
    }
    assert_eq!(map.extents(), [extent(0, 1, (1 << 32) - 1, false)]);
    assert!(map.tables.is_empty());
}

#[test]
fn a_wrong_number_ends_a_step_before_it_and_the_next_one_with_an_error() {
    let mut map = Store::new();
    insert(&mut map, extent(12, 3, 500, false)).unwrap();
    insert(&mut map, extent(12 + 256, 2, 900, false)).unwrap();
    let first = u64::from(u32::from_le_bytes(map.root[48..52].try_into().unwrap()));
    map.tables.get_mut(&first).unwrap()[4..8].copy_from_slice(&1u32.to_le_bytes());
    let mut freed = Vec::new();
    let mut all = |map: &mut Store| {
        remove(map, LogicalBlock::ZERO, 1 << 32, 100, &mut |nr, len, _| freed.push((nr.get(), len)))
    };
    assert_eq!(all(&mut map), Ok(Progress::More));
    let error = all(&mut map).unwrap_err().to_string();
    assert!(error.contains("indirect map") && error.contains("inode 12"), "{error}");
    assert_eq!(freed, [(900, 2)]);
    assert_eq!(map.tables.len(), 1, "the broken table stays");
}

#[test]
fn empty_tables_of_other_writers_are_freed() {
    let mut map = Store::new();
    insert(&mut map, extent(300, 1, 500, false)).unwrap();
    let leaf = *map.tables.keys().next_back().unwrap();
    map.tables.get_mut(&leaf).unwrap().fill(0);
    assert_eq!(last(&map), Ok(None));
    assert_eq!(remove(&mut map, LogicalBlock::ZERO, 1 << 32, 1, &mut |_, _, _| panic!()), Ok(Progress::Done));
    assert!(map.tables.is_empty() && map.root == [0; ROOT_LEN]);
}

#[test]
fn a_map_that_names_itself_ends_with_an_error() {
    let mut map = Store::new();
    let nr = map.allocate(BlockNr::new(5)).unwrap().get();
    let bytes: Vec<u8> = low32(nr).to_le_bytes().repeat(256);
    map.tables.insert(nr, bytes);
    map.root[56..60].copy_from_slice(&low32(nr).to_le_bytes());
    let mapping = lookup(&map.root, &map.geometry(), LogicalBlock::new(1 << 20), |nr| map.node(nr)).unwrap();
    assert!(matches!(mapping, Mapping::Mapped(_)));
    // The table is freed the first time, and missing then.
    let mut steps = 0;
    while remove(&mut map, LogicalBlock::ZERO, 1 << 32, 100, &mut |_, _, _| ()).is_ok() {
        steps += 1;
        assert!(steps < 1000);
    }
}

#[test]
fn a_file_is_as_long_as_its_map_and_its_count_of_sectors_allow() {
    assert_eq!(size_max(BlockSize::KIB1), (12 + 256 + 65_536 + 16_777_216) << 10);
    // 4 KiB: less than 2 TiB, for the sectors. Below them 12, 1024 and 1024^2 blocks have 1 + 1025 tables, and the
    // other 535,821,299 have 1 + 511 + 523,263: the kernel counts so, too.
    assert_eq!(size_max(BlockSize::KIB4), ((u64::from(u32::MAX) >> 3) - 524_801) << 12);
    let _: fn(Corrupt) -> StoreError = StoreError::from;
}

/// The tables that such a map could have are more than the blocks that an inode can count.
#[test]
fn regression_files_with_maps_of_large_blocks_have_a_length() {
    for shift in 15..=16 {
        let size = BlockSize::from_shift(shift).unwrap();
        let blocks = size_max(size) >> shift;
        let counted = u64::from(u32::MAX) >> (shift - 9);
        let tables = super::tables_of(blocks, size);
        assert!(blocks + tables <= counted && counted - blocks - tables <= 1, "{blocks} and {tables}");
    }
}
