//! Finds the smallest size of a volume.
//!
//! One pass of shrinking can't put data where metadata of groups that go still lies, nor where descriptors
//! shrink, because a crash must leave them. A second pass can. So the smallest size is found by passes until
//! one gains nothing; to know it before, they are tried in overlays, with everything but copying data. What
//! is tried is what is done, so an estimate is exact.

use crate::error::{Error, Result};
use crate::metadata;
use crate::run::{self, Attempt, Options, Outcome};
use crate::target;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_units::{Blocks, ClusterNr, GroupNr};
use std::cell::Cell;
use std::sync::Arc;

/// The blocks that a volume has when it is as small as can be.
pub(crate) fn minimum(disk: &Arc<dyn Device>, options: &Options) -> Result<Blocks> {
    let mut device = Arc::clone(disk);
    let mut blocks = size_of(&device)?;
    while let Some(less) = pass(&device, options)? {
        (blocks, device) = (less.after(), less.device());
    }
    Ok(blocks)
}

/// Makes a volume as small as can be; `begun` as for [`run::to_blocks`].
pub(crate) fn minimize(disk: &Arc<dyn Device>, options: &Options, begun: &Cell<bool>) -> Result<Outcome> {
    let mut outcome = run::to_blocks(disk, size_of(disk)?, options, begun)?;
    while let Some(less) = pass(disk, options)? {
        let step = less.carry_out(begun)?;
        outcome.after = step.after;
        outcome.blocks_moved += step.blocks_moved;
        outcome.inodes_moved += step.inodes_moved;
        outcome.in_place |= step.in_place;
        outcome.unchecked = step.unchecked;
    }
    Ok(outcome)
}

fn size_of(device: &Arc<dyn Device>) -> Result<Blocks> {
    Ok(look(device)?.geometry().blocks_count)
}

fn look(device: &Arc<dyn Device>) -> Result<Volume> {
    Volume::open(Arc::clone(device), false)
}

/// The volume in the least size that one pass reaches; `None` if that is no gain.
fn pass<'a>(device: &Arc<dyn Device>, options: &'a Options) -> Result<Option<Attempt<'a>>> {
    let mut volume = look(device)?;
    let before = volume.geometry().blocks_count;
    let mut blocks = bound(&mut volume)?;
    let mut step = 1;
    while blocks < before {
        match Attempt::new(device, blocks, options) {
            Err(Error::NoSpace { missing, .. }) => {
                let more = missing.max(step);
                blocks = usable(&volume, blocks + Blocks::new(more))?;
                step *= 2;
            }
            other => return other,
        }
    }
    Ok(None)
}

/// The next size that a volume can have: one whose last group is of use.
fn usable(volume: &Volume, mut blocks: Blocks) -> Result<Blocks> {
    let ratio = u64::from(volume.geometry().cluster_blocks());
    blocks = Blocks::new(blocks.get().next_multiple_of(ratio));
    let before = volume.geometry().blocks_count;
    while blocks < before {
        match target::superblock(&volume.sb, blocks, target::Width::of(&volume.sb)) {
            Ok(sb) if sb.geometry().blocks_count == blocks => return Ok(blocks),
            Ok(_) | Err(Error::Size(_)) => blocks += Blocks::new(ratio),
            Err(other) => return Err(other),
        }
    }
    Ok(before)
}

/// No pass reaches less than this: below it there are fewer free clusters than clusters of files above it,
/// or fewer inodes than are in use.
fn bound(volume: &mut Volume) -> Result<Blocks> {
    let geometry = volume.geometry().clone();
    let own = metadata::all(&geometry, &volume.groups);
    let used_inodes: u64 =
        volume.groups.iter().map(|desc| u64::from(geometry.inodes_per_group - desc.free_inodes)).sum();
    let groups = used_inodes.div_ceil(geometry.inodes_per_group.into()).max(1);
    let least = (groups - 1) * u64::from(geometry.clusters_per_group) + 1;
    let mut free_below: u64 = volume.groups.iter().map(|desc| u64::from(desc.free_clusters)).sum();
    let (mut used_above, mut end) = (0, geometry.clusters_count().get());
    'groups: for group in (0..geometry.groups()).rev().map(GroupNr::new) {
        let first = u64::from(group.get()) * u64::from(geometry.clusters_per_group);
        let taken = metadata::len_within(&own, &(first..end));
        let free = u64::from(volume.groups[group.index()].free_clusters);
        let used = (end - first).saturating_sub(free + taken);
        if first >= least && used_above + used <= free_below.saturating_sub(free) {
            (used_above, free_below, end) = (used_above + used, free_below - free, first);
            continue;
        }
        while end > first && end > least {
            let cluster = end - 1;
            if !volume.is_used(cluster)? {
                free_below = free_below.saturating_sub(1);
            } else if !own.contains(&cluster) {
                used_above += 1;
            }
            if used_above > free_below {
                break 'groups;
            }
            end = cluster;
        }
        break;
    }
    let blocks = Blocks::new(geometry.cluster_start(ClusterNr::new(end)).get()).min(geometry.blocks_count);
    usable(volume, blocks)
}
