//! Zeroes a range without freeing its space: holes are allocated, and what is written becomes unwritten.
//!
//! Holes come first, so that a volume that becomes full has lost nothing of the file's content.

use super::credits::{MARK_CREDITS, MARK_EXTENTS};
use crate::error::{Error, Result};
use crate::file::Source;
use crate::map::{MAP_CREDITS, MapRef};
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::extent::{self, Mapping};
use hectare_units::{Blocks, LogicalBlock, low32};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

impl Volume {
    pub(super) fn zero_range(
        &self,
        inode: &Arc<CachedInode>,
        range: Range<u64>,
        keep_size: bool,
        source: Source,
    ) -> Result<()> {
        self.fill_range(inode, range.clone(), keep_size, source)?;
        let mut blocks = self.whole_blocks(&range);
        while let Some(step) = self.written_in(inode, &blocks)? {
            blocks.start = step.end;
            let marked = self.change_map(inode, (MARK_CREDITS, source), |map| {
                extent::mark(map, LogicalBlock::new(low32(step.start)), step.end, true)
            });
            match marked {
                Err(Error::NoSpace) => self.write_zeros(inode, step)?,
                marked => marked?,
            }
        }
        self.clear_edges(inode, &range)?;
        self.change_map(inode, (MAP_CREDITS, source), |_| Ok(()))
    }

    /// The first blocks of a range that are written, as many as one transaction may mark.
    fn written_in(&self, inode: &CachedInode, blocks: &Range<u64>) -> Result<Option<Range<u64>>> {
        if blocks.is_empty() {
            return Ok(None);
        }
        let held = inode.get();
        let map = MapRef { volume: self, nr: inode.nr(), inode: &held };
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
    fn write_zeros(&self, inode: &Arc<CachedInode>, mut blocks: Range<u64>) -> Result<()> {
        let size = self.geometry().block_size;
        while !blocks.is_empty() {
            let at = LogicalBlock::new(low32(blocks.start));
            let mapping = {
                let held = inode.get();
                MapRef { volume: self, nr: inode.nr(), inode: &held }.lookup(at)?
            };
            let Mapping::Mapped(extent) = mapping else {
                return Err(Error::NoSpace); // every hole was filled
            };
            let end = extent.end().min(blocks.end);
            if !extent.unwritten {
                let skip = Blocks::new(blocks.start - u64::from(extent.logical.get()));
                let len = (end - blocks.start) << size.shift();
                self.clear_place(inode, (extent.physical + skip).offset(size), len)?;
            }
            blocks.start = end;
        }
        Ok(())
    }
}
