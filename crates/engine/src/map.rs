//! The map of a file: looks blocks up, maps new space, unmaps.
//!
//! The tree itself is [`hectare_ext4::extent`]'s; this module supplies its nodes ([`MapRef`], [`MapMut`]: the
//! block cache, inside a transaction) and its space ([`crate::space`]). Data space follows *reserve -> write
//! -> publish*: [`Volume::reserve_for`] reserves space in memory, the caller writes the data there, and
//! [`MapMut::publish`] maps it and makes it used, in one transaction.
//!
//! With `bigalloc` space comes in clusters, but a map counts blocks: a cluster is freed only with its last
//! mapped block.

use crate::error::{Error, Result};
use crate::space::{Piece, cluster_sectors};
use crate::stores::block_cache::Kind;
use crate::stores::fs_errors::Watched;
use crate::truncate::STEP_REVOKES;
use crate::volume::{Shared, Volume};
use hectare_alloc::Run;
use hectare_ext4::error::Place;
use hectare_ext4::extent::{self, Extent, Mapping, Progress, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite};
use hectare_ext4::indirect;
use hectare_ext4::inode::{Inode, InodeFlags, Kind as FileKind};
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, ClusterNr, Clusters, InodeNr, LogicalBlock, low32};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Extents that one call unmaps where the caller gives no limit.
const REMOVE_STEP: usize = 8;

/// Metadata blocks that mapping one extent may dirty: a split on every level, twice (an unwritten extent
/// split in three), the inode, and slack.
pub(crate) const MAP_CREDITS: u32 = 32;

/// The map of an inode, for lookups.
pub(crate) struct MapRef<'a> {
    pub(crate) volume: &'a Shared,
    pub(crate) nr: InodeNr,
    pub(crate) inode: &'a Inode,
}

impl MapRef<'_> {
    fn node_kind(&self) -> Kind {
        node_kind(self.volume, self.nr, self.inode)
    }

    /// What a file block is mapped to, whichever kind of map the inode has.
    pub(crate) fn lookup(&self, at: LogicalBlock) -> Result<Mapping> {
        let mapping = if self.inode.flags.contains(InodeFlags::EXTENTS) {
            extent::lookup(self, at)
        } else {
            indirect::lookup(&self.inode.block, &self.geometry(), at, |nr| self.table(nr))
        };
        mapping.watched(&self.volume.findings)
    }

    /// Visits every extent from a file block on, whichever kind of map the inode has.
    pub(crate) fn for_each(
        &self,
        from: LogicalBlock,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let visited = if self.inode.flags.contains(InodeFlags::EXTENTS) {
            extent::for_each(self, from, visit)
        } else {
            indirect::for_each(&self.inode.block, &self.geometry(), from, |nr| self.table(nr), visit)
        };
        visited.watched(&self.volume.findings)
    }

    fn table(&self, nr: BlockNr) -> Result<Arc<[u8]>> {
        Ok(self.volume.blocks.load(nr, Kind::Plain, Place::Inode(self.nr))?.bytes())
    }

    /// The first extent that maps any block from `from` to before `end`.
    pub(crate) fn first_in(&self, from: u64, end: u64) -> Result<Option<Extent>> {
        let mut at = from;
        while at < end {
            match self.lookup(LogicalBlock::new(low32(at)))? {
                Mapping::Mapped(extent) => return Ok(Some(extent)),
                Mapping::Hole { next: Some(next) } if u64::from(next.get()) > at => at = next.get().into(),
                Mapping::Hole { .. } => break,
            }
        }
        Ok(None)
    }
}

fn node_kind(volume: &Shared, nr: InodeNr, inode: &Inode) -> Kind {
    Kind::ExtentNode { geometry: TreeGeometry::of(volume.geometry(), nr), seed: inode.seed(nr, &volume.sb) }
}

impl TreeRead for MapRef<'_> {
    type Error = Error;
    type Node = Arc<[u8]>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.inode.block
    }

    fn node(&self, nr: BlockNr) -> Result<Arc<[u8]>> {
        Ok(self.volume.blocks.load_with(nr, || self.node_kind(), Place::Block(nr))?.bytes())
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.volume.geometry(), self.nr)
    }
}

/// The map of an inode, for changes inside a transaction.
pub(crate) struct MapMut<'a, 'h> {
    pub(crate) volume: &'a Volume,
    pub(crate) handle: &'a mut Handle<'h>,
    pub(crate) nr: InodeNr,
    pub(crate) inode: &'a mut Inode,
}

impl MapMut<'_, '_> {
    fn as_ref(&self) -> MapRef<'_> {
        MapRef { volume: self.volume, nr: self.nr, inode: self.inode }
    }

    /// Maps a piece and makes its space used, extent by extent; returns how many blocks that were. They are
    /// fewer than the piece has if the tree found no block to grow by; the space of the others is then
    /// returned.
    ///
    /// # Errors
    /// As [`extent::insert`]. What was mapped before is used; [`Error::NoSpace`] means that nothing was.
    pub(crate) fn publish(&mut self, piece: Piece, unwritten: bool) -> Result<u32> {
        let (Extent { logical, len, physical, .. }, mut space) = piece.into_parts();
        let mut done = 0;
        while done < len {
            let at = physical + Blocks::new(done.into());
            let step = self.mapped_at_once(at, len - done, unwritten);
            let next = LogicalBlock::new(logical.get().wrapping_add(done));
            match extent::insert(self, Extent { logical: next, len: step, physical: at, unwritten }) {
                Err(Error::NoSpace) if done > 0 => break,
                inserted => inserted?,
            }
            // At once, and not when all is mapped: what the map names must be in use, whatever follows.
            if let Some(space) = &mut space {
                let last = at + Blocks::new(u64::from(step - 1));
                let geometry = self.volume.geometry();
                let clusters = geometry.cluster_of(last) - geometry.cluster_of(at) + Clusters::ONE;
                self.inode.sectors += cluster_sectors(self.volume, clusters);
                space.publish_front(clusters, self.handle);
            }
            done += step;
        }
        Ok(done)
    }

    /// How many of `len` blocks from `at` on one extent takes: all, or what an extent holds to the end of a
    /// cluster.
    fn mapped_at_once(&self, at: BlockNr, len: u32, unwritten: bool) -> u32 {
        let max = Extent::len_max(unwritten);
        if len <= max {
            return len;
        }
        let geometry = self.volume.geometry();
        let end = geometry.cluster_start(geometry.cluster_of(at + Blocks::new(max.into())));
        low32((end - at).get())
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
        self.unmap_some(from, to_exclusive, limit).watched(&self.volume.findings)
    }

    fn unmap_some(&mut self, from: LogicalBlock, to_exclusive: u64, limit: usize) -> Result<Progress> {
        let mut runs: Vec<(BlockNr, u32, LogicalBlock)> = Vec::new();
        // Blocks of names are in the cache and in the log.
        let names = self.inode.kind() != Some(FileKind::File);
        let first = if names { self.first_of_names(from, to_exclusive)? } else { from };
        let mut progress =
            extent::remove(self, first, to_exclusive, limit, &mut |physical, len, logical| {
                runs.push((physical, len, logical));
            })?;
        if first > from {
            progress = Progress::More;
        }
        let journalled = self.volume.journals_data(self.inode);
        for (first, len, _) in &runs {
            if names {
                (0..u64::from(*len)).for_each(|step| self.volume.forget_metadata(*first + Blocks::new(step)));
            } else if journalled {
                self.volume.forget_data(*first, *len);
            }
        }
        for run in self.free_runs(&runs)? {
            self.inode.sectors = self.inode.sectors.saturating_sub(cluster_sectors(self.volume, run.len));
            self.volume.allocator.free(run, self.handle)?;
        }
        Ok(progress)
    }

    /// The block from which to unmap directory or symlink blocks, each of which is revoked: a few long
    /// extents would be more than a transaction holds. Such files are unmapped to their end.
    fn first_of_names(&self, from: LogicalBlock, to_exclusive: u64) -> Result<LogicalBlock> {
        let Some(log) = &self.volume.log else { return Ok(from) };
        let end = extent::last(self)?.map_or(0, |last| last.end());
        if end > to_exclusive {
            return Ok(from);
        }
        let first = low32(end.saturating_sub(log.revokes_in(STEP_REVOKES)));
        Ok(from.max(LogicalBlock::new(first)))
    }

    /// The clusters that no longer hold any mapped block, after `runs` were unmapped.
    fn free_runs(&self, runs: &[(BlockNr, u32, LogicalBlock)]) -> Result<Vec<Run>> {
        let geometry = self.volume.geometry();
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
        TreeGeometry::of(self.volume.geometry(), self.nr)
    }
}

impl TreeWrite for MapMut<'_, '_> {
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut self.inode.block)
    }

    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let block = self.volume.blocks.load_with(nr, || self.as_ref().node_kind(), Place::Block(nr))?;
        Ok(self.volume.blocks.edit_as_is(self.handle, &block, change))
    }

    fn allocate(&mut self, goal: BlockNr) -> Result<BlockNr> {
        let (nr, sectors) = self.volume.allocate_node(self.handle, self.nr, goal)?;
        self.inode.sectors += sectors;
        let kind = node_kind(self.volume, self.nr, self.inode);
        let block = self.volume.blocks.fresh(nr, kind);
        self.volume.blocks.edit(self.handle, &block, kind, |_| ());
        Ok(nr)
    }

    fn free(&mut self, nr: BlockNr) -> Result<()> {
        let sectors = self.volume.free_metadata(self.handle, nr)?;
        self.inode.sectors = self.inode.sectors.saturating_sub(sectors);
        Ok(())
    }
}
