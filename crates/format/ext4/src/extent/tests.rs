//! A store of nodes in memory, and a check of whole trees that shares no code with what it checks.

mod hostile;
mod model;
mod oracle;
mod scale;

use super::{
    Extent, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite, check_block, empty_root, for_each, for_each_node,
};
use crate::error::Corrupt;
use hectare_units::{BlockNr, BlockSize, Blocks, InodeNr, LogicalBlock};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    #[error("no space")]
    NoSpace,
    #[error("no node {0}")]
    Missing(u64),
}

/// Nodes in memory. `node_len` may be less than a block: small nodes make deep trees of few extents.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) root: [u8; ROOT_LEN],
    pub(crate) nodes: BTreeMap<u64, Rc<Vec<u8>>>,
    pub(crate) node_len: usize,
    /// Nodes that can still be allocated.
    pub(crate) budget: usize,
    /// Whether loaded nodes are verified, as a real store does.
    pub(crate) verifies: bool,
    pub(crate) reads: Cell<usize>,
    next: u64,
    geometry: TreeGeometry,
}

impl Store {
    pub(crate) fn new(node_len: usize) -> Self {
        Self {
            root: empty_root(),
            nodes: BTreeMap::new(),
            node_len,
            budget: usize::MAX,
            verifies: true,
            reads: Cell::new(0),
            next: 1 << 41, // so that the high half of block numbers matters
            geometry: TreeGeometry {
                block_size: BlockSize::KIB1,
                first_data_block: BlockNr::new(1),
                blocks_count: Blocks::new(1 << 42),
                inode: InodeNr::new(12),
            },
        }
    }

    pub(crate) fn extents(&self) -> Vec<Extent> {
        let mut all = Vec::new();
        for_each(self, LogicalBlock::ZERO, &mut |extent| {
            all.push(extent);
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    }
}

impl TreeRead for Store {
    type Error = StoreError;
    type Node = Rcd;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.root
    }

    fn node(&self, nr: BlockNr) -> Result<Rcd, StoreError> {
        self.reads.set(self.reads.get() + 1);
        let bytes = self.nodes.get(&nr.get()).ok_or(StoreError::Missing(nr.get()))?;
        if self.verifies {
            check_block(bytes, nr, &self.geometry, None)?;
        }
        Ok(Rcd(bytes.clone()))
    }

    fn geometry(&self) -> TreeGeometry {
        self.geometry
    }
}

/// A held node.
pub(crate) struct Rcd(Rc<Vec<u8>>);

impl std::ops::Deref for Rcd {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl TreeWrite for Store {
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut self.root)
    }

    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, StoreError> {
        let bytes = self.nodes.get_mut(&nr.get()).ok_or(StoreError::Missing(nr.get()))?;
        assert_eq!(Rc::strong_count(bytes), 1, "a node is held while it is changed");
        Ok(change(Rc::get_mut(bytes).expect("not held")))
    }

    fn allocate(&mut self, _goal: BlockNr) -> Result<BlockNr, StoreError> {
        self.budget = self.budget.checked_sub(1).ok_or(StoreError::NoSpace)?;
        self.next += 1;
        self.nodes.insert(self.next, Rc::new(vec![0; self.node_len]));
        Ok(BlockNr::new(self.next))
    }

    fn free(&mut self, nr: BlockNr) -> Result<(), StoreError> {
        self.nodes.remove(&nr.get()).map(drop).ok_or(StoreError::Missing(nr.get()))
    }
}

pub(crate) fn extent(logical: u32, len: u32, physical: u64, unwritten: bool) -> Extent {
    Extent { logical: LogicalBlock::new(logical), len, physical: BlockNr::new(physical), unwritten }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Checks every invariant of the tree, and returns its extents.
pub(crate) fn check(store: &Store) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut seen = BTreeSet::new();
    check_node(store, &store.root, usize::from(u16_at(&store.root, 6)), None, &mut extents, &mut seen);
    assert_eq!(seen, store.nodes.keys().copied().collect(), "nodes reachable and nodes allocated");
    for pair in extents.windows(2) {
        assert!(pair[0].end() <= u64::from(pair[1].logical.get()), "{pair:?} overlap");
    }
    let mut listed = BTreeSet::new();
    for_each_node(store, &mut |nr, _| {
        assert!(listed.insert(nr.get()), "a node is listed twice");
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(listed, seen);
    store.reads.set(0);
    assert_eq!(store.extents(), extents);
    assert_eq!(store.reads.get(), store.nodes.len(), "each node is read once");
    extents
}

fn check_node(
    store: &Store,
    bytes: &[u8],
    depth: usize,
    first: Option<u32>,
    extents: &mut Vec<Extent>,
    seen: &mut BTreeSet<u64>,
) {
    let (entries, max) = (usize::from(u16_at(bytes, 2)), usize::from(u16_at(bytes, 4)));
    assert_eq!(u16_at(bytes, 0), 0xf30a);
    assert_eq!(usize::from(u16_at(bytes, 6)), depth);
    assert_eq!(max, (bytes.len() - 12) / 12);
    assert!(entries <= max);
    assert!(entries > 0 || (first.is_none() && depth == 0), "only a root without children may be empty");
    if let Some(first) = first {
        assert_eq!(u32_at(bytes, 12), first, "a parent's key is its child's first key");
    } else if depth > 0 && entries == 1 {
        let child =
            &store.nodes[&u64::from(u32_at(bytes, 16)).wrapping_add(u64::from(u16_at(bytes, 20)) << 32)];
        assert!(u16_at(child, 2) > 4, "the root could hold its only child's entries");
    }
    let before = extents.len();
    for i in 0..entries {
        let at = 12 + 12 * i;
        let key = u32_at(bytes, at);
        if depth > 0 {
            let nr = u64::from(u32_at(bytes, at + 4)) | u64::from(u16_at(bytes, at + 8)) << 32;
            assert!(seen.insert(nr), "node {nr} is reached twice");
            check_node(store, &store.nodes[&nr], depth - 1, Some(key), extents, seen);
        } else {
            let stored = u32::from(u16_at(bytes, at + 4));
            let physical = u64::from(u32_at(bytes, at + 8)) | u64::from(u16_at(bytes, at + 6)) << 32;
            let len = if stored > 32768 { stored - 32768 } else { stored };
            assert!(len > 0);
            extents.push(extent(key, len, physical, stored > 32768));
        }
    }
    for pair in extents[before..].windows(2) {
        assert!(depth > 0 || !pair[0].joins(&pair[1]), "{pair:?} could be one");
    }
}
