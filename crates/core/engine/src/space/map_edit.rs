//! Changes the map of a file: maps new space, unmaps and frees.
//!
//! The map itself is [`hectare_ext4::map`]'s; this module supplies its nodes (the block cache, inside a
//! transaction) and its space. Data space follows *reserve -> write -> publish*:
//! [`crate::space::reserve::reserve_for`] reserves space in memory, the caller writes the data there, and
//! [`MapMut::publish`] maps it and makes it used, in one transaction.
//!
//! With `bigalloc` space comes in clusters, but a map counts blocks: a cluster is freed only with its last
//! mapped block.

use crate::error::{Error, Result};
use crate::space::map::{MapRef, node_kind};
use crate::space::piece::{Piece, cluster_sectors};
use crate::space::reserve;
use crate::state::Core;
use crate::stores::fs_errors::Watched;
use hectare_alloc::{Reservation, Run};
use hectare_ext4::error::Place;
use hectare_ext4::extent::{self, Extent, Progress, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite};
use hectare_ext4::inode::{Inode, Kind as FileKind};
use hectare_ext4::map::MapKind;
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, ClusterNr, Clusters, InodeNr, LogicalBlock, low32};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Extents that one call unmaps where the caller gives no limit.
const REMOVE_STEP: usize = 8;

/// Metadata blocks that mapping one extent may dirty: a split on every level, twice (an unwritten extent
/// split in three), the inode, and slack.
pub(crate) const MAP_CREDITS: u32 = 32;

/// The map of an inode, for changes inside a transaction.
pub(crate) struct MapMut<'a, 'h> {
    pub(crate) core: &'a Core,
    pub(crate) handle: &'a mut Handle<'h>,
    pub(crate) nr: InodeNr,
    pub(crate) inode: &'a mut Inode,
}

impl MapMut<'_, '_> {
    fn kind(&self) -> MapKind {
        MapKind::of(self.inode.flags)
    }

    fn as_ref(&self) -> MapRef<'_> {
        MapRef { state: &self.core.state, nr: self.nr, inode: self.inode }
    }

    /// Maps a piece and makes its space used, extent by extent; returns how many blocks that were. They are
    /// fewer than the piece has if the tree found no block to grow by; the space of the others is then
    /// returned.
    ///
    /// # Errors
    /// As [`MapKind::insert`]. What was mapped before is used; [`Error::NoSpace`] means that nothing was.
    pub(crate) fn publish(&mut self, piece: Piece, unwritten: bool) -> Result<u32> {
        let (Extent { logical, len, physical, .. }, mut space, quota) = piece.into_parts();
        if let Some(claim) = quota {
            claim.settle(self.nr);
        }
        let mut done = 0;
        while done < len {
            let at = physical + Blocks::new(done.into());
            let next = LogicalBlock::new(logical.get().wrapping_add(done));
            let step = self.mapped_at_once(next, at, len - done, unwritten);
            match self.kind().insert(self, Extent { logical: next, len: step, physical: at, unwritten }) {
                Err(Error::NoSpace) if done > 0 => break,
                inserted => inserted?,
            }
            // At once, and not when all is mapped: what the map names must be in use, whatever follows.
            if let Some(space) = &mut space {
                let last = at + Blocks::new(u64::from(step - 1));
                let geometry = self.core.state.geometry();
                let clusters = geometry.cluster_of(last) - geometry.cluster_of(at) + Clusters::ONE;
                self.inode.sectors += cluster_sectors(&self.core.state, clusters);
                space.publish_front(clusters, self.handle);
            }
            done += step;
        }
        Ok(done)
    }

    /// How many of `len` blocks from `at` on, for file block `next`, one insert takes: all, or what it can
    /// take to the end of a cluster.
    fn mapped_at_once(&self, next: LogicalBlock, at: BlockNr, len: u32, unwritten: bool) -> u32 {
        let max = self.kind().insert_max(next, unwritten, self.core.state.geometry().block_size);
        if len <= max {
            return len;
        }
        let geometry = self.core.state.geometry();
        let end = geometry.cluster_start(geometry.cluster_of(at + Blocks::new(max.into())));
        low32((end - at).get())
    }

    /// Makes what is mapped from `from` to before `end` unwritten, or written, as [`extent::mark`].
    pub(crate) fn mark(&mut self, from: LogicalBlock, end: u64, unwritten: bool) -> Result<()> {
        extent::mark(self, from, end, unwritten)
    }

    /// Maps the blocks of an extent to new space of their number, and frees the old, without any other
    /// change of the map; false, and nothing has changed, where the map can't be changed so
    /// ([`MapKind::repoint`]). Not on volumes with clusters, and not for journalled content.
    pub(crate) fn repoint(&mut self, old: Extent, space: &mut Reservation) -> Result<bool> {
        let geometry = self.core.state.geometry();
        let to = geometry.cluster_start(space.run().start);
        let len = Clusters::new(old.len.into());
        if geometry.cluster_ratio_shift > 0 || space.len() != len {
            return Ok(false);
        }
        if !self.kind().repoint(self, old, to).watched(&self.core.state.findings)? {
            return Ok(false);
        }
        space.publish_front(len, self.handle);
        let run = Run::new(self.core.state.geometry().cluster_of(old.physical), len);
        self.core.state.allocator.free(run, self.handle)?;
        Ok(true)
    }

    /// Unmaps up to a step's worth of extents from a range and frees their space.
    pub(crate) fn remove(&mut self, from: LogicalBlock, to_exclusive: u64) -> Result<Progress> {
        self.remove_some(from, to_exclusive, REMOVE_STEP)
    }

    /// Unmaps up to `limit` extents from the end of a range and frees their space.
    pub(crate) fn remove_some(
        &mut self,
        from: LogicalBlock,
        to_exclusive: u64,
        limit: usize,
    ) -> Result<Progress> {
        self.unmap_some(from, to_exclusive, limit).watched(&self.core.state.findings)
    }

    fn unmap_some(&mut self, from: LogicalBlock, to_exclusive: u64, limit: usize) -> Result<Progress> {
        let mut runs: Vec<(BlockNr, u32, LogicalBlock)> = Vec::new();
        // Blocks of names are in the cache and in the log.
        let names = self.inode.kind() != Some(FileKind::File);
        let first = if names { self.first_of_names(from, to_exclusive)? } else { from };
        let mut progress =
            self.kind().remove(self, first, to_exclusive, limit, &mut |physical, len, logical| {
                runs.push((physical, len, logical));
            })?;
        if first > from {
            progress = Progress::More;
        }
        let journalled = self.core.state.journals_data(self.inode);
        for (first, len, _) in &runs {
            if names {
                (0..u64::from(*len))
                    .for_each(|step| self.core.state.forget_metadata(*first + Blocks::new(step)));
            } else if journalled {
                self.core.state.forget_data(*first, *len);
            }
        }
        for run in self.free_runs(&runs)? {
            self.inode.sectors =
                self.inode.sectors.saturating_sub(cluster_sectors(&self.core.state, run.len));
            self.core.state.allocator.free(run, self.handle)?;
        }
        Ok(progress)
    }

    /// The block from which to unmap directory or symlink blocks, each of which is revoked: a few long
    /// extents would be more than a transaction holds. Such files are unmapped to their end.
    fn first_of_names(&self, from: LogicalBlock, to_exclusive: u64) -> Result<LogicalBlock> {
        let Some(log) = &self.core.state.log else { return Ok(from) };
        let end = self.kind().last(self)?.map_or(0, |last| last.end());
        if end > to_exclusive {
            return Ok(from);
        }
        let first = low32(end.saturating_sub(log.revokes_in(STEP_REVOKES)));
        Ok(from.max(LogicalBlock::new(first)))
    }

    /// The clusters that no longer hold any mapped block, after `runs` were unmapped.
    fn free_runs(&self, runs: &[(BlockNr, u32, LogicalBlock)]) -> Result<Vec<Run>> {
        let geometry = self.core.state.geometry();
        if geometry.cluster_ratio_shift == 0 {
            return Ok(runs
                .iter()
                .map(|(physical, len, _)| {
                    Run::new(geometry.cluster_of(*physical), Clusters::new((*len).into()))
                })
                .collect());
        }
        let shift = geometry.cluster_ratio_shift;
        let mut touched: BTreeMap<ClusterNr, u64> = BTreeMap::new();
        for (physical, len, logical) in runs {
            let last = *physical + Blocks::new(u64::from(len - 1));
            let (first, last) = (geometry.cluster_of(*physical), geometry.cluster_of(last));
            let file_cluster = u64::from(logical.get() >> shift);
            for step in 0..=(last - first).get() {
                touched.insert(first + Clusters::new(step), file_cluster + step);
            }
        }
        let mut free = Vec::new();
        for (cluster, file_cluster) in touched {
            let start = file_cluster << shift;
            if self.as_ref().first_in(start, start + (1 << shift))?.is_none() {
                free.push(Run::new(cluster, Clusters::ONE));
            }
        }
        Ok(free)
    }
}

impl TreeRead for MapMut<'_, '_> {
    type Error = Error;
    type Node = Arc<[u8]>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.inode.block
    }

    fn node(&self, nr: BlockNr) -> Result<Arc<[u8]>> {
        self.as_ref().node(nr)
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.core.state.geometry(), self.nr)
    }
}

impl TreeWrite for MapMut<'_, '_> {
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut self.inode.block)
    }

    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let block = self.core.state.blocks.load_with(nr, || self.as_ref().node_kind(), Place::Block(nr))?;
        Ok(self.core.state.blocks.edit_as_is(self.handle, &block, change))
    }

    fn allocate(&mut self, goal: BlockNr) -> Result<BlockNr> {
        let (nr, sectors) = reserve::allocate_node(self.core, self.handle, self.nr, goal)?;
        self.inode.sectors += sectors;
        let kind = node_kind(&self.core.state, self.nr, self.inode);
        let block = self.core.state.blocks.fresh(nr, kind);
        self.core.state.blocks.edit(self.handle, &block, kind, |_| ());
        Ok(nr)
    }

    fn free(&mut self, nr: BlockNr) -> Result<()> {
        let sectors = reserve::free_metadata(self.core, self.handle, nr)?;
        self.inode.sectors = self.inode.sectors.saturating_sub(sectors);
        Ok(())
    }
}

/// Blocks of the log that the records of what one step revokes take at most.
pub(crate) const STEP_REVOKES: u32 = 16;

/// Blocks that a change of the inode alone dirties: itself, and slack.
pub(crate) const INODE_CREDITS: u32 = 2;
