//! Gives a volume another shape: more or fewer groups, other places or sizes of descriptors.
//!
//! No file is touched. What the new shape's metadata takes must be free ([`occupied`] says what is not), and
//! in groups that go nothing may be in use but their own metadata; [`crate::evacuate`] sees to both before.

use crate::error::{Error, Result};
use crate::metadata;
use crate::places;
use crate::target;
use crate::volume::Volume;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{Blocks, ClusterNr, GroupNr, usize_of};
use rangemap::RangeSet;
use std::ops::Range;

/// Clusters that the base metadata of the shape `new` takes beyond what it has.
pub(crate) fn gained(volume: &Volume, new: &SuperBlock) -> Vec<Range<u64>> {
    let bases = |geometry: &Geometry| {
        let mut clusters = RangeSet::new();
        for nr in (0..geometry.groups()).map(GroupNr::new) {
            metadata::insert(&mut clusters, metadata::clusters(geometry, &metadata::base(geometry, nr)));
        }
        clusters
    };
    metadata::without(&bases(new.geometry()), &bases(volume.geometry()))
}

/// Those of them that the volume has, if one is in use. Free ones are among them: what moves out of the way
/// must not go there.
pub(crate) fn occupied(volume: &mut Volume, new: &SuperBlock) -> Result<RangeSet<u64>> {
    let old_end = volume.geometry().clusters_count().get();
    let mut found = RangeSet::new();
    let mut is_used = false;
    for range in gained(volume, new) {
        let known = range.start..range.end.min(old_end);
        for cluster in known.clone() {
            is_used = is_used || volume.is_used(cluster)?;
        }
        metadata::insert(&mut found, known);
    }
    Ok(if is_used { found } else { RangeSet::new() })
}

/// Gives the volume the shape of `new`.
pub(crate) fn reshape(volume: &mut Volume, mut new: SuperBlock) -> Result<()> {
    let old = volume.geometry().clone();
    let before = metadata::all(&old, &volume.groups);
    let groups = places::groups(volume, &new)?;
    let after = metadata::all(new.geometry(), &groups);
    let (old_end, new_end) = (old.clusters_count().get(), new.geometry().clusters_count().get());
    for range in metadata::without(&after, &before) {
        let known = range.start..range.end.min(old_end);
        if known.start < known.end {
            require_free(volume, known.clone())?;
            volume.take(known)?;
        }
    }
    for range in metadata::without(&before, &after) {
        let kept = range.start..range.end.min(new_end);
        if kept.start < kept.end {
            volume.mark(kept, false)?;
        }
    }
    move_end(volume, old_end, new_end, old.groups(), new.geometry().groups())?;
    // What of the old last group was beyond the end is known only now.
    let group_end = u64::from(old.groups()) * u64::from(old.clusters_per_group);
    for range in metadata::without(&after, &before) {
        volume.mark(range.start.max(old_end)..range.end.min(group_end), true)?;
    }
    target::add_overhead(&mut new, metadata::len(&before), metadata::len(&after));
    let resealed = new.geometry().desc_size != old.desc_size;
    volume.take_shape(new, groups);
    let new_groups = volume.geometry().groups();
    for nr in (old.groups()..new_groups).map(GroupNr::new) {
        write_group(volume, nr, &after)?;
    }
    volume.touch(old.groups()..new_groups);
    if resealed {
        reseal(volume, old.groups().min(new_groups))?;
    }
    Ok(())
}

fn require_free(volume: &mut Volume, clusters: Range<u64>) -> Result<()> {
    let len = clusters.end - clusters.start;
    match volume.free_run(clusters.clone(), len)? {
        Some(run) if run == clusters => Ok(()),
        _ => {
            // A run ends with its group.
            for cluster in clusters {
                if volume.is_used(cluster)? {
                    let nr = volume.geometry().cluster_start(ClusterNr::new(cluster));
                    let what = format!("metadata of groups at block {nr}, which is in use,");
                    return Err(Error::NoSpace { what, missing: 1 });
                }
            }
            Ok(())
        }
    }
}

/// Opens the old last group up to the new end, or has the new last group written with what lies beyond it
/// set.
fn move_end(volume: &mut Volume, old_end: u64, new_end: u64, old: u32, new: u32) -> Result<()> {
    let per = u64::from(volume.geometry().clusters_per_group);
    let group_end = u64::from(old) * per;
    if new_end > old_end {
        let bits = |cluster: u64| hectare_units::low32(cluster - (group_end - per));
        let end = new_end.min(group_end);
        let opened = bits(old_end)..bits(end);
        if !opened.is_empty() {
            volume.block_bitmap(GroupNr::new(old - 1))?.put(opened, false);
        }
    } else if new_end < old_end {
        let last = GroupNr::new(new - 1);
        volume.block_bitmap(last)?.is_dirty = true;
    }
    Ok(())
}

/// Writes what a new group has: its bitmaps, unless they follow from the descriptor, and an empty table.
fn write_group(volume: &mut Volume, group: GroupNr, metadata: &RangeSet<u64>) -> Result<()> {
    let (geometry, sb) = (volume.geometry().clone(), volume.sb.clone());
    let lazy = sb.features().group_checksums();
    let first = u64::from(group.get()) * u64::from(geometry.clusters_per_group);
    let within = first..first + u64::from(geometry.clusters_in(group));
    let mut bits = vec![0; geometry.block_size.len()];
    metadata::mark(&mut bits, &geometry, group, metadata.overlapping(&within).cloned());
    let desc = &mut volume.groups[group.index()];
    let is_last = group.get() + 1 == geometry.groups();
    let is_derived = bits == metadata::derived(&geometry, group, desc);
    let clusters = geometry.clusters_in(group);
    let mut bitmap = crate::bitmap::Bitmap::new(bits);
    desc.free_clusters = clusters - bitmap.count(clusters);
    if lazy && is_derived && !is_last {
        desc.flags |= GroupFlags::BLOCK_UNINIT;
    } else {
        desc.seal_block_bitmap(bitmap.padded(clusters), &sb);
        let at = desc.block_bitmap;
        volume.write(at, bitmap.padded(clusters))?;
    }
    if !lazy {
        let desc: GroupDesc = volume.groups[group.index()].clone();
        let mut bitmap = crate::bitmap::Bitmap::new(vec![0; geometry.block_size.len()]);
        volume.write(desc.inode_bitmap, bitmap.padded(geometry.inodes_per_group))?;
        volume.zero_unused(desc.inode_table, Blocks::new(geometry.itable_blocks().into()))?;
    }
    Ok(())
}

/// Renews the checksums of bitmaps, of which a descriptor of another size has more or fewer bits.
fn reseal(volume: &mut Volume, groups: u32) -> Result<()> {
    volume.touch(0..groups);
    if volume.sb.seed().is_none() {
        return Ok(());
    }
    let sb = volume.sb.clone();
    for nr in 0..usize_of(groups) {
        let desc = volume.groups[nr].clone();
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bytes = volume.read(desc.block_bitmap)?;
            volume.groups[nr].seal_block_bitmap(&bytes, &sb);
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let bytes = volume.read(desc.inode_bitmap)?;
            volume.groups[nr].seal_inode_bitmap(&bytes, &sb);
        }
    }
    Ok(())
}
