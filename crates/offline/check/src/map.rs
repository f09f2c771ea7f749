//! The maps of files: extent trees and indirect blocks, each block of them claimed when it is reached.
//!
//! A node or table that is claimed already is not descended into, so a walk ends whatever cycles the blocks
//! form.

use crate::context::Scan;
use crate::context::claims::FileClusters;
use crate::raw_inode::RawInode;
use crate::report::{Error, What};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::{Child, Extent, Node, TreeGeometry, check_block};
use hectare_ext4::inode::InodeFlags;
use hectare_units::{BlockNr, InodeNr, LogicalBlock, low32};
use std::ops::Range;

/// Room for entries in a root.
const ROOT_MAX: usize = 4;
/// Entries a node may have room for less than fit, for its checksum.
const MAX_SLACK: usize = 2;
/// Numbers of data blocks in an indirect map's root.
const DIRECT: u32 = 12;

/// What a walk over a map has found.
pub(crate) struct Mapped {
    nr: InodeNr,
    generation: u32,
    keep: bool,
    /// The blocks of data and map.
    pub(crate) held: FileClusters,
    /// The file block after the last that is mapped.
    pub(crate) end: u64,
    /// The file block after the last that is mapped and written.
    pub(crate) written_end: u64,
    /// Whether there are unwritten extents.
    pub(crate) unwritten: bool,
    /// Where its extents were kept, if they were.
    pub(crate) runs: Range<usize>,
}

impl Mapped {
    fn add(&mut self, extent: &Extent) {
        self.end = self.end.max(extent.end());
        if extent.unwritten {
            self.unwritten = true;
        } else {
            self.written_end = self.written_end.max(extent.end());
        }
    }
}

impl Scan<'_> {
    /// Walks the map of an ordinary file.
    pub(crate) fn map_file(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<Mapped, Error> {
        self.walk(nr, slot, false, FileClusters { may_share: true, ..FileClusters::default() })
    }

    /// Walks the map of something else; `keep` keeps its extents for later.
    pub(crate) fn map(&mut self, nr: InodeNr, slot: RawInode<'_>, keep: bool) -> Result<Mapped, Error> {
        self.walk(nr, slot, keep, FileClusters::default())
    }

    fn walk(
        &mut self,
        nr: InodeNr,
        slot: RawInode<'_>,
        keep: bool,
        held: FileClusters,
    ) -> Result<Mapped, Error> {
        let (start, generation) = (self.runs.len(), slot.raw.i_generation.get());
        let runs = start..start;
        let mut mapped =
            Mapped { nr, generation, keep, held, end: 0, written_end: 0, unwritten: false, runs };
        if slot.flags().contains(InodeFlags::EXTENTS) {
            self.extent_root(&mut mapped, slot)?;
        } else {
            self.indirect_root(&mut mapped, slot)?;
        }
        mapped.runs.end = self.runs.len();
        Ok(mapped)
    }

    fn broken(&mut self, corrupt: Corrupt) {
        self.tell_corrupt(What::Map, corrupt);
        self.map_is_broken();
    }

    fn extent_root(&mut self, mapped: &mut Mapped, slot: RawInode<'_>) -> Result<(), Error> {
        let tree = self.volume.tree(mapped.nr);
        match Node::root(slot.block(), &tree) {
            Ok(node) => {
                self.check_room(mapped.nr, &node, ROOT_MAX);
                self.extent_node(mapped, &node, &tree)
            }
            Err(corrupt) => {
                self.broken(corrupt);
                Ok(())
            }
        }
    }

    /// A node says how much room it has; that is fixed by its size.
    fn check_room(&mut self, nr: InodeNr, node: &Node<'_>, fits: usize) {
        if node.max() + MAX_SLACK < fits {
            let reason =
                format!("an extent node claims room for {} entries, but has room for {fits}", node.max());
            self.tell(What::Map, Place::Inode(nr), reason);
        }
    }

    /// Recursion is bounded: each child's depth is one less.
    fn extent_node(
        &mut self,
        mapped: &mut Mapped,
        node: &Node<'_>,
        tree: &TreeGeometry,
    ) -> Result<(), Error> {
        for i in 0..node.len() {
            if node.depth() == 0 {
                match node.extent(i) {
                    Ok(extent) => self.extent(mapped, extent),
                    Err(corrupt) => self.broken(corrupt),
                }
                continue;
            }
            match node.child(i) {
                Ok(child) => self.extent_child(mapped, &child, tree)?,
                Err(corrupt) => self.broken(corrupt),
            }
        }
        Ok(())
    }

    fn extent_child(&mut self, mapped: &mut Mapped, child: &Child, tree: &TreeGeometry) -> Result<(), Error> {
        if !self.claim_block(mapped.nr, child.nr, &mut mapped.held) {
            self.map_is_broken();
            return Ok(());
        }
        let mut block = self.buffer();
        self.volume.read(child.nr, &mut block)?;
        let seed = self.volume.sb.seed().map(|seed| seed.inode(mapped.nr, mapped.generation));
        let sound = check_block(&block, child.nr, tree, seed);
        match sound.and_then(|()| Node::block(&block, child, tree)) {
            Ok(node) => {
                self.check_room(mapped.nr, &node, (block.len() - 12) / 12);
                self.extent_node(mapped, &node, tree)?;
            }
            Err(corrupt) => self.broken(corrupt),
        }
        self.give_back(block);
        Ok(())
    }

    fn extent(&mut self, mapped: &mut Mapped, extent: Extent) {
        if extent.end() > u64::from(u32::MAX) {
            // A length of so many blocks can't be counted in 32 bits.
            let reason = "an extent contains file block 4294967295, which no file can have";
            self.tell(What::Map, Place::Inode(mapped.nr), reason);
        }
        self.claim_run(mapped.nr, extent.logical.get(), extent.physical, extent.len, &mut mapped.held);
        mapped.add(&extent);
        if mapped.keep {
            self.runs.push(extent);
        }
    }

    fn indirect_root(&mut self, mapped: &mut Mapped, slot: RawInode<'_>) -> Result<(), Error> {
        let shift = self.volume.geometry().block_size.shift() - 2;
        let mut first = 0;
        for (i, number) in (0u32..).zip(numbers(slot.block())) {
            let level = i.saturating_sub(DIRECT - 1);
            self.branch(mapped, number, level, first)?;
            first += 1u64 << (shift * level);
        }
        Ok(())
    }

    /// One number of an indirect map: the block of data `first`, or, at a higher level, a table. Recursion is
    /// bounded by the three levels.
    fn branch(&mut self, mapped: &mut Mapped, number: u32, level: u32, first: u64) -> Result<(), Error> {
        if number == 0 {
            return Ok(());
        }
        let nr = BlockNr::new(u64::from(number));
        let logical = low32(first.min(u64::from(u32::MAX)));
        if !self.volume.holds(nr.get()) {
            let place = Place::FileBlock(mapped.nr, LogicalBlock::new(logical));
            self.broken(Corrupt::new("map", place, format!("it names block {nr}, outside the volume")));
            return Ok(());
        }
        if level == 0 {
            self.data_block(mapped, nr, logical);
            return Ok(());
        }
        if !self.claim_block(mapped.nr, nr, &mut mapped.held) {
            self.map_is_broken();
            return Ok(());
        }
        let mut table = self.buffer();
        self.volume.read(nr, &mut table)?;
        let below = (self.volume.geometry().block_size.shift() - 2) * (level - 1);
        for (i, number) in (0u64..).zip(numbers(&table)) {
            if number != 0 {
                self.branch(mapped, number, level - 1, first + (i << below))?;
            }
        }
        self.give_back(table);
        Ok(())
    }

    fn data_block(&mut self, mapped: &mut Mapped, physical: BlockNr, at: u32) {
        self.claim_run(mapped.nr, at, physical, 1, &mut mapped.held);
        let extent = Extent { logical: LogicalBlock::new(at), len: 1, physical, unwritten: false };
        mapped.add(&extent);
        if !mapped.keep {
            return;
        }
        let start = mapped.runs.start;
        match self.runs.get_mut(start..).and_then(<[Extent]>::last_mut) {
            Some(run) if run.joins(&extent) => run.len += 1,
            _ => self.runs.push(extent),
        }
    }
}

/// The numbers in a table.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}
