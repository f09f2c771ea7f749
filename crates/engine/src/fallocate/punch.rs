//! Punches holes: unmaps whole blocks, and zeroes what the range covers of others.

use super::credits;
use crate::error::{Error, Result};
use crate::file::Source;
use crate::map::MapRef;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::extent::{Mapping, Progress};
use hectare_units::{Bytes, LogicalBlock, low32};
use std::ops::Range;
use std::sync::Arc;

impl Volume {
    pub(crate) fn punch(
        &self,
        inode: &Arc<CachedInode>,
        mut range: Range<u64>,
        source: Source,
    ) -> Result<()> {
        let size = inode.get().size;
        if range.end > size {
            // Nothing after the end in its block has to be kept.
            range.end = range.end.max(size.next_multiple_of(self.geometry().block_size.bytes().get()));
        }
        // The preallocated space was for the old end of the file.
        self.discard_window(inode);
        let blocks = self.whole_blocks(&range);
        let limit = credits::remove_extents(self);
        loop {
            let progress = self.change_map(inode, (credits::remove_credits(self), source), |map| {
                if blocks.is_empty() {
                    return Ok(Progress::Done);
                }
                map.remove_some(LogicalBlock::new(low32(blocks.start)), blocks.end, limit)
            })?;
            if progress == Progress::Done {
                break;
            }
            self.relieve_frees()?;
        }
        self.clear_edges(inode, &range)
    }

    /// Zeroes what a range covers of blocks that it does not cover wholly.
    pub(super) fn clear_edges(&self, inode: &Arc<CachedInode>, range: &Range<u64>) -> Result<()> {
        let size = self.geometry().block_size;
        for part in self.edges(range) {
            if part.is_empty() {
                continue;
            }
            let block = LogicalBlock::containing(Bytes::new(part.start), size).ok_or(Error::FileTooLarge)?;
            // The data lock is not held during I/O: a commit may be waiting for a thread that waits for this
            // lock.
            let mapping = {
                let held = inode.get();
                MapRef { volume: self, nr: inode.nr(), inode: &held }.lookup(block)?
            };
            let Mapping::Mapped(extent) = mapping else { continue };
            if extent.unwritten {
                continue;
            }
            let place = extent.physical.offset(size)
                + Bytes::new(part.start).saturating_sub(extent.logical.offset(size));
            self.clear_place(inode, place, part.end - part.start)?;
        }
        Ok(())
    }
}
