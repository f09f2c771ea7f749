//! Decides which file owns which space after fast commits.
//!
//! Records give the maps of files, file by file. In between, a block may be in two maps (one file gave it up,
//! another got it, and the other's record comes first) or in none, so nothing is freed before the end. Then
//! everything that any changed file had, was given by a record, or took for its tree, and that none of them
//! has any more, is free. Directories are changed as usual, and free their space themselves.
//!
//! Hazard: a record may name space of another owner. Only what was free before counts as the record's, so
//! that the other's space does not become free in the end.

use crate::data::truncate;
use crate::error::{Error, Result};
use crate::open::recover::fast::map::FastMap;
use crate::open::recover::fast::runs::RunSet;
use crate::open::recover::fast::{Replay, corrupt};
use crate::space::map::MapRef;
use crate::space::map_edit::MapMut;
use crate::space::piece::cluster_sectors;
use crate::stores::inode_cache::CachedInode;
use hectare_alloc::Run;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_journal::format::FastRecord;
use hectare_units::{BlockNr, Blocks, ClusterNr, Clusters, GroupNr, InodeNr, LogicalBlock};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// One more than the last file block.
const MAP_END: u64 = 1 << 32;

/// The state of space until all is replayed.
#[derive(Default)]
pub(super) struct Space {
    /// What files had, were given, or took; all of it is marked as in use.
    held: RunSet,
    /// The changed files, and the sectors each counts that its map does not (its attributes').
    files: HashMap<InodeNr, u64>,
}

impl Replay<'_, '_> {
    /// Takes all space that records name, so that nothing else gets it.
    pub(super) fn claim<'r>(&mut self, records: impl Iterator<Item = &'r FastRecord>) -> Result<()> {
        let mut named = RunSet::default();
        for record in records {
            if let FastRecord::AddRange { inode, start, len, .. } = record {
                let (first, end) = self
                    .clusters(*start, (*len).into())
                    .ok_or_else(|| corrupt(*inode, "it is mapped to blocks that the volume does not have"))?;
                named.add(first, end);
            }
        }
        for run in named.runs() {
            self.hold_free(run)?;
            self.core.state.allocator.mark_used(run)?;
        }
        Ok(())
    }

    /// Holds the free part of a run.
    fn hold_free(&mut self, run: Run) -> Result<()> {
        let (layout, end) = (self.core.state.allocator.layout(), run.end());
        let group = |cluster| layout.locate(cluster).map(|(group, _)| group.get());
        let last = ClusterNr::new(end.get() - 1);
        let Some((from, to)) = group(run.start).zip(group(last)) else { return Ok(()) };
        for group in (from..=to).map(GroupNr::new) {
            for free in self.core.state.allocator.free_runs(group)? {
                self.space.held.add(free.start.max(run.start), free.end().min(end));
            }
        }
        Ok(())
    }

    /// The clusters that blocks lie in: the first, and the one after the last.
    fn clusters(&self, start: BlockNr, len: u32) -> Option<(ClusterNr, ClusterNr)> {
        let geometry = self.core.state.geometry();
        let last = start.checked_add(Blocks::new(u64::from(len).checked_sub(1)?))?;
        let inside =
            start.get() >= geometry.first_data_block.into() && last.get() < geometry.blocks_count.get();
        inside.then(|| (geometry.cluster_of(start), geometry.cluster_of(last) + Clusters::ONE))
    }

    /// Makes a range of a file a hole, and maps it anew if it is to be mapped.
    pub(super) fn remap(
        &mut self,
        inode: &Arc<CachedInode>,
        first: LogicalBlock,
        len: u32,
        new: Option<Extent>,
    ) -> Result<()> {
        let nr = inode.nr();
        if inode.get().kind() == Some(Kind::Directory) {
            return Err(corrupt(nr, "blocks of a directory are mapped"));
        }
        if !inode.get().flags.contains(InodeFlags::EXTENTS) {
            let nothing = new.is_none() && inode.get().flags.contains(InodeFlags::INLINE_DATA);
            let what = format!("the journal's fast commits map inode {nr}, which has no extents");
            return if nothing { Ok(()) } else { Err(Error::Unsupported(what)) };
        }
        let end = (u64::from(first.get()) + u64::from(len)).min(MAP_END);
        self.edit_map(inode, |map| {
            map.clear(first, end)?;
            new.map_or(Ok(()), |new| map.insert(new))
        })
    }

    /// Removes all space of a file, link or directory from its map; a directory's is freed, any other's is
    /// held.
    pub(super) fn give_up_space(&mut self, inode: &Arc<CachedInode>) -> Result<()> {
        if inode.get().kind() == Some(Kind::Directory) {
            let mut data = inode.edit(self.handle, &self.core.state.inodes);
            return truncate::unmap_all(self.core, self.handle, inode.nr(), &mut data, 0);
        }
        if inode.get().flags.contains(InodeFlags::EXTENTS) {
            self.edit_map(inode, |map| map.clear(LogicalBlock::ZERO, MAP_END))?;
        }
        self.space.files.remove(&inode.nr());
        Ok(())
    }

    fn edit_map(
        &mut self,
        inode: &Arc<CachedInode>,
        change: impl FnOnce(&mut FastMap<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        self.touch(inode)?;
        let mut data = inode.edit(self.handle, &self.core.state.inodes);
        let map = MapMut { core: self.core, handle: self.handle, nr: inode.nr(), inode: &mut data };
        let mut map = FastMap { map, nodes: Vec::new() };
        change(&mut map)?;
        let nodes = map.nodes;
        drop(data);
        for nr in nodes {
            let cluster = self.core.state.geometry().cluster_of(nr);
            self.space.held.add(cluster, cluster + Clusters::ONE);
        }
        Ok(())
    }

    /// Holds a file's space, before its first change.
    pub(super) fn touch(&mut self, inode: &CachedInode) -> Result<()> {
        let nr = inode.nr();
        if inode.get().kind() == Some(Kind::Directory) || self.space.files.contains_key(&nr) {
            return Ok(());
        }
        let own = self.own_clusters(inode)?;
        let beside = inode.get().sectors.saturating_sub(cluster_sectors(&self.core.state, own.len()));
        own.runs().try_for_each(|run| self.core.state.allocator.mark_used(run))?;
        self.space.held.add_all(&own);
        self.space.files.insert(nr, beside);
        Ok(())
    }

    /// The clusters of a file's content and of its tree.
    fn own_clusters(&self, inode: &CachedInode) -> Result<RunSet> {
        let mut own = RunSet::default();
        let data = inode.get();
        if !data.flags.contains(InodeFlags::EXTENTS) {
            return Ok(own);
        }
        let map = MapRef { state: &self.core.state, nr: inode.nr(), inode: &data };
        let mut add = |start, len| {
            // The tree rejects blocks outside the volume.
            if let Some((first, end)) = self.clusters(start, len) {
                own.add(first, end);
            }
            ControlFlow::Continue(())
        };
        map.for_each(LogicalBlock::ZERO, &mut |extent| add(extent.physical, extent.len))?;
        map.for_each_node(&mut |nr, _| add(nr, 1))?;
        Ok(own)
    }

    /// Ends the replay: files without a name are freed, the others get their counts of sectors, and space
    /// without an owner becomes free.
    pub(super) fn settle(mut self) -> Result<()> {
        let mut kept = RunSet::default();
        let mut files: Vec<InodeNr> = self.space.files.keys().copied().collect();
        files.sort_unstable();
        for nr in files {
            let Some(inode) = self.existing(nr)? else { continue };
            if inode.get().links == 0 {
                self.free(&inode)?;
                continue;
            }
            let own = self.own_clusters(&inode)?;
            own.runs().try_for_each(|run| self.core.state.allocator.mark_used(run))?;
            let sectors = self.space.files[&nr] + cluster_sectors(&self.core.state, own.len());
            inode.edit(self.handle, &self.core.state.inodes).sectors = sectors;
            kept.add_all(&own);
        }
        let free = self.space.held.without(&kept);
        free.runs().try_for_each(|run| self.core.state.allocator.free(run, self.handle))?;
        Ok(())
    }
}
