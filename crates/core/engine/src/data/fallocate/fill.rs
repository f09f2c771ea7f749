//! Allocates holes as unwritten extents. What is mapped stays as it is, and nothing is written.

use crate::data::checks::{FILE_BLOCKS_MAX, LARGE_FILE, Source};
use crate::data::{checks, clear, reclaim};
use crate::error::Result;
use crate::space::map::MapRef;
use crate::space::map_edit::{MAP_CREDITS, MapMut};
use crate::space::piece::{Piece, Use};
use crate::space::reserve;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::extent::Mapping;
use hectare_ext4::feature::RoCompat;
use hectare_units::{LogicalBlock, low32};
use std::ops::Range;
use std::sync::Arc;

/// Maps the holes of a range of bytes, one after the other. The size grows with each unless `keep_size`,
/// so that a volume that becomes full leaves a file as long as what was allocated. Returns whether there
/// were any, and so the file was stamped.
pub(crate) fn fill_range(
    core: &Core,
    inode: &Arc<CachedInode>,
    bytes: Range<u64>,
    keep_size: bool,
    source: Source,
) -> Result<bool> {
    if !keep_size {
        clear::clear_tail(core, inode, bytes.end)?;
    }
    let size = core.state.geometry().block_size;
    let mut blocks = bytes.start >> size.shift()..bytes.end.div_ceil(size.bytes().get());
    let size_max = if keep_size { 0 } else { bytes.end };
    if size_max >= LARGE_FILE {
        core.state.bring_feature(RoCompat::LARGE_FILE);
    }
    let mut changed = false;
    while !blocks.is_empty() {
        let seen = core.seen();
        let (next, filled) = match fill_hole(core, inode, &blocks, size_max, source) {
            Err(error) if core.may_lack_space(&error) && reclaim::reclaim(core, seen)? => continue,
            step => step?,
        };
        (blocks.start, changed) = (next, changed || filled);
    }
    Ok(changed)
}

/// Passes one mapped run or fills (the start of) one hole at the start of a range of file blocks; returns
/// the block after it, and whether anything changed. The file grows with it, to at most `size_max`.
fn fill_hole(
    core: &Core,
    inode: &Arc<CachedInode>,
    range: &Range<u64>,
    size_max: u64,
    source: Source,
) -> Result<(u64, bool)> {
    let (logical, len) = (LogicalBlock::new(low32(range.start)), low32(range.end - range.start));
    let (piece, mut done) = match reserve::kept_for(core, inode, logical, len) {
        Some(piece) => (Some(piece), range.start),
        None => run_or_piece(core, inode, range)?,
    };
    let size_at = |done: u64| (done << core.state.geometry().block_size.shift()).min(size_max);
    if piece.is_none() && size_at(done) <= inode.get().size {
        return Ok((done, false));
    }
    let mut handle = core.start(MAP_CREDITS)?;
    let mut target = inode.edit(&mut handle, &core.state.inodes);
    if let Some(piece) = piece {
        let mapped =
            MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut target }.publish(piece, true)?;
        done = range.start + u64::from(mapped);
    }
    target.size = target.size.max(size_at(done));
    checks::stamp_for(core, &mut target, source);
    Ok((done, true))
}

/// What is at the start of a range of file blocks: a mapped run, by the block after it, or (the start of)
/// a hole, with space reserved for it.
fn run_or_piece(core: &Core, inode: &CachedInode, range: &Range<u64>) -> Result<(Option<Piece>, u64)> {
    let logical = LogicalBlock::new(low32(range.start));
    let held = inode.get();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    let next = match map.lookup(logical)? {
        Mapping::Mapped(extent) => return Ok((None, extent.end())),
        Mapping::Hole { next } => next.map_or(FILE_BLOCKS_MAX, |next| next.get().into()),
    };
    let len = low32(range.end.min(next) - range.start);
    let piece = reserve::reserve_for(core, inode.nr(), &held, logical, len, Use::explicit(inode))?;
    Ok((Some(piece), range.start))
}
