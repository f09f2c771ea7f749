//! Allocates holes as unwritten extents. What is mapped stays as it is, and nothing is written.

use crate::error::{Error, Result};
use crate::file::{FILE_BLOCKS_MAX, LARGE_FILE, Source};
use crate::map::{MAP_CREDITS, MapMut, MapRef};
use crate::space::{Piece, Use};
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::extent::Mapping;
use hectare_ext4::feature::RoCompat;
use hectare_units::{LogicalBlock, low32};
use std::ops::Range;
use std::sync::Arc;

impl Volume {
    /// Maps the holes of a range of bytes, one after the other. The size grows with each unless `keep_size`,
    /// so that a volume that becomes full leaves a file as long as what was allocated. Returns whether there
    /// were any, and so the file was stamped.
    pub(super) fn fill_range(
        &self,
        inode: &Arc<CachedInode>,
        bytes: Range<u64>,
        keep_size: bool,
        source: Source,
    ) -> Result<bool> {
        if !keep_size {
            self.clear_tail(inode, bytes.end)?;
        }
        let size = self.geometry().block_size;
        let mut blocks = bytes.start >> size.shift()..bytes.end.div_ceil(size.bytes().get());
        let size_max = if keep_size { 0 } else { bytes.end };
        if size_max >= LARGE_FILE {
            self.bring_feature(RoCompat::LARGE_FILE);
        }
        let mut changed = false;
        while !blocks.is_empty() {
            let seen = self.seen();
            let (next, filled) = match self.fill_hole(inode, &blocks, size_max, source) {
                Err(Error::NoSpace) if self.reclaim(seen)? => continue,
                step => step?,
            };
            (blocks.start, changed) = (next, changed || filled);
        }
        Ok(changed)
    }

    /// Passes one mapped run or fills (the start of) one hole at the start of a range of file blocks; returns
    /// the block after it, and whether anything changed. The file grows with it, to at most `size_max`.
    fn fill_hole(
        &self,
        inode: &Arc<CachedInode>,
        range: &Range<u64>,
        size_max: u64,
        source: Source,
    ) -> Result<(u64, bool)> {
        let (logical, len) = (LogicalBlock::new(low32(range.start)), low32(range.end - range.start));
        let (piece, mut done) = match self.kept_for(inode, logical, len) {
            Some(piece) => (Some(piece), range.start),
            None => self.run_or_piece(inode, range)?,
        };
        let size_at = |done: u64| (done << self.geometry().block_size.shift()).min(size_max);
        if piece.is_none() && size_at(done) <= inode.get().size {
            return Ok((done, false));
        }
        let mut handle = self.start(MAP_CREDITS)?;
        let mut target = inode.edit(&mut handle, &self.inodes);
        if let Some(piece) = piece {
            let mapped = MapMut { volume: self, handle: &mut handle, nr: inode.nr(), inode: &mut target }
                .publish(piece, true)?;
            done = range.start + u64::from(mapped);
        }
        target.size = target.size.max(size_at(done));
        self.stamp_for(&mut target, source);
        Ok((done, true))
    }

    /// What is at the start of a range of file blocks: a mapped run, by the block after it, or (the start of)
    /// a hole, with space reserved for it.
    fn run_or_piece(&self, inode: &CachedInode, range: &Range<u64>) -> Result<(Option<Piece>, u64)> {
        let logical = LogicalBlock::new(low32(range.start));
        let held = inode.get();
        let map = MapRef { volume: self, nr: inode.nr(), inode: &held };
        let next = match map.lookup(logical)? {
            Mapping::Mapped(extent) => return Ok((None, extent.end())),
            Mapping::Hole { next } => next.map_or(FILE_BLOCKS_MAX, |next| next.get().into()),
        };
        let len = low32(range.end.min(next) - range.start);
        let piece = self.reserve_for(inode.nr(), &held, logical, len, Use::explicit(inode))?;
        Ok((Some(piece), range.start))
    }
}
