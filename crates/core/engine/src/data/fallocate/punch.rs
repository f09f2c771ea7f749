//! Punches holes: unmaps whole blocks, and zeroes what the range covers of others.

use crate::data::checks::Source;
use crate::data::fallocate::credits;
use crate::data::{clear, fallocate};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::reserve;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::extent::{Mapping, Progress};
use hectare_units::{Bytes, LogicalBlock, low32};
use std::ops::Range;
use std::sync::Arc;

pub(crate) fn punch(
    core: &Core,
    inode: &Arc<CachedInode>,
    mut range: Range<u64>,
    source: Source,
) -> Result<()> {
    let size = inode.get().size;
    if range.end > size {
        // Nothing after the end in its block has to be kept.
        range.end = range.end.max(size.next_multiple_of(core.state.geometry().block_size.bytes().get()));
    }
    // The preallocated space was for the old end of the file.
    reserve::discard_window(core, inode);
    let blocks = fallocate::whole_blocks(core, &range);
    check_changed(core, inode, &range)?;
    let limit = credits::remove_extents(&core.state);
    loop {
        let progress =
            fallocate::change_map(core, inode, (credits::remove_credits(&core.state), source), |map| {
                if blocks.is_empty() {
                    return Ok(Progress::Done);
                }
                map.remove_some(LogicalBlock::new(low32(blocks.start)), blocks.end, limit)
            })?;
        if progress == Progress::Done {
            break;
        }
        core.relieve_frees()?;
    }
    clear_edges(core, inode, &range)
}

/// Returns an error if a block of which a range of bytes covers a part can't be freed or overwritten, before
/// anything is changed.
pub(crate) fn check_changed(core: &Core, inode: &CachedInode, range: &Range<u64>) -> Result<()> {
    let size = core.state.geometry().block_size;
    let held = inode.get();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    let first = LogicalBlock::new(low32(range.start >> size.shift()));
    map.check_range(first, range.end.div_ceil(size.bytes().get()))
}

/// Zeroes what a range covers of blocks that it does not cover wholly.
pub(crate) fn clear_edges(core: &Core, inode: &Arc<CachedInode>, range: &Range<u64>) -> Result<()> {
    let size = core.state.geometry().block_size;
    for part in fallocate::edges(core, range) {
        if part.is_empty() {
            continue;
        }
        let block = LogicalBlock::containing(Bytes::new(part.start), size).ok_or(Error::FileTooLarge)?;
        // The data lock is not held during I/O: a commit may be waiting for a thread that waits for this
        // lock.
        let mapping = {
            let held = inode.get();
            MapRef { state: &core.state, nr: inode.nr(), inode: &held }.lookup(block)?
        };
        let Mapping::Mapped(extent) = mapping else { continue };
        if extent.unwritten {
            continue;
        }
        let place =
            extent.physical.offset(size) + Bytes::new(part.start).saturating_sub(extent.logical.offset(size));
        clear::clear_place(core, inode, place, part.end - part.start)?;
    }
    Ok(())
}
