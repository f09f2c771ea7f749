//! Allocates chosen blocks: holds free blocks by number, and maps them into a file as they are.
//!
//! For laying out a volume on purpose (aging it for a comparison), not for ordinary writing: here the caller
//! chooses the blocks, without a policy. A [`crate::HeldSpace`] is free in the durable bitmap and exclusive
//! in memory; dropping it returns it, [`crate::OpenFile::append_held`] makes it an unwritten extent at the
//! end of a file. No data is written, so an image in a sparse file stays small.
//!
//! Hazard: blocks of extent trees and directories are allocated as usual, from what is free and not held.
//! Holding everything leaves them nothing.

use crate::data::checks::LARGE_FILE;
use crate::data::{inline, writeback};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::{MAP_CREDITS, MapMut};
use crate::space::piece::Piece;
use crate::space::reserve;
use crate::state::{Core, State};
use crate::stores::inode_cache::CachedInode;
use hectare_alloc::{Request, Reservation, Run};
use hectare_ext4::extent::Extent;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::map::MapKind;
use hectare_units::{BlockNr, Bytes, Clusters, LogicalBlock, low32};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// The blocks of a reservation.
pub(crate) fn blocks_of(state: &State, space: &Reservation) -> Range<BlockNr> {
    let (geometry, run) = (state.geometry(), space.run());
    geometry.cluster_start(run.start)..geometry.cluster_start(run.start + run.len)
}

/// Appends held space to a file, in the order given, as unwritten extents. On an error, what was not put into
/// the file is returned.
pub(crate) fn append(
    core: &Core,
    inode: &Arc<CachedInode>,
    pieces: impl IntoIterator<Item = Result<Reservation>>,
) -> Result<()> {
    core.check_takes_changes()?;
    let _operation = inode.lock().write();
    core.check_changeable(inode)?;
    writeback::place_locked(core, inode)?;
    inline::leave(core, inode)?;
    // Preallocated space is for holes, and these are about to be filled.
    reserve::discard_window(core, inode);
    let mut end = end_of(core, inode)?;
    for piece in pieces {
        end = append_one(core, inode, end, piece?)?;
        core.relieve()?;
    }
    Ok(())
}

/// The file block after the last mapped one and the size, which must be whole blocks.
fn end_of(core: &Core, inode: &CachedInode) -> Result<u64> {
    let size = core.state.geometry().block_size;
    let data = inode.get();
    core.state.check_file_writable(&data, inode.nr())?;
    if MapKind::of(data.flags) == MapKind::Blocks {
        return Err(Error::Invalid("a file that is mapped by blocks has no unwritten ones to append"));
    }
    if size.within(Bytes::new(data.size)) != 0 {
        return Err(Error::Invalid("the file does not end with a whole block"));
    }
    let mut end = data.size >> size.shift();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &data };
    map.for_each(LogicalBlock::ZERO, &mut |extent| {
        end = end.max(extent.end());
        ControlFlow::Continue(())
    })?;
    Ok(end.next_multiple_of(core.state.geometry().cluster_blocks().into()))
}

/// Maps one extent at file block `at`; returns the block after it.
fn append_one(core: &Core, inode: &Arc<CachedInode>, at: u64, space: Reservation) -> Result<u64> {
    let blocks = blocks_of(&core.state, &space);
    let end = at + (blocks.end - blocks.start).get();
    if end > u64::from(u32::MAX) {
        return Err(Error::FileTooLarge);
    }
    let mut handle = core.start(MAP_CREDITS)?;
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    let len = low32((blocks.end - blocks.start).get());
    let logical = LogicalBlock::new(low32(at));
    let piece = Piece::held(Extent { logical, len, physical: blocks.start, unwritten: true }, space);
    let mapped =
        MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut data }.publish(piece, true)?;
    data.size = (at + u64::from(mapped)) << core.state.geometry().block_size.shift();
    core.state.stamp(&mut data);
    if data.size >= LARGE_FILE {
        core.state.bring_feature(RoCompat::LARGE_FILE);
    }
    if mapped == len { Ok(end) } else { Err(Error::NoSpace) }
}

/// Holds exactly these blocks, which must be free and lie in one group; whole clusters with `bigalloc`.
pub(crate) fn hold(core: &Core, blocks: Range<BlockNr>) -> Result<Reservation> {
    core.check_takes_changes()?;
    let geometry = core.state.geometry();
    let (first, cluster) = (u64::from(geometry.first_data_block), u64::from(geometry.cluster_blocks()));
    let whole = |block: BlockNr| block.get() >= first && (block.get() - first).is_multiple_of(cluster);
    if blocks.start >= blocks.end || !whole(blocks.start) || !whole(blocks.end) {
        return Err(Error::Invalid("space is held in whole clusters"));
    }
    let len = Clusters::new((blocks.end - blocks.start).get() / cluster);
    let run = Run::new(geometry.cluster_of(blocks.start), len);
    let request =
        Request::new(run.start, len).at_least(len).with_root_reserve(core.state.options.use_reserved_blocks);
    match core.state.allocator.reserve_at(&request)? {
        Some(space) => Ok(space),
        None => {
            // It may be preallocated for another file's next write.
            core.state.allocator.count_discarded(core.state.prealloc.discard_all());
            core.state.allocator.reserve_at(&request)?.ok_or(Error::NoSpace)
        }
    }
}
