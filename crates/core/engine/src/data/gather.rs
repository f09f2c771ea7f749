//! Moves the blocks of a file together (defragmentation).
//!
//! A stretch of file blocks without a hole that lies in several places is copied to fewer: space is
//! reserved, the data is copied there, and one transaction exchanges the mapping and frees the old place.
//! The commit flushes the data before it; so with a journal the file is mapped to the old place or to the
//! new one after a crash, and both hold its content. Without a journal a crash may leave what a check has to
//! mend, as any change of a map does there. A long stretch moves in several such steps, each of which leaves
//! the file as it reads.
//!
//! Nothing moves unless the stretch comes to lie in fewer places. Times stay, and so does what is unwritten.
//!
//! Directories and content that is journalled lie in the block cache and in the log: their blocks are not
//! copied on the device, but logged at their new place in the transaction that maps it, and revoked at the
//! old one. An index names blocks by their place in the directory, and so stays right; checksums don't cover
//! the place.
//!
//! A caller that knows better places, as one that makes free space whole, names them ([`move_to`]). There
//! the map is changed in place where that can be, so that no block of a map comes or goes and the plan
//! holds.
//!
//! What it is not: it chooses no order for files. Clusters (`bigalloc`), symbolic links and the inodes of
//! the format (the journal, quotas) are left where they are.

use crate::data::fallocate::credits;
use crate::data::{device, writeback};
use crate::error::{Error, Result};
use crate::space::inode_blocks::{self, InodeBlocks, places};
use crate::space::map::MapRef;
use crate::space::map_edit::{MAP_CREDITS, MapMut};
use crate::space::piece::Piece;
use crate::space::reserve;
use crate::state::Core;
use crate::stores::block_cache::Kind as BlockKind;
use crate::stores::inode_cache::CachedInode;
use hectare_alloc::{AllocError, Request, Reservation};
use hectare_ext4::error::Place;
use hectare_ext4::extent::{Extent, Progress};
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::map::MapKind;
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, Bytes, ClusterNr, Clusters, LogicalBlock, index_of, low32, u64_of};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes copied at a time.
const COPY_STEP: u64 = 4 << 20;

/// Times that a removal of so few extents goes on at most: a table on each level may become empty.
const REMOVALS: usize = 4;

/// Blocks that are logged with one change of a map: a handle that requests more could never start with a
/// small log.
const LOGGED_MAX: u32 = 32;

/// What a block of a directory or of journalled content is, by its place in the file.
pub(crate) type Kinds<'k> = &'k dyn Fn(&Inode, LogicalBlock) -> BlockKind;

/// What became of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gathered {
    /// In how many places it was ([`InodeBlocks::places`]).
    pub before: u64,
    /// In how many it is now.
    pub after: u64,
    /// The blocks that were copied or, where they are unwritten, exchanged.
    pub moved: Blocks,
}

/// Extents that one transaction exchanges, neighbours in the file and in the same state, and their new place.
struct Part {
    extents: Vec<Extent>,
    space: Reservation,
}

/// How content comes to its new place.
#[derive(Clone, Copy)]
enum Way<'k> {
    /// It is copied on the device.
    Copied,
    /// It is logged.
    Logged(Kinds<'k>),
}

impl Way<'_> {
    /// Blocks that one change of a map moves.
    fn limit(self, most: u32) -> u32 {
        match self {
            Self::Copied => most,
            Self::Logged(_) => most.min(LOGGED_MAX),
        }
    }
}

/// How a map is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// What is mapped anew joins its neighbours, and the map becomes smaller with that.
    Joined,
    /// Only the place of an extent changes, where the map allows that.
    InPlace,
}

/// A block with its bytes.
type HeldBlock = (BlockKind, Arc<[u8]>);

/// Gives all content of a file a place, and gives up what is reserved for it; the caller holds its operation
/// lock.
fn make_movable(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    inode.check_alive()?;
    check_movable(core, inode)?;
    if inode.get().kind() == Some(Kind::File) {
        writeback::place_locked(core, inode)?;
    }
    reserve::discard_window(core, inode);
    Ok(())
}

/// How the content of an inode moves; blocks of directories are what `kinds` says.
fn way<'k>(core: &Core, inode: &CachedInode, kinds: Kinds<'k>) -> Way<'k> {
    let data = inode.get();
    let is_logged = data.kind() == Some(Kind::Directory) || core.state.journals_data(&data);
    if is_logged { Way::Logged(kinds) } else { Way::Copied }
}

/// Moves a file's blocks together, where that makes the places they are in fewer.
pub(crate) fn gather(core: &Core, inode: &Arc<CachedInode>) -> Result<Gathered> {
    gather_with(core, inode, &|_, _| BlockKind::Plain)
}

/// Likewise a file's or a directory's, whose blocks are what `kinds` says.
pub(crate) fn gather_with(core: &Core, inode: &Arc<CachedInode>, kinds: Kinds<'_>) -> Result<Gathered> {
    core.check_takes_changes()?;
    let _operation = inode.lock().write();
    make_movable(core, inode)?;
    let way = way(core, inode, kinds);
    let blocks = checked_blocks(core, inode)?;
    let mut gathered = Gathered { before: blocks.places(), ..Gathered::default() };
    for stretch in blocks.extents.chunk_by(|a, b| a.end() == u64::from(b.logical.get())) {
        let Some(spaces) = fewer_places(core, inode, stretch)? else { continue };
        // In a block map so few that they are in one table, which may become empty and with it those above.
        let limit = (credits::remove_extents(&core.state) / 2).max(1);
        for part in parts(stretch, spaces, limit, |at| way.limit(insert_max(core, inode, at))) {
            gathered.moved += Blocks::new(part.space.len().get());
            exchange(core, inode, part, way, Change::Joined)?;
            core.relieve_frees()?;
        }
    }
    gathered.after = inode_blocks::of(&core.state, inode.nr())?.places();
    Ok(gathered)
}

/// Moves one extent to a place that a caller chose, if it is still mapped as the caller saw it and the place
/// is free; returns whether it was moved.
pub(crate) fn move_to(core: &Core, inode: &Arc<CachedInode>, extent: Extent, to: BlockNr) -> Result<bool> {
    core.check_takes_changes()?;
    let _operation = inode.lock().write();
    make_movable(core, inode)?;
    if inode.get().kind() != Some(Kind::File) {
        return Ok(false);
    }
    // It may be a part of a longer one by now, if its neighbour was moved beside it.
    let holds = |known: &Extent| {
        let covers = known.end() >= extent.end() && known.unwritten == extent.unwritten;
        covers && known.block_of(extent.logical) == Some(extent.physical)
    };
    if !checked_blocks(core, inode)?.extents.iter().any(holds) {
        return Ok(false);
    }
    let (len, geometry) = (Clusters::new(extent.len.into()), core.state.geometry());
    // The numbers may come from a client.
    let is_inside =
        |end: u64| to.get() >= geometry.first_data_block.into() && end <= geometry.blocks_count.get();
    let end = to.get().checked_add(extent.len.into());
    if extent.len == 0 || !end.is_some_and(|end| is_inside(end) && fits_map(inode, end)) {
        return Ok(false);
    }
    let goal = core.state.geometry().cluster_of(to);
    // Not as data: size classes would keep it from places that are set apart for other sizes.
    let request = Request::new(goal, len).at_least(len).exactly_at_goal();
    let request = request.with_root_reserve(core.state.options.use_reserved_blocks);
    let space = match core.state.reserving(|| core.state.allocator.reserve(&request)) {
        Err(AllocError::NoSpace) => return Ok(false),
        reserved => reserved?,
    };
    let way = way(core, inode, &|_, _| BlockKind::Plain);
    for part in parts(&[extent], vec![space], 1, |at| way.limit(insert_max(core, inode, at))) {
        exchange(core, inode, part, way, Change::InPlace)?;
        core.relieve_frees()?;
    }
    Ok(true)
}

/// Whether the map of a file can name all blocks before one: a block map has 32 bits for each.
fn fits_map(inode: &CachedInode, end: u64) -> bool {
    end <= 1 << u32::BITS || MapKind::of(inode.get().flags) != MapKind::Blocks
}

/// The blocks from a file block on that one change of its map takes.
fn insert_max(core: &Core, inode: &CachedInode, at: LogicalBlock) -> u32 {
    MapKind::of(inode.get().flags).insert_max(at, true, core.state.geometry().block_size)
}

fn check_movable(core: &Core, inode: &CachedInode) -> Result<()> {
    let data = inode.get();
    let what = if !matches!(data.kind(), Some(Kind::File | Kind::Directory)) {
        "it is neither a regular file nor a directory"
    } else if core.state.is_special(inode.nr()) {
        "it belongs to the format"
    } else if core.state.geometry().cluster_ratio_shift > 0 {
        "the volume has clusters (bigalloc)"
    } else {
        return Ok(());
    };
    Err(Error::Unsupported(format!("inode {}: its blocks can't be moved: {what}", inode.nr())))
}

/// The file's blocks, none of which is the volume's metadata.
fn checked_blocks(core: &Core, inode: &CachedInode) -> Result<InodeBlocks> {
    let blocks = inode_blocks::of(&core.state, inode.nr())?;
    if !blocks.extents.is_empty() {
        let data = inode.get();
        MapRef { state: &core.state, nr: inode.nr(), inode: &data }
            .check_range(LogicalBlock::ZERO, u64::MAX)?;
    }
    Ok(blocks)
}

/// Reserves space for a stretch in fewer places than it is in, if there is such.
fn fewer_places(core: &Core, inode: &CachedInode, stretch: &[Extent]) -> Result<Option<Vec<Reservation>>> {
    let places = places(stretch);
    let mut left: u64 = stretch.iter().map(|extent| u64::from(extent.len)).sum();
    let (mut spaces, mut goal) = (Vec::new(), reserve::home(core, inode.nr())?);
    while left > 0 {
        if u64_of(spaces.len()) + 1 >= places {
            return Ok(None);
        }
        let Some(space) = longest(core, goal, left, places)? else { return Ok(None) };
        goal = space.run().end();
        if goal.get() > 1 << u32::BITS && MapKind::of(inode.get().flags) == MapKind::Blocks {
            return Ok(None);
        }
        left -= space.len().get();
        spaces.push(space);
    }
    Ok(Some(spaces))
}

/// Reserves up to `want` clusters in one place, as many as there are; none if only runs are free that bring
/// no fewer places than `places`.
fn longest(core: &Core, goal: ClusterNr, want: u64, places: u64) -> Result<Option<Reservation>> {
    let mut least = want;
    loop {
        // No more than a group can be asked for at once.
        let min = least.min(core.state.geometry().clusters_per_group.into());
        let request = Request::new(goal, Clusters::new(want))
            .for_data(Clusters::new(want))
            .at_least(Clusters::new(min))
            .with_root_reserve(core.state.options.use_reserved_blocks);
        match core.state.reserving(|| core.state.prealloc.reserve(&core.state.allocator, &request)) {
            Err(error) if error.is_refusal() && least / 2 > want / places => least /= 2,
            Err(error) if error.is_refusal() => return Ok(None),
            reserved => return Ok(Some(reserved?)),
        }
    }
}

/// The steps in which a stretch moves to its new places: of at most `limit` extents each, and of `most`
/// blocks from a file block on.
fn parts(
    stretch: &[Extent],
    spaces: Vec<Reservation>,
    limit: usize,
    most: impl Fn(LogicalBlock) -> u32,
) -> Vec<Part> {
    let mut rest = VecDeque::from(stretch.to_vec());
    let mut parts = Vec::new();
    for mut space in spaces {
        while let Some(first) = rest.front()
            && !space.is_empty()
        {
            let room = space.len().get().min(most(first.logical).into());
            let extents = take_front(&mut rest, room, limit);
            let len = extents.iter().map(|extent| u64::from(extent.len)).sum();
            let after = space.split_off(Clusters::new(len));
            parts.push(Part { extents, space });
            space = after;
        }
    }
    parts
}

/// Takes extents in the same state, `room` blocks of them at most; the last may be cut.
fn take_front(rest: &mut VecDeque<Extent>, mut room: u64, limit: usize) -> Vec<Extent> {
    let mut taken: Vec<Extent> = Vec::new();
    while room > 0
        && taken.len() < limit
        && let Some(next) = rest.front_mut()
        && taken.first().is_none_or(|first| first.unwritten == next.unwritten)
    {
        let len = low32(room.min(next.len.into()));
        taken.push(Extent { len, ..*next });
        room -= u64::from(len);
        if len == next.len {
            rest.pop_front();
        } else {
            next.logical = LogicalBlock::new(next.logical.get() + len);
            next.physical += Blocks::new(len.into());
            next.len -= len;
        }
    }
    taken
}

/// Brings extents to their new place, and maps it instead of the old one.
fn exchange(core: &Core, inode: &Arc<CachedInode>, part: Part, way: Way<'_>, change: Change) -> Result<()> {
    let Part { extents, mut space } = part;
    let Some(first) = extents.first().copied() else { return Ok(()) };
    let physical = core.state.geometry().cluster_start(space.run().start);
    let target = Extent { physical, len: low32(space.len().get()), ..first };
    let blocks = match way {
        _ if target.unwritten => Vec::new(),
        Way::Copied => copy(core, &extents, target.physical).map(|()| Vec::new())?,
        Way::Logged(kinds) => hold(core, inode, &extents, kinds)?,
    };
    let credits = credits::remove_credits(&core.state) + MAP_CREDITS + low32(u64_of(blocks.len()));
    let mut handle = core.start(credits)?;
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    let mut map = MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut data };
    let is_in_place = (change, extents.len()) == (Change::InPlace, 1) && matches!(way, Way::Copied);
    if is_in_place && map.repoint(first, &mut space)? {
        return Ok(());
    }
    let limit = credits::remove_extents(&core.state);
    let mut removed = map.remove_some(target.logical, target.end(), limit);
    if matches!(removed, Err(Error::NoSpace)) {
        // The map had no room to be cut, and is as it was.
        return removed.map(drop);
    }
    // A table that is freed counts like an extent.
    for _ in 0..REMOVALS {
        if matches!(removed, Ok(Progress::More)) {
            removed = map.remove_some(target.logical, target.end(), limit);
        }
    }
    let mapped = match removed {
        Ok(Progress::Done) => map.publish(Piece::held(target, space), target.unwritten),
        Ok(Progress::More) => Ok(0),
        Err(error) => Err(error),
    };
    if mapped.as_ref().is_ok_and(|len| *len == target.len) {
        log_blocks(core, &mut handle, target.physical, blocks);
        return Ok(());
    }
    // The old place is unmapped and the new one is not mapped: that must never be committed.
    let reason = format!("inode {}: its blocks could not be mapped at their new place", inode.nr());
    core.end_changes(&reason);
    mapped.and(Err(Error::Aborted(reason)))
}

/// The blocks of extents, which stay in memory while they move.
fn hold(core: &Core, inode: &CachedInode, extents: &[Extent], kinds: Kinds<'_>) -> Result<Vec<HeldBlock>> {
    let data = inode.get();
    let mut blocks = Vec::new();
    for extent in extents {
        for step in 0..extent.len {
            let logical = LogicalBlock::new(extent.logical.get() + step);
            let (nr, kind) = (extent.physical + Blocks::new(step.into()), kinds(&data, logical));
            let place = Place::FileBlock(inode.nr(), logical);
            blocks.push((kind, core.state.blocks.load(nr, kind, place)?.bytes()));
        }
    }
    Ok(blocks)
}

/// Puts blocks into the cache at places that follow each other, to be logged.
fn log_blocks(core: &Core, handle: &mut Handle<'_>, to: BlockNr, blocks: Vec<HeldBlock>) {
    for (step, (kind, bytes)) in (0..).zip(blocks) {
        let block = core.state.blocks.fresh(to + Blocks::new(step), kind);
        core.state.blocks.edit(handle, &block, kind, |new| new.copy_from_slice(&bytes));
    }
}

/// Copies the content of extents to blocks that follow each other.
fn copy(core: &Core, extents: &[Extent], to: BlockNr) -> Result<()> {
    let size = core.state.geometry().block_size;
    let mut place = to.offset(size);
    let mut buffer = Vec::new();
    for extent in extents {
        let (mut from, mut left) = (extent.physical.offset(size), u64::from(extent.len) << size.shift());
        while left > 0 {
            buffer.resize(index_of(left.min(COPY_STEP)), 0);
            core.state.device.read_at(from, &mut buffer)?;
            device::write_data(core, place, &buffer)?;
            let step = Bytes::new(u64_of(buffer.len()));
            (from, place, left) = (from + step, place + step, left - step.get());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_states_apart_and_cut_what_does_not_fit() {
        let extent = |logical, len, unwritten| Extent {
            logical: LogicalBlock::new(logical),
            len,
            physical: BlockNr::new(u64::from(logical) * 10),
            unwritten,
        };
        let mut rest = VecDeque::from([
            extent(0, 4, false),
            extent(4, 6, false),
            extent(10, 2, true),
            extent(12, 1, false),
        ]);
        let taken = take_front(&mut rest, 7, 9);
        assert_eq!(taken, [extent(0, 4, false), extent(4, 3, false)]);
        let cut = Extent { physical: BlockNr::new(43), ..extent(7, 3, false) };
        assert_eq!(take_front(&mut rest, 100, 9), [cut]);
        assert_eq!(take_front(&mut rest, 100, 9), [extent(10, 2, true)]);
        assert_eq!(take_front(&mut rest, 100, 0), []);
        assert_eq!(take_front(&mut rest, 100, 9), [extent(12, 1, false)]);
    }
}
