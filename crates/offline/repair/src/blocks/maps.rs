//! Reads the map of a file, whatever it looks like: every entry that can be true is kept, and what can't is
//! named.
//!
//! A map is read the same way each time, from the inode and its blocks alone. A node whose checksum is wrong
//! counts if what it says can be true. Entries out of order are put in order; one that reaches into the next
//! is cut short, since the start of an entry is what its content hangs on.

use crate::error::Error;
use crate::know::map::{Map, numbers};
use crate::know::slot::Slot;
use crate::know::work::Work;
use hectare_ext4::checksum::Seed;
use hectare_ext4::extent::{self, Extent, ROOT_LEN, TreeGeometry, raw};
use hectare_ext4::inode::InodeFlags;
use hectare_units::{BlockNr, LogicalBlock, join32, low32};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// Bytes of a node's header and of an entry.
const HEADER: usize = 12;
const ENTRY: usize = 12;
/// Levels of a tree that are read; the format allows 5, and more can still be made fewer.
const DEPTH_MAX: u16 = 16;
/// Numbers of data blocks in an indirect map's root.
const DIRECT: u32 = 12;

/// What stays the same in a walk.
struct Walk<'a> {
    tree: TreeGeometry,
    seed: Option<Seed>,
    seen: BTreeSet<u64>,
    work: &'a Work<'a>,
    map: Map,
}

impl Work<'_> {
    /// Reads the map of an inode that has one.
    pub(crate) fn read_map(&self, slot: &Slot) -> Result<Map, Error> {
        let seed = self.sb.seed().map(|seed| seed.inode(slot.nr, slot.view().raw.i_generation.get()));
        let tree = self.tree(slot.nr);
        let mut walk = Walk { tree, seed, seen: BTreeSet::new(), work: self, map: Map::default() };
        if slot.has(InodeFlags::EXTENTS) {
            walk.root(&slot.block())?;
        } else {
            walk.indirect(&slot.block())?;
        }
        let mut map = walk.map;
        put_in_order(&mut map);
        Ok(map)
    }
}

impl Walk<'_> {
    fn root(&mut self, root: &[u8; ROOT_LEN]) -> Result<(), Error> {
        let Ok((header, _)) = raw::Header::ref_from_prefix(&root[..]) else { return Ok(()) };
        let depth = header.eh_depth.get();
        let odd = header.eh_magic.get() != raw::MAGIC
            || header.eh_max.get() > 4
            || header.eh_max.get() < 2
            || header.eh_entries.get() > header.eh_max.get();
        if odd {
            self.map.blame(true, "the root of its extent tree has a broken header");
        }
        if depth > DEPTH_MAX {
            self.map.blame(true, format!("its extent tree claims {depth} levels"));
            return Ok(());
        }
        if depth > 0 && header.eh_entries.get() == 0 {
            self.map.blame(false, format!("its extent tree has {depth} levels and no entries"));
        }
        if depth > extent::DEPTH_MAX {
            self.map.blame(false, format!("its extent tree has {depth} levels"));
        }
        if header.eh_magic.get() != raw::MAGIC && header.eh_max.get() != 4 {
            return Ok(());
        }
        self.node(&root[..], depth)
    }

    /// The entries of a node of a depth; recursion ends with the depth.
    fn node(&mut self, bytes: &[u8], depth: u16) -> Result<(), Error> {
        let Ok((header, _)) = raw::Header::ref_from_prefix(bytes) else { return Ok(()) };
        let room = (bytes.len() - HEADER) / ENTRY;
        let count = usize::from(header.eh_entries.get()).min(room);
        for entry in bytes[HEADER..].chunks_exact(ENTRY).take(count) {
            if depth == 0 {
                if let Ok(leaf) = raw::Leaf::ref_from_bytes(entry) {
                    self.leaf(leaf);
                }
            } else if let Ok(index) = raw::Index::ref_from_bytes(entry) {
                self.child(index, depth - 1)?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: &raw::Leaf) {
        let (stored, logical) = (u32::from(leaf.ee_len.get()), leaf.ee_block.get());
        let unwritten = stored > extent::WRITTEN_MAX;
        let len = if unwritten { stored - extent::WRITTEN_MAX } else { stored };
        let physical = join32(leaf.ee_start_lo.get(), u32::from(leaf.ee_start_hi.get()));
        let end = u64::from(logical) + u64::from(len);
        if len == 0 || end > u64::from(u32::MAX) || !self.work.holds(physical) {
            let reason = format!("an extent at file block {logical} of {len} blocks at block {physical}");
            self.map.blame(true, format!("{reason} can't be"));
            return;
        }
        let room = self.work.geometry().blocks_count.get() - physical;
        let kept = u64::from(len).min(room);
        if kept < u64::from(len) {
            self.map.blame(true, format!("an extent at file block {logical} reaches beyond the volume"));
        }
        self.map.extents.push(Extent {
            logical: LogicalBlock::new(logical),
            len: low32(kept),
            physical: BlockNr::new(physical),
            unwritten,
        });
    }

    fn child(&mut self, index: &raw::Index, depth: u16) -> Result<(), Error> {
        let nr = join32(index.ei_leaf_lo.get(), u32::from(index.ei_leaf_hi.get()));
        if !self.enter(nr) {
            return Ok(());
        }
        let block = self.work.block(BlockNr::new(nr))?;
        let Ok((header, _)) = raw::Header::ref_from_prefix(&block[..]) else { return Ok(()) };
        let room = (block.len() - HEADER) / ENTRY;
        let (count, max) = (usize::from(header.eh_entries.get()), usize::from(header.eh_max.get()));
        let (level, other) = (header.eh_depth.get(), header.eh_depth.get() != depth);
        if header.eh_magic.get() != raw::MAGIC || other && !self.fits_as(&block, index.ei_block.get(), depth)
        {
            self.map.blame(true, format!("block {nr} is no node of its extent tree"));
            self.map.foreign.extend(self.map.nodes.pop());
            return Ok(());
        }
        if other {
            self.map.blame(false, format!("the node in block {nr} says level {level}, its parent {depth}"));
        }
        if max > room || max + 2 < room || count > max || count == 0 {
            self.map.blame(true, format!("the node in block {nr} claims {count} of {max} entries"));
        }
        let first =
            block.get(HEADER..HEADER + 4).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b));
        if count > 0 && first != Some(index.ei_block.get()) {
            self.map.blame(false, format!("the node in block {nr} starts elsewhere than its parent says"));
        }
        if let Some(seed) = self.seed
            && let Err(corrupt) = extent::check_block(&block, BlockNr::new(nr), &self.tree, Some(seed))
        {
            self.map.blame(false, corrupt.reason.into_owned());
        }
        self.node(&block, depth)
    }

    /// Whether all entries of a node can be true at the level that its parent says, whatever it says itself:
    /// they begin where the parent says, are in order, and name blocks of the volume.
    fn fits_as(&self, block: &[u8], first: u32, depth: u16) -> bool {
        let Ok((header, entries)) = raw::Header::ref_from_prefix(block) else { return false };
        let (count, max) = (usize::from(header.eh_entries.get()), usize::from(header.eh_max.get()));
        if count == 0 || count > max || max > entries.len() / ENTRY {
            return false;
        }
        let mut next = u64::from(first);
        entries.chunks_exact(ENTRY).take(count).enumerate().all(|(at, entry)| {
            let (logical, len, physical) = if depth == 0 {
                let Ok(leaf) = raw::Leaf::ref_from_bytes(entry) else { return false };
                let stored = u32::from(leaf.ee_len.get());
                let len = if stored > extent::WRITTEN_MAX { stored - extent::WRITTEN_MAX } else { stored };
                let physical = join32(leaf.ee_start_lo.get(), u32::from(leaf.ee_start_hi.get()));
                (leaf.ee_block.get(), len, physical)
            } else {
                let Ok(index) = raw::Index::ref_from_bytes(entry) else { return false };
                let physical = join32(index.ei_leaf_lo.get(), u32::from(index.ei_leaf_hi.get()));
                (index.ei_block.get(), 1, physical)
            };
            let logical = u64::from(logical);
            let in_order = if at == 0 { logical == next } else { logical >= next };
            next = logical + u64::from(len);
            let held = len > 0 && self.work.holds(physical) && self.work.holds(physical + u64::from(len) - 1);
            in_order && held
        })
    }

    /// Notes a block of the map; false if it can't be one.
    fn enter(&mut self, nr: u64) -> bool {
        if !self.work.holds(nr) {
            self.map.blame(true, format!("a block of its map lies at block {nr}"));
            return false;
        }
        if !self.seen.insert(nr) {
            self.map.blame(true, format!("block {nr} is in its map twice"));
            return false;
        }
        self.map.nodes.push(BlockNr::new(nr));
        true
    }

    fn indirect(&mut self, root: &[u8; ROOT_LEN]) -> Result<(), Error> {
        let shift = self.work.geometry().block_size.shift() - 2;
        let mut first = 0;
        for (i, number) in (0u32..).zip(numbers(root)) {
            let level = i.saturating_sub(DIRECT - 1);
            self.branch(number, level, first)?;
            first += 1u64 << (shift * level);
        }
        Ok(())
    }

    /// One number of an indirect map; recursion is bounded by the three levels.
    fn branch(&mut self, number: u32, level: u32, first: u64) -> Result<(), Error> {
        if number == 0 {
            return Ok(());
        }
        let nr = u64::from(number);
        if level == 0 {
            if !self.work.holds(nr) || first > u64::from(u32::MAX) {
                self.map.blame(true, format!("file block {first} lies at block {nr}"));
                return Ok(());
            }
            let logical = LogicalBlock::new(low32(first));
            let next = Extent { logical, len: 1, physical: BlockNr::new(nr), unwritten: false };
            match self.map.extents.last_mut() {
                Some(run) if run.joins(&next) => run.len += 1,
                _ => self.map.extents.push(next),
            }
            return Ok(());
        }
        if !self.enter(nr) {
            return Ok(());
        }
        let table = self.work.block(BlockNr::new(nr))?;
        if self.looks_foreign(&table) {
            self.map.foreign.extend(self.map.nodes.pop());
            self.map.blame(true, format!("the table in block {nr} names blocks that are not on the volume"));
            return Ok(());
        }
        let below = (self.work.geometry().block_size.shift() - 2) * (level - 1);
        for (i, number) in (0u64..).zip(numbers(&table)) {
            self.branch(number, level - 1, first + (i << below))?;
        }
        Ok(())
    }

    /// Whether most numbers of a table can't be blocks: then it is something else.
    fn looks_foreign(&self, table: &[u8]) -> bool {
        let named = numbers(table).filter(|number| *number != 0);
        let (all, bad) = named.fold((0, 0), |(all, bad), number| {
            (all + 1, bad + u32::from(!self.work.holds(u64::from(number))))
        });
        bad > 4 && bad * 2 > all
    }
}

/// Puts extents in order, and cuts what overlaps.
fn put_in_order(map: &mut Map) {
    if !map.extents.is_sorted_by_key(|extent| extent.logical) {
        map.blame(false, "its extents are out of order");
        map.extents.sort_by_key(|extent| extent.logical);
    }
    let mut kept: Vec<Extent> = Vec::with_capacity(map.extents.len());
    for extent in std::mem::take(&mut map.extents) {
        if let Some(last) = kept.last_mut()
            && last.end() > u64::from(extent.logical.get())
        {
            map.blame(true, format!("two extents hold file block {}", extent.logical.get()));
            last.len = extent.logical.get() - last.logical.get();
            if last.len == 0 {
                kept.pop();
            }
        }
        kept.push(extent);
    }
    map.extents = kept;
}
