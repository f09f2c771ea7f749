//! Moves bitmaps and inode tables of groups that stay.

use crate::error::Result;
use crate::metadata;
use crate::places::Places;
use crate::volume::Volume;
use hectare_ext4::geometry::Geometry;
use hectare_units::{BlockNr, GroupNr};
use rangemap::RangeSet;
use std::ops::Range;

/// Moves what the first `kept` groups have in `leaving`; gives the clusters that were left, which are not to
/// be taken before this is on disk, or `None` if there was nothing.
pub(super) fn relocate(
    volume: &mut Volume,
    leaving: &RangeSet<u64>,
    kept: u32,
) -> Result<Option<RangeSet<u64>>> {
    let geometry = volume.geometry().clone();
    let moving: Vec<GroupNr> = (0..kept)
        .map(GroupNr::new)
        .filter(|group| {
            let parts = metadata::own(&geometry, &volume.groups[group.index()]);
            parts.iter().any(|part| is_leaving(&geometry, leaving, part))
        })
        .collect();
    if moving.is_empty() {
        return Ok(None);
    }
    let before = metadata::all(&geometry, &volume.groups);
    let groups = volume.groups.clone();
    for group in &moving {
        // Loaded while the descriptor still says where they lie.
        volume.block_bitmap(*group)?.is_dirty = true;
        volume.inode_bitmap(*group)?.is_dirty = true;
    }
    let mut found = Vec::new();
    let mut places = Places::new(volume, &geometry, &groups, leaving.clone());
    for group in moving {
        let parts = metadata::own(&geometry, &groups[group.index()]);
        let mut at = parts.clone().map(|part| BlockNr::new(part.start));
        for (part, at) in parts.iter().zip(&mut at) {
            if is_leaving(&geometry, leaving, part) {
                *at = places.find(group, None, part.end - part.start)?;
            }
        }
        found.push((group, parts, at));
    }
    for (group, [_, _, table], [block_bitmap, inode_bitmap, inode_table]) in found {
        for (from, to) in table.zip(inode_table.get()..) {
            if from != to {
                let bytes = volume.read(BlockNr::new(from))?;
                volume.write(BlockNr::new(to), &bytes)?;
            }
        }
        let desc = volume.desc_mut(group);
        (desc.block_bitmap, desc.inode_bitmap, desc.inode_table) = (block_bitmap, inode_bitmap, inode_table);
    }
    let after = metadata::all(&geometry, &volume.groups);
    for range in metadata::without(&after, &before) {
        volume.take(range)?;
    }
    let left = metadata::without(&before, &after);
    for range in &left {
        volume.mark(range.clone(), false)?;
    }
    Ok(Some(left.into_iter().collect()))
}

fn is_leaving(geometry: &Geometry, leaving: &RangeSet<u64>, part: &Range<u64>) -> bool {
    leaving.overlaps(&metadata::clusters(geometry, part))
}
