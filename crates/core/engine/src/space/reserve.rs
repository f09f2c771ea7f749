//! Space for what an inode maps: chooses the goal, and requests it from the allocator.
//!
//! File data goes through the file's [`hectare_alloc::Window`], so that data written in small writes lies
//! together; metadata (tree nodes, directory blocks, symlink targets, attribute blocks) is allocated a
//! cluster at a time near its owner. All requests go to [`hectare_alloc::Preallocation`], which releases its
//! preallocations before it reports that the volume is full.
//!
//! With `bigalloc` the blocks of one cluster of the file must lie in one cluster of the volume, so a hole
//! beside mapped blocks of its cluster gets the cluster they have ([`Piece::shared`]).
//!
//! Space for content and attributes is claimed from the quotas of its owners first; nodes of trees count, but
//! are never refused, since a map must stay changeable.
//!
//! What it is not: the map ([`crate::space::map`]), which gets space when it is published.

use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::piece::{Piece, Room, Use, cluster_sectors};
use crate::state::Core;
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use hectare_alloc::{FileRequest, Request, Reservation, Run};
use hectare_ext4::extent::{Extent, Mapping};
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, ClusterNr, Clusters, GroupNr, InodeNr, LogicalBlock, low32};

/// A hole that needs space: `clusters` from one of the file's clusters on.
pub(super) struct Hole<'a> {
    pub(super) map: MapRef<'a>,
    pub(super) logical: LogicalBlock,
    /// Blocks between the start of the first cluster and `logical`.
    pub(super) lead: u32,
    pub(super) clusters: Clusters,
}

/// The preallocated space for up to `len` blocks of a file from `logical` on. It is for holes only, so
/// the map need not be looked up.
pub(crate) fn kept_for(core: &Core, inode: &CachedInode, logical: LogicalBlock, len: u32) -> Option<Piece> {
    // With bigalloc, mapped neighbours in the same cluster count.
    if core.state.geometry().cluster_ratio_shift > 0 {
        return None;
    }
    let asked = Clusters::new(one_step(core, &inode.get(), logical, len).into());
    // Where no more is allowed, what is mapped already may be what is asked for.
    let (asked, quota) = core.state.claim_clusters(inode.nr(), &inode.get(), asked).ok()?;
    let space = inode.window().take(logical.get().into(), asked)?;
    core.state.allocator.note_window(inode.nr().get(), asked, &space);
    let physical = core.state.geometry().cluster_start(space.run().start);
    let len = low32(space.len().get());
    Some(Piece::held(Extent { logical, len, physical, unwritten: false }, space).claimed(quota))
}

/// How many of `len` blocks of a file from `logical` on one transaction maps.
fn one_step(core: &Core, inode: &Inode, logical: LogicalBlock, len: u32) -> u32 {
    len.min(MapKind::of(inode.flags).step_max(logical, core.state.geometry().block_size))
}

/// Reserves space for up to `len` blocks of a hole that begins at `logical`; it may give fewer.
pub(crate) fn reserve_for(
    core: &Core,
    nr: InodeNr,
    inode: &Inode,
    logical: LogicalBlock,
    len: u32,
    purpose: Use<'_>,
) -> Result<Piece> {
    let map = MapRef { state: &core.state, nr, inode };
    let shift = core.state.geometry().cluster_ratio_shift;
    let cluster_start = u64::from(logical.get()) >> shift << shift;
    let lead = low32(u64::from(logical.get()) - cluster_start);
    let mut len = one_step(core, inode, logical, len);
    if shift > 0 {
        if map.kind() == MapKind::Blocks {
            let what = format!("inode {nr} is mapped by blocks, which can't grow on a volume with bigalloc");
            return Err(Error::Unsupported(what));
        }
        if let Some(neighbour) = map.first_in(cluster_start, cluster_start + (1 << shift))? {
            // Any of its blocks inside this cluster of the file determines the cluster of the volume.
            let within = cluster_start.saturating_sub(u64::from(neighbour.logical.get()));
            let cluster = core.state.geometry().cluster_of(neighbour.physical + Blocks::new(within));
            let physical = core.state.geometry().cluster_start(cluster) + Blocks::new(lead.into());
            return Ok(Piece::shared(logical, len.min((1 << shift) - lead), physical));
        }
        len = clip_to_free_clusters(core, &map, logical, len)?;
    }
    let clusters = Clusters::new((u64::from(lead) + u64::from(len)).div_ceil(1 << shift));
    let (clusters, quota) = core.state.claim_clusters(nr, inode, clusters)?;
    let space = space_for(core, &Hole { map, logical, lead, clusters }, purpose)?;
    let got = (space.len().get() << shift) - u64::from(lead);
    let physical = core.state.geometry().cluster_start(space.run().start) + Blocks::new(lead.into());
    let len = u32::try_from(got.min(u64::from(len))).expect("bounded by a u32");
    let is_high = physical.get() + u64::from(len) > 1 << u32::BITS;
    if is_high && MapKind::of(inode.flags) == MapKind::Blocks {
        let what =
            format!("inode {nr} is mapped by blocks, and only blocks that no such map reaches are free");
        return Err(Error::Unsupported(what));
    }
    Ok(Piece::held(Extent { logical, len, physical, unwritten: false }, space).claimed(quota))
}

/// Shortens a hole so that it does not end in a cluster whose later blocks are mapped.
fn clip_to_free_clusters(core: &Core, map: &MapRef<'_>, logical: LogicalBlock, len: u32) -> Result<u32> {
    let shift = core.state.geometry().cluster_ratio_shift;
    let end = u64::from(logical.get()) + u64::from(len);
    let last_start = end >> shift << shift;
    if last_start == end || map.first_in(end, last_start + (1 << shift))?.is_none() {
        return Ok(len);
    }
    Ok(low32(last_start.saturating_sub(logical.get().into())))
}

fn space_for(core: &Core, hole: &Hole<'_>, purpose: Use<'_>) -> Result<Reservation> {
    let Use::Data { window, explicit, closed } = purpose else {
        let goal = continuation(core, hole)?.map_or_else(|| home(core, hole.map.nr), Ok)?;
        return reserve_metadata(core, goal, hole.clusters, Room::Open);
    };
    let logical = u64::from(hole.logical.get() - hole.lead) >> core.state.geometry().cluster_ratio_shift;
    if let Some(space) = window.take(logical, hole.clusters) {
        core.state.allocator.note_window(hole.map.nr.get(), hole.clusters, &space);
        return Ok(space);
    }
    let request = FileRequest { explicit, closed, ..file_request(core, hole, logical)? };
    match core.state.reserving(|| core.state.prealloc.take(&core.state.allocator, window, &request)) {
        Err(error) if error.is_refusal() => {
            let goal = request.continuation.unwrap_or(request.home);
            let request = Request::new(goal, hole.clusters).for_data(hole.clusters);
            claimed_space(core, hole.map.nr, &request)?.ok_or_else(|| error.into())
        }
        taken => Ok(taken?),
    }
}

pub(super) fn file_request(core: &Core, hole: &Hole<'_>, logical: u64) -> Result<FileRequest> {
    let geometry = core.state.geometry();
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
        continuation: continuation(core, hole)?,
        right: right.filter(|right| *right > logical),
        home: home(core, hole.map.nr)?,
        explicit: false,
        closed: false,
        take_root_reserve: core.state.options.use_reserved_blocks,
    })
}

/// The cluster that would continue the file, if the block before a hole is mapped.
pub(super) fn continuation(core: &Core, hole: &Hole<'_>) -> Result<Option<ClusterNr>> {
    let first = hole.logical.get() - hole.lead;
    let Some(before) = first.checked_sub(1).map(LogicalBlock::new) else { return Ok(None) };
    let Mapping::Mapped(extent) = hole.map.lookup(before)? else { return Ok(None) };
    let last = extent.block_of(before);
    Ok(last.map(|last| core.state.geometry().cluster_of(last) + Clusters::ONE))
}

/// The goal for an inode's first space: its own group.
pub(crate) fn home(core: &Core, nr: InodeNr) -> Result<ClusterNr> {
    let geometry = core.state.geometry();
    let (group, _) = core.state.groups.slot(nr)?;
    Ok(geometry.cluster_of(geometry.first_block(group)))
}

fn reserve_metadata(core: &Core, goal: ClusterNr, want: Clusters, room: Room) -> Result<Reservation> {
    let request = Request::new(goal, want).with_root_reserve(core.state.options.use_reserved_blocks);
    match core.state.reserving(|| core.state.prealloc.reserve(&core.state.allocator, &request)) {
        Err(error) if error.is_refusal() && room == Room::Kept => {
            Ok(core.state.prealloc.reserve(&core.state.allocator, &request.vital())?)
        }
        reserved => Ok(reserved?),
    }
}

/// Releases a file's preallocation.
pub(crate) fn discard_window(core: &Core, inode: &CachedInode) {
    let discarded = inode.discard_window();
    if !discarded.is_zero() {
        core.state.allocator.count_discarded(discarded);
    }
}

/// Allocates a block for metadata, used at once, near `goal`; returns it with the sectors it counts for
/// (a cluster's).
pub(crate) fn allocate_metadata(
    core: &Core,
    handle: &mut Handle<'_>,
    goal: BlockNr,
    room: Room,
) -> Result<(BlockNr, u64)> {
    let geometry = core.state.geometry();
    let goal = if geometry.group_of(goal).is_some() { goal } else { geometry.first_block(GroupNr::new(0)) };
    let space = reserve_metadata(core, geometry.cluster_of(goal), Clusters::ONE, room)?;
    let run = space.publish(handle);
    Ok((geometry.cluster_start(run.start), cluster_sectors(&core.state, run.len)))
}

/// Frees a metadata block; returns the sectors it counted for.
pub(crate) fn free_metadata(core: &Core, handle: &mut Handle<'_>, nr: BlockNr) -> Result<u64> {
    core.state.forget_metadata(nr);
    let run = Run::new(core.state.geometry().cluster_of(nr), Clusters::ONE);
    core.state.allocator.free(run, handle).map_err(Error::from).watched(&core.state.findings)?;
    Ok(cluster_sectors(&core.state, run.len))
}

/// Allocates out of the claim of a file whose bytes are being placed; `None` if it has none.
///
/// # Errors
/// As [`Allocator::reserve_claimed`](hectare_alloc::Allocator::reserve_claimed).
fn claimed_space(core: &Core, nr: InodeNr, request: &Request) -> Result<Option<Reservation>> {
    let Some(inode) = core.state.inodes.find(nr) else { return Ok(None) };
    let mut state = inode.delayed().state();
    let Some(claim) = state.claim.as_mut() else { return Ok(None) };
    Ok(Some(core.state.allocator.reserve_claimed(claim, request)?))
}

/// Allocates a block for a node of a file's tree, used at once, near `goal`; returns it with the sectors
/// it counts for. Some clusters are reserved for such blocks; a file whose bytes are being placed gets
/// one out of its claim if there is no other.
pub(crate) fn allocate_node(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    goal: BlockNr,
) -> Result<(BlockNr, u64)> {
    match allocate_metadata(core, handle, goal, Room::Kept) {
        Err(error) if core.may_lack_space(&error) => {
            let geometry = core.state.geometry();
            let first = geometry.first_block(GroupNr::new(0));
            let goal = if geometry.group_of(goal).is_some() { goal } else { first };
            let request = Request::new(geometry.cluster_of(goal), Clusters::ONE);
            let space = match claimed_space(core, nr, &request) {
                Ok(Some(space)) => space,
                // Callers go by that name: the map is as it was.
                Ok(None) => return Err(Error::NoSpace),
                Err(error) if core.may_lack_space(&error) => return Err(Error::NoSpace),
                Err(error) => return Err(error),
            };
            let run = space.publish(handle);
            Ok((geometry.cluster_start(run.start), cluster_sectors(&core.state, run.len)))
        }
        allocated => allocated,
    }
}
