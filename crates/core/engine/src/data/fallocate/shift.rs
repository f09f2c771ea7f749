//! Removes a range from a file, or inserts one: what follows moves, which changes the map only.
//!
//! A file of few extents is changed in one transaction. Of a larger one, the tree moves some leaves at a time
//! ([`extent::shift_down`], [`extent::shift_up`]); in between, the hole lies somewhere in what follows.

use crate::data::checks::{FILE_BLOCKS_MAX, LARGE_FILE, Source};
use crate::data::fallocate::credits;
use crate::data::fallocate::credits::{SHIFT_CREDITS, SHIFT_LEAVES};
use crate::data::fallocate::punch;
use crate::data::{checks, fallocate};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::MapMut;
use crate::space::reserve;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::extent::{self, Progress};
use hectare_ext4::feature::RoCompat;
use hectare_units::{LogicalBlock, low32, usize_of};
use std::ops::Range;
use std::sync::Arc;

/// How far a collapse has come.
#[derive(Clone, Copy)]
enum Stage {
    /// Some of the range is still mapped.
    Unmapping,
    /// What is mapped from here on is still to be moved.
    Moving(LogicalBlock),
    /// All has moved, and the size with it.
    Done,
}

pub(crate) fn collapse(
    core: &Core,
    inode: &Arc<CachedInode>,
    range: Range<u64>,
    source: Source,
) -> Result<()> {
    let blocks = whole_clusters(core, &range)?;
    if range.end >= inode.get().size {
        return Err(Error::Invalid("a range to collapse ends before the file does"));
    }
    punch::check_changed(core, inode, &range)?;
    // Preallocated space is for holes, by their offset in the file.
    reserve::discard_window(core, inode);
    let mut stage = Stage::Unmapping;
    loop {
        let credits = match stage {
            Stage::Unmapping => credits::collapse_credits(&core.state),
            Stage::Moving(_) => SHIFT_CREDITS,
            Stage::Done => return Ok(()),
        };
        stage = fallocate::change_map(core, inode, (credits, source), |map| {
            collapse_step(core, map, &blocks, stage)
        })?;
        core.relieve_frees()?;
    }
}

fn collapse_step(core: &Core, map: &mut MapMut<'_, '_>, blocks: &Range<u64>, stage: Stage) -> Result<Stage> {
    let from = match stage {
        Stage::Moving(from) => from,
        _ => {
            let start = LogicalBlock::new(low32(blocks.start));
            if map.remove_some(start, blocks.end, credits::remove_extents(&core.state))? == Progress::More {
                return Ok(Stage::Unmapping);
            }
            LogicalBlock::new(low32(blocks.end))
        }
    };
    let by = blocks.end - blocks.start;
    if let Some(next) = extent::shift_down(map, from, low32(by), usize_of(SHIFT_LEAVES))? {
        return Ok(Stage::Moving(next));
    }
    map.inode.size = map.inode.size.saturating_sub(by << core.state.geometry().block_size.shift());
    Ok(Stage::Done)
}

pub(crate) fn insert_range(
    core: &Core,
    inode: &Arc<CachedInode>,
    (at, len): (u64, u64),
    source: Source,
) -> Result<()> {
    let blocks = whole_clusters(core, &(at..at.saturating_add(len)))?;
    let size = inode.get().size;
    if at >= size {
        return Err(Error::Invalid("a range to insert begins before the file's end"));
    }
    let grown = checks::check_size(core, inode, size, len)?;
    let by = blocks.end - blocks.start;
    if mapped_to(core, inode, blocks.start)?.saturating_add(by) > FILE_BLOCKS_MAX {
        return Err(Error::Invalid("what lies beyond the file's end can't be moved further"));
    }
    if grown >= LARGE_FILE {
        core.state.bring_feature(RoCompat::LARGE_FILE);
    }
    reserve::discard_window(core, inode);
    let mut next = Some(1 << 32);
    while let Some(to) = next {
        next = fallocate::change_map(core, inode, (SHIFT_CREDITS, source), |map| {
            let from = LogicalBlock::new(low32(blocks.start));
            let next = extent::shift_up(map, from, to, low32(by), usize_of(SHIFT_LEAVES))?;
            map.inode.size = grown;
            Ok(next)
        })?;
        core.relieve()?;
    }
    Ok(())
}

/// The block after the last that is mapped; at least `from`.
fn mapped_to(core: &Core, inode: &CachedInode, from: u64) -> Result<u64> {
    let held = inode.get();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    Ok(extent::last(&map)?.map_or(from, |extent| extent.end().max(from)))
}

/// The blocks of a range that is made of whole clusters.
fn whole_clusters(core: &Core, range: &Range<u64>) -> Result<Range<u64>> {
    let geometry = core.state.geometry();
    let cluster = geometry.cluster_bytes();
    if !range.start.is_multiple_of(cluster) || !range.end.is_multiple_of(cluster) {
        return Err(Error::Invalid("a range to collapse or insert is made of whole clusters"));
    }
    let shift = geometry.block_size.shift();
    Ok(range.start >> shift..range.end >> shift)
}
