//! Space for what an inode maps: chooses the goal, and requests it from the allocator.
//!
//! File data goes through the file's [`Window`], so that data written in small writes lies together; metadata
//! (tree nodes, directory blocks, symlink targets, attribute blocks) is allocated a cluster at a time near
//! its owner. All requests go to [`hectare_alloc::Preallocation`], which releases its preallocations before
//! it reports that the volume is full.
//!
//! With `bigalloc` the blocks of one cluster of the file must lie in one cluster of the volume, so a hole
//! beside mapped blocks of its cluster gets the cluster they have ([`Piece::shared`]).
//!
//! A full volume must still be able to free: punching a hole makes two extents of one, which may need a node
//! more, and writing into preallocated blocks splits them likewise. So some clusters are reserved for the
//! blocks of trees ([`kept`], the kernel's `s_resv_clusters`), and no count of available space includes them.
//!
//! What it is not: the map ([`crate::map`]), which gets space when it is published.

mod explain;

use crate::error::{Error, Result};
use crate::map::MapRef;
use crate::options::OpenOptions;
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use crate::volume::{Shared, Volume};
use hectare_alloc::{AllocError, Counts, FileRequest, Request, Reservation, Run, Window};
use hectare_ext4::error::Place;
use hectare_ext4::extent::{Extent, Mapping};
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::Inode;
use hectare_ext4::superblock::SuperBlock;
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, ClusterNr, Clusters, GroupNr, InodeNr, LogicalBlock, low32};
use std::sync::Arc;

pub use explain::{Ask, AskGoal, Explanation, Shape};

impl From<AllocError<Error>> for Error {
    fn from(error: AllocError<Error>) -> Self {
        match error {
            AllocError::NoSpace => Self::NoSpace,
            AllocError::Source(inner) => inner,
            other => hectare_ext4::error::Corrupt::new("the block bitmaps", Place::Volume, other.to_string())
                .into(),
        }
    }
}

/// The largest number of clusters that is reserved.
const KEPT_MAX: u64 = 4096;
/// The reserved share of the volume's clusters, if that is less: a fiftieth.
const KEPT_SHARE: u64 = 50;

/// Clusters of a volume that only a vital request gets: as many as the kernel reserves
/// (`ext4_calculate_resv_clusters`), which does so where files have extents.
pub(crate) fn kept(sb: &SuperBlock, options: &OpenOptions) -> Clusters {
    let all = sb.geometry().clusters_count().get();
    let has_extents = sb.features().incompat.contains(Incompat::EXTENTS);
    Clusters::new(if has_extents && options.keep_clusters { (all / KEPT_SHARE).min(KEPT_MAX) } else { 0 })
}

/// The free space that a block of metadata may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// What is available to all.
    Open,
    /// All of it, reserved clusters included.
    Kept,
}

/// The number of 512-byte sectors of `clusters`.
pub(crate) fn cluster_sectors(volume: &Shared, clusters: Clusters) -> u64 {
    let geometry = volume.geometry();
    clusters.get() << (geometry.cluster_ratio_shift + geometry.block_size.shift() - 9)
}

/// File blocks to be mapped together: their mapping, and the space they bring, if it is new.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The mapping; its state is set when it is published.
    pub(crate) extent: Extent,
    /// The new space; `None` if the blocks lie in a cluster the file has already (`bigalloc`).
    space: Option<Reservation>,
}

impl Piece {
    /// Blocks from `logical` on, in a cluster that holds other blocks of the file.
    fn shared(logical: LogicalBlock, len: u32, physical: BlockNr) -> Self {
        Self { extent: Extent { logical, len, physical, unwritten: false }, space: None }
    }

    /// Blocks with space that the caller chose.
    pub(crate) fn held(extent: Extent, space: Reservation) -> Self {
        Self { extent, space: Some(space) }
    }

    /// The mapping, and the space it brings.
    pub(crate) fn into_parts(self) -> (Extent, Option<Reservation>) {
        (self.extent, self.space)
    }
}

/// The purpose of space.
#[derive(Clone, Copy)]
pub(crate) enum Use<'a> {
    /// A directory's or a symbolic link's blocks.
    Names,
    /// A file's data.
    Data {
        /// The preallocation for what the file will write next.
        window: &'a Arc<Window>,
        /// Whether space as such was requested.
        explicit: bool,
        /// Whether the file is not open any more.
        closed: bool,
    },
}

impl<'a> Use<'a> {
    /// For what a file writes.
    pub(crate) fn data(inode: &'a CachedInode) -> Self {
        Self::Data { window: inode.window(), explicit: false, closed: inode.is_left() }
    }

    /// For what a file is allocated before it writes.
    pub(crate) fn explicit(inode: &'a CachedInode) -> Self {
        Self::Data { window: inode.window(), explicit: true, closed: false }
    }
}

/// A hole that needs space: `clusters` from one of the file's clusters on.
struct Hole<'a> {
    map: MapRef<'a>,
    logical: LogicalBlock,
    /// Blocks between the start of the first cluster and `logical`.
    lead: u32,
    clusters: Clusters,
}

impl Volume {
    /// The preallocated space for up to `len` blocks of a file from `logical` on. It is for holes only, so
    /// the map need not be looked up.
    pub(crate) fn kept_for(&self, inode: &CachedInode, logical: LogicalBlock, len: u32) -> Option<Piece> {
        // With bigalloc, mapped neighbours in the same cluster count.
        if self.geometry().cluster_ratio_shift > 0 {
            return None;
        }
        let asked = Clusters::new(len.into());
        let space = inode.window().take(logical.get().into(), asked)?;
        self.allocator.note_window(inode.nr().get(), asked, &space);
        let physical = self.geometry().cluster_start(space.run().start);
        let len = low32(space.len().get());
        Some(Piece { extent: Extent { logical, len, physical, unwritten: false }, space: Some(space) })
    }

    /// Reserves space for up to `len` blocks of a hole that begins at `logical`; it may give fewer.
    pub(crate) fn reserve_for(
        &self,
        nr: InodeNr,
        inode: &Inode,
        logical: LogicalBlock,
        len: u32,
        purpose: Use<'_>,
    ) -> Result<Piece> {
        let map = MapRef { volume: self, nr, inode };
        let shift = self.geometry().cluster_ratio_shift;
        let cluster_start = u64::from(logical.get()) >> shift << shift;
        let lead = low32(u64::from(logical.get()) - cluster_start);
        let mut len = len;
        if shift > 0 {
            if let Some(neighbour) = map.first_in(cluster_start, cluster_start + (1 << shift))? {
                // Any of its blocks inside this cluster of the file determines the cluster of the volume.
                let within = cluster_start.saturating_sub(u64::from(neighbour.logical.get()));
                let cluster = self.geometry().cluster_of(neighbour.physical + Blocks::new(within));
                let physical = self.geometry().cluster_start(cluster) + Blocks::new(lead.into());
                return Ok(Piece::shared(logical, len.min((1 << shift) - lead), physical));
            }
            len = self.clip_to_free_clusters(&map, logical, len)?;
        }
        let clusters = Clusters::new((u64::from(lead) + u64::from(len)).div_ceil(1 << shift));
        let space = self.space_for(&Hole { map, logical, lead, clusters }, purpose)?;
        let got = (space.len().get() << shift) - u64::from(lead);
        let physical = self.geometry().cluster_start(space.run().start) + Blocks::new(lead.into());
        let len = u32::try_from(got.min(u64::from(len))).expect("bounded by a u32");
        Ok(Piece { extent: Extent { logical, len, physical, unwritten: false }, space: Some(space) })
    }

    /// Shortens a hole so that it does not end in a cluster whose later blocks are mapped.
    fn clip_to_free_clusters(&self, map: &MapRef<'_>, logical: LogicalBlock, len: u32) -> Result<u32> {
        let shift = self.geometry().cluster_ratio_shift;
        let end = u64::from(logical.get()) + u64::from(len);
        let last_start = end >> shift << shift;
        if last_start == end || map.first_in(end, last_start + (1 << shift))?.is_none() {
            return Ok(len);
        }
        Ok(low32(last_start.saturating_sub(logical.get().into())))
    }

    fn space_for(&self, hole: &Hole<'_>, purpose: Use<'_>) -> Result<Reservation> {
        let Use::Data { window, explicit, closed } = purpose else {
            let goal = self.continuation(hole)?.map_or_else(|| self.home(hole.map.nr), Ok)?;
            return self.reserve_metadata(goal, hole.clusters, Room::Open);
        };
        let logical = u64::from(hole.logical.get() - hole.lead) >> self.geometry().cluster_ratio_shift;
        if let Some(space) = window.take(logical, hole.clusters) {
            self.allocator.note_window(hole.map.nr.get(), hole.clusters, &space);
            return Ok(space);
        }
        let request = FileRequest { explicit, closed, ..self.file_request(hole, logical)? };
        match self.reserving(|| self.prealloc.take(&self.allocator, window, &request)) {
            Err(AllocError::NoSpace) => {
                let goal = request.continuation.unwrap_or(request.home);
                self.claimed_space(hole.map.nr, &Request::new(goal, hole.clusters).for_data(hole.clusters))
            }
            taken => Ok(taken?),
        }
    }

    fn file_request(&self, hole: &Hole<'_>, logical: u64) -> Result<FileRequest> {
        let geometry = self.geometry();
        let shift = geometry.cluster_ratio_shift;
        let bytes_shift = shift + geometry.block_size.shift();
        let right = match hole.map.lookup(hole.logical)? {
            Mapping::Hole { next } => next.map(|next| u64::from(next.get()) >> shift),
            Mapping::Mapped(_) => None,
        };
        let end = logical.saturating_add(hole.clusters.get());
        Ok(FileRequest {
            file: hole.map.nr.get(),
            logical,
            len: hole.clusters,
            size: end.max(hole.map.inode.size.div_ceil(1 << bytes_shift)),
            continuation: self.continuation(hole)?,
            right: right.filter(|right| *right > logical),
            home: self.home(hole.map.nr)?,
            explicit: false,
            closed: false,
            take_root_reserve: self.options.use_reserved_blocks,
        })
    }

    /// The cluster that would continue the file, if the block before a hole is mapped.
    fn continuation(&self, hole: &Hole<'_>) -> Result<Option<ClusterNr>> {
        let first = hole.logical.get() - hole.lead;
        let Some(before) = first.checked_sub(1).map(LogicalBlock::new) else { return Ok(None) };
        let Mapping::Mapped(extent) = hole.map.lookup(before)? else { return Ok(None) };
        let last = extent.block_of(before);
        Ok(last.map(|last| self.geometry().cluster_of(last) + Clusters::ONE))
    }

    /// The goal for an inode's first space: its own group.
    fn home(&self, nr: InodeNr) -> Result<ClusterNr> {
        let geometry = self.geometry();
        let (group, _) = self.groups.slot(nr)?;
        Ok(geometry.cluster_of(geometry.first_block(group)))
    }

    fn reserve_metadata(&self, goal: ClusterNr, want: Clusters, room: Room) -> Result<Reservation> {
        let request = Request::new(goal, want).with_root_reserve(self.options.use_reserved_blocks);
        match self.reserving(|| self.prealloc.reserve(&self.allocator, &request)) {
            Err(AllocError::NoSpace) if room == Room::Kept => {
                Ok(self.prealloc.reserve(&self.allocator, &request.vital())?)
            }
            reserved => Ok(reserved?),
        }
    }

    /// The positions of all free clusters, after everything the allocator knows was verified; while nothing
    /// else runs. For tests.
    ///
    /// # Errors
    /// The error, in one line.
    #[doc(hidden)]
    pub fn check_space(&self) -> std::result::Result<Counts, String> {
        self.allocator.check()?;
        Ok(self.allocator.counts())
    }

    /// Releases a file's preallocation.
    pub(crate) fn discard_window(&self, inode: &CachedInode) {
        let discarded = inode.discard_window();
        if !discarded.is_zero() {
            self.allocator.count_discarded(discarded);
        }
    }

    /// Allocates a block for metadata, used at once, near `goal`; returns it with the sectors it counts for
    /// (a cluster's).
    pub(crate) fn allocate_metadata(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockNr,
        room: Room,
    ) -> Result<(BlockNr, u64)> {
        let geometry = self.geometry();
        let goal =
            if geometry.group_of(goal).is_some() { goal } else { geometry.first_block(GroupNr::new(0)) };
        let space = self.reserve_metadata(geometry.cluster_of(goal), Clusters::ONE, room)?;
        let run = space.publish(handle);
        Ok((geometry.cluster_start(run.start), cluster_sectors(self, run.len)))
    }

    /// Drops a metadata block that is freed, here and from the log: it must not be checkpointed any more once
    /// others can get its place.
    pub(crate) fn forget_metadata(&self, nr: BlockNr) {
        self.blocks.forget(nr);
        if let Some(log) = &self.log {
            log.revoke(nr);
        }
    }

    /// Drops blocks of journalled data that are freed. There may be very many, of which the log has few: only
    /// those are revoked.
    pub(crate) fn forget_data(&self, first: BlockNr, len: u32) {
        let Some(log) = &self.log else { return };
        for nr in (0..u64::from(len)).map(|step| first + Blocks::new(step)) {
            // In this order: what no commit is writing any more is known to be in the log.
            if self.blocks.forget(nr) || log.is_logged(nr) {
                log.revoke(nr);
            }
        }
    }

    /// Frees a metadata block; returns the sectors it counted for.
    pub(crate) fn free_metadata(&self, handle: &mut Handle<'_>, nr: BlockNr) -> Result<u64> {
        self.forget_metadata(nr);
        let run = Run::new(self.geometry().cluster_of(nr), Clusters::ONE);
        self.allocator.free(run, handle).map_err(Error::from).watched(&self.findings)?;
        Ok(cluster_sectors(self, run.len))
    }
}
