//! The blocks of a file whose map may be damaged: everything that a sound entry names.
//!
//! Both kinds of maps are read with the parsers of the format. What they refuse is left out, with a doubt,
//! and the rest goes on; a node whose checksum is wrong is used if its entries are possible.
//!
//! Invariants: the extents are sorted and don't overlap, lie on the device, and (where the volume does not
//! share blocks on purpose) name each block of it once: the content of a file is never longer than the
//! device. A map reads each of its nodes once, and all maps together no more nodes than a budget, so that
//! maps which share nodes can't multiply.

use crate::volume::Volume;
use hectare_ext4::Place;
use hectare_ext4::checksum::Seed;
use hectare_ext4::error::Corrupt;
use hectare_ext4::extent::{self, Child, Extent, Node, TreeGeometry};
use hectare_ext4::feature::RoCompat;
use hectare_ext4::indirect;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_units::{BlockNr, InodeNr, LogicalBlock, low32};
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

/// Doubts that are named of one map.
const DOUBTS_MAX: usize = 8;

/// The blocks of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    /// In the order of the file.
    pub(crate) extents: Vec<Extent>,
    /// The blocks of the map itself.
    pub(crate) nodes: Vec<BlockNr>,
    pub(crate) doubts: Vec<String>,
    /// Whether nodes were left out since the budget was used up.
    pub(crate) is_cut: bool,
}

impl Mapped {
    fn doubt(&mut self, what: impl Into<String>) {
        if self.doubts.len() < DOUBTS_MAX {
            self.doubts.push(what.into());
        }
    }

    /// Leaves out what lies beyond the end of the device, and what names a block once more.
    fn bound(&mut self, volume: &Volume) {
        let there = volume.blocks_there();
        let mut beyond = 0;
        self.extents.retain_mut(|extent| {
            let inside = there.saturating_sub(extent.physical.get()).min(extent.len.into());
            beyond += u64::from(extent.len) - inside;
            extent.len = low32(inside);
            inside > 0
        });
        if beyond > 0 {
            self.doubt(format!("{beyond} of its blocks lie behind the end of the device and are holes"));
        }
        if volume.sb.features().ro_compat.contains(RoCompat::SHARED_BLOCKS) || self.names_each_once() {
            return;
        }
        // The ends of the runs that are named so far, by their starts.
        let mut named: BTreeMap<u64, u64> = BTreeMap::new();
        let mut again = 0;
        self.extents.retain(|extent| {
            let (start, end) = (extent.physical.get(), extent.physical.get() + u64::from(extent.len));
            let is_new = named.range(..end).next_back().is_none_or(|(_, last)| *last <= start);
            if is_new {
                named.insert(start, end);
            } else {
                again += u64::from(extent.len);
            }
            is_new
        });
        self.doubt(format!(
            "{again} of its blocks are named more than once and are holes where they are again"
        ));
    }

    /// Whether no block of the device is named twice.
    fn names_each_once(&self) -> bool {
        let mut runs: Vec<_> =
            self.extents.iter().map(|extent| (extent.physical.get(), extent.len)).collect();
        runs.sort_unstable();
        runs.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) <= pair[1].0)
    }

    /// Sorts the extents, and cuts those that overlap the one before.
    fn settle(&mut self) {
        self.extents.sort_by_key(|extent| extent.logical);
        let mut end = 0;
        let mut cut = 0;
        let before = std::mem::take(&mut self.extents);
        for extent in before {
            if u64::from(extent.logical.get()) < end {
                cut += 1;
                continue;
            }
            end = extent.end();
            self.extents.push(extent);
        }
        if cut > 0 {
            self.doubt(format!("{cut} of its extents overlap others and are left out"));
        }
    }
}

/// The blocks of an inode's content. `budget` is how many nodes may still be read.
pub(crate) fn map(volume: &Volume, nr: InodeNr, inode: &Inode, budget: &mut u64) -> Mapped {
    map_with(volume, nr, inode, budget, &|nr| volume.block(nr))
}

/// Like [`map`], with the blocks of the map itself from elsewhere.
pub(crate) fn map_with(
    volume: &Volume,
    nr: InodeNr,
    inode: &Inode,
    budget: &mut u64,
    block: &dyn Fn(BlockNr) -> Vec<u8>,
) -> Mapped {
    let mut mapped = Mapped::default();
    if !inode.is_mapped() {
        return mapped;
    }
    let tree = volume.tree(nr);
    if inode.flags.contains(InodeFlags::EXTENTS) {
        let seed = inode.seed(nr, &volume.sb);
        let seen = HashSet::new();
        let mut walk = Walk { block, tree: &tree, seed, mapped: &mut mapped, budget, seen };
        match Node::open_alone(&inode.block, Place::Inode(nr), &tree) {
            Ok(root) => walk.node(&root),
            Err(corrupt) => mapped.doubt(corrupt.reason),
        }
    } else {
        let room = volume.geometry().blocks_count.get();
        indirect_map(block, room, &tree, inode, budget, &mut mapped);
    }
    mapped.settle();
    mapped.bound(volume);
    mapped
}

/// The extents below a node that no inode names, if it is one.
pub(crate) fn of_orphan(volume: &Volume, nr: BlockNr, block: &[u8], budget: &mut u64) -> Option<Mapped> {
    let tree = volume.tree(InodeNr::new(1));
    let root = Node::open_alone(block, Place::Block(nr), &tree).ok()?;
    let strict = (0..root.len()).all(|i| match root.depth() {
        0 => root.extent(i).is_ok(),
        _ => root.child(i).is_ok(),
    });
    let mut mapped = Mapped::default();
    if !strict {
        return None;
    }
    mapped.nodes.push(nr);
    let block = |nr: BlockNr| volume.block(nr);
    let seen = HashSet::from([nr]);
    Walk { block: &block, tree: &tree, seed: None, mapped: &mut mapped, budget, seen }.node(&root);
    mapped.settle();
    mapped.bound(volume);
    Some(mapped)
}

struct Walk<'a> {
    block: &'a dyn Fn(BlockNr) -> Vec<u8>,
    tree: &'a TreeGeometry,
    seed: Option<Seed>,
    mapped: &'a mut Mapped,
    budget: &'a mut u64,
    /// Nodes that were read.
    seen: HashSet<BlockNr>,
}

impl Walk<'_> {
    /// Recursion is bounded: each child's depth is one less.
    fn node(&mut self, node: &Node<'_>) {
        for i in 0..node.len() {
            if node.depth() == 0 {
                let extent = node.extent(i);
                match extent.or_else(|corrupt| node.extent_alone(i).map_err(|_| corrupt)) {
                    Ok(extent) => self.mapped.extents.push(extent),
                    Err(corrupt) => self.mapped.doubt(corrupt.reason),
                }
                continue;
            }
            match node.child(i).or_else(|_| node.child_alone(i)) {
                Ok(child) => self.child(&child),
                Err(corrupt) => self.mapped.doubt(corrupt.reason),
            }
        }
    }

    fn child(&mut self, child: &Child) {
        if !self.seen.insert(child.nr) {
            return self.mapped.doubt(format!("block {} of its map is named more than once", child.nr));
        }
        let Some(left) = self.budget.checked_sub(1) else {
            self.mapped.is_cut = true;
            return self.mapped.doubt("its map is larger than the volume");
        };
        *self.budget = left;
        let mut block = (self.block)(child.nr);
        if let Some(seed) = self.seed
            && let Err(corrupt) = extent::verify_checksum(&block, child.nr, seed)
        {
            let reason = match extent::mend(&mut block, child.nr, seed) {
                true => "one byte was wrong, and is corrected by the checksum".into(),
                false => corrupt.reason,
            };
            self.mapped.doubt(format!("block {} of its map: {reason}", child.nr));
        }
        match self.open(&block, child) {
            Ok(node) => {
                self.mapped.nodes.push(child.nr);
                self.node(&node);
            }
            Err(corrupt) => {
                let (first, end) = (child.first, child.end);
                self.mapped.doubt(format!("blocks {first} to {end} are lost: {corrupt}"));
            }
        }
    }

    fn open<'b>(&self, block: &'b [u8], child: &Child) -> Result<Node<'b>, Corrupt>
    where
        Self: 'b,
    {
        let node = Node::block(block, child, self.tree);
        node.or_else(|corrupt| {
            let alone = Node::open_alone(block, Place::Block(child.nr), self.tree)?;
            // One that claims to be higher could lead in circles.
            if alone.depth() == child.depth { Ok(alone) } else { Err(corrupt) }
        })
    }
}

/// The blocks of an indirect map, `room` at most: numbers outside of the volume count as holes.
fn indirect_map(
    block: &dyn Fn(BlockNr) -> Vec<u8>,
    mut room: u64,
    tree: &TreeGeometry,
    inode: &Inode,
    budget: &mut u64,
    mapped: &mut Mapped,
) {
    let mut root = inode.block;
    let mut wrong = clear_wrong(&mut root, tree);
    let (mut nodes, mut seen) = (Vec::new(), HashSet::new());
    let (mut again, mut is_cut) = (0_u64, false);
    let mut extents = Vec::new();
    let table = |nr: BlockNr| -> Result<Vec<u8>, Corrupt> {
        if !seen.insert(nr) {
            again += 1;
            return Ok(vec![0; tree.block_size.len()]);
        }
        *budget = budget.checked_sub(1).ok_or_else(|| {
            is_cut = true;
            Corrupt::new("indirect map", Place::Inode(tree.inode), "all maps are larger than the volume")
        })?;
        let mut block = block(nr);
        nodes.push(nr);
        wrong += clear_wrong(&mut block, tree);
        Ok(block)
    };
    let walked = indirect::for_each(&root, tree, LogicalBlock::ZERO, table, &mut |extent| {
        let Some(left) = room.checked_sub(extent.len.into()) else { return ControlFlow::Break(()) };
        room = left;
        extents.push(extent);
        ControlFlow::Continue(())
    });
    (mapped.nodes, mapped.extents) = (nodes, extents);
    if let Err(corrupt) = walked {
        mapped.doubt(corrupt.reason);
    }
    mapped.is_cut = is_cut;
    if again > 0 {
        mapped.doubt(format!("{again} tables of its map are named more than once"));
    }
    if wrong > 0 {
        mapped.doubt(format!("{wrong} of its block numbers are outside of the volume"));
    }
}

/// Makes numbers that name no block of the volume into holes, and counts them.
fn clear_wrong(table: &mut [u8], tree: &TreeGeometry) -> u64 {
    let mut wrong = 0;
    for number in table.chunks_exact_mut(4) {
        let value = number.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if value != 0 && !tree.holds(BlockNr::new(value.into()), 1) {
            number.fill(0);
            wrong += 1;
        }
    }
    wrong
}

/// Blocks of content in all.
pub(crate) fn blocks(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len)).sum()
}

/// The extents of a file as bytes of it that hold data: offset and length, in order, none beyond `size`.
pub(crate) fn ranges(extents: &[Extent], shift: u32, size: u64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(extents.len());
    for extent in extents.iter().filter(|extent| !extent.unwritten) {
        let start = u64::from(extent.logical.get()) << shift;
        let end = (extent.end() << shift).min(size);
        match ranges.last_mut() {
            Some((at, len)) if *at + *len == start && end > start => *len += end - start,
            _ if end > start => ranges.push((start, end - start)),
            _ => {}
        }
    }
    ranges
}
