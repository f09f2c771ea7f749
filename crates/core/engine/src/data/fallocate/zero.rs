//! Zeroes a range without freeing its space: holes are allocated, and what is written becomes unwritten.
//!
//! Holes come first, so that a volume that becomes full has lost nothing of the file's content.

use crate::data::checks::Source;
use crate::data::fallocate::credits::{MARK_CREDITS, MARK_EXTENTS};
use crate::data::fallocate::{fill, punch};
use crate::data::{clear, fallocate};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::MAP_CREDITS;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::extent::Mapping;
use hectare_units::{Blocks, LogicalBlock, low32};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

pub(crate) fn zero_range(
    core: &Core,
    inode: &Arc<CachedInode>,
    range: Range<u64>,
    keep_size: bool,
    source: Source,
) -> Result<()> {
    punch::check_changed(core, inode, &range)?;
    fill::fill_range(core, inode, range.clone(), keep_size, source)?;
    let mut blocks = fallocate::whole_blocks(core, &range);
    while let Some(step) = written_in(core, inode, &blocks)? {
        blocks.start = step.end;
        let marked = fallocate::change_map(core, inode, (MARK_CREDITS, source), |map| {
            map.mark(LogicalBlock::new(low32(step.start)), step.end, true)
        });
        match marked {
            Err(Error::NoSpace) => write_zeros(core, inode, step)?,
            marked => marked?,
        }
    }
    punch::clear_edges(core, inode, &range)?;
    fallocate::change_map(core, inode, (MAP_CREDITS, source), |_| Ok(()))
}

/// The first blocks of a range that are written, as many as one transaction may mark.
fn written_in(core: &Core, inode: &CachedInode, blocks: &Range<u64>) -> Result<Option<Range<u64>>> {
    if blocks.is_empty() {
        return Ok(None);
    }
    let held = inode.get();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    let (mut found, mut extents): (Option<Range<u64>>, _) = (None, 0);
    map.for_each(LogicalBlock::new(low32(blocks.start)), &mut |extent| {
        let start = blocks.start.max(extent.logical.get().into());
        if start >= blocks.end || extents == MARK_EXTENTS {
            return ControlFlow::Break(());
        }
        if !extent.unwritten {
            extents += 1;
            found = Some(found.as_ref().map_or(start, |found| found.start)..blocks.end.min(extent.end()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Writes zeros where the blocks are written: there is no space to split an extent, and none is needed to
/// read zeros.
fn write_zeros(core: &Core, inode: &Arc<CachedInode>, mut blocks: Range<u64>) -> Result<()> {
    let size = core.state.geometry().block_size;
    while !blocks.is_empty() {
        let at = LogicalBlock::new(low32(blocks.start));
        let mapping = {
            let held = inode.get();
            MapRef { state: &core.state, nr: inode.nr(), inode: &held }.lookup(at)?
        };
        let Mapping::Mapped(extent) = mapping else {
            return Err(Error::NoSpace); // every hole was filled
        };
        let end = extent.end().min(blocks.end);
        if !extent.unwritten {
            let skip = Blocks::new(blocks.start - u64::from(extent.logical.get()));
            let len = (end - blocks.start) << size.shift();
            clear::clear_place(core, inode, (extent.physical + skip).offset(size), len)?;
        }
        blocks.start = end;
    }
    Ok(())
}
