//! Allocates and frees inodes.
//!
//! A file goes into its directory's group, so that what is listed together is read together; when that group
//! is full, into the one that served the directory last, another group of the same flex group, one found by
//! probing, or any. A directory goes where [`orlov`] puts it, into the first group of that flex group with a
//! free inode: directories lie close together, and leave the groups their files grow into.
//!
//! Nothing here walks the groups: [`crate::stores::groups::flex`] keeps sums over flex groups, and reads a
//! flex group on first use; so each rule but the last examines a bounded number of them. The last resort goes
//! over all flex groups, and searches only those with free inodes. While nothing is freed, that finds the
//! last free inode however many threads search.

mod orlov;

use crate::error::{Error, Result};
use crate::state::Core;
use crate::stores::fs_errors::Watched;
use crate::stores::groups::Taken;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_journal::Handle;
use hectare_units::{GroupNr, InodeNr};
use orlov::{Shape, Totals};
use std::ops::Range;
use std::sync::Arc;

/// Makes an inode in a free slot. It has no links yet and is in no directory.
pub(crate) fn new_inode(
    core: &Core,
    handle: &mut Handle<'_>,
    parent: InodeNr,
    mut inode: Inode,
) -> Result<Arc<CachedInode>> {
    let directory = inode.kind() == Some(Kind::Directory);
    let quota = core.state.claim_inode(&inode)?;
    let taken = if directory { take_for_directory(core, parent)? } else { take_for_file(core, parent)? };
    let Taken { nr, fresh_block } = taken.ok_or(Error::NoInodes)?;
    // Kept until the inode has found it in the cache.
    let _fresh = fresh_block.map(|block| core.state.blocks.load_zeros(block));
    let home = match core.state.inode_home(nr) {
        Ok(home) => home,
        Err(error) => {
            core.state.groups.free_inode(nr, directory)?;
            return Err(error);
        }
    };
    inode.generation = core.state.arbitrary();
    let cached = core.state.inodes.insert_new(nr, inode, home);
    drop(cached.edit(handle, &core.state.inodes));
    core.state.count_inode(nr, &cached.get(), quota);
    Ok(cached)
}

/// Allocates an inode for anything but a directory.
fn take_for_file(core: &Core, parent: InodeNr) -> Result<Option<Taken>> {
    let groups = &core.state.groups;
    let (home, _) = groups.slot(parent)?;
    if let Some(taken) = groups.take_inode(home, false)? {
        return Ok(Some(taken));
    }
    let recent = groups.recent().get(parent).filter(|group| groups.has_inodes(*group));
    let near = || flex_from(core, home).find(|group| groups.has_inodes(*group));
    let probe = || {
        orlov::probes(core.state.geometry().groups(), home.get(), parent.get())
            .map(GroupNr::new)
            .find(|group| groups.has_room(*group))
    };
    if let Some(group) = recent.or_else(near).or_else(probe)
        && let Some(taken) = groups.take_inode(group, false)?
    {
        groups.recent().set(parent, group);
        return Ok(Some(taken));
    }
    let taken = take_anywhere(core, groups.flex().of(home), false)?;
    if let Some(taken) = taken {
        groups.recent().set(parent, groups.slot(taken.nr)?.0);
    }
    Ok(taken)
}

/// Allocates an inode for a directory.
fn take_for_directory(core: &Core, parent: InodeNr) -> Result<Option<Taken>> {
    let flex = core.state.groups.flex();
    let (home, _) = core.state.groups.slot(parent)?;
    let home = flex.of(home);
    let shape = shape(core);
    // One that can't be read is not a candidate.
    let counts = |nr| core.state.groups.flex_counts(nr).unwrap_or_default();
    if begins_trees(core, parent)? {
        let start = if flex.count() == 1 { 0 } else { core.state.arbitrary() % flex.count() };
        let chosen = shape.top_directory(start, counts).or_else(|| shape.any(start, counts));
        return take_anywhere(core, chosen.unwrap_or(home), true);
    }
    let start = core.state.groups.recent().get(parent).map_or(home, |group| flex.of(group));
    let chosen = shape.subdirectory(home, start, counts).or_else(|| shape.any(start, counts));
    let taken = take_anywhere(core, chosen.unwrap_or(home), true)?;
    if let Some(taken) = taken {
        let (group, _) = core.state.groups.slot(taken.nr)?;
        if flex.of(group) != home {
            core.state.groups.recent().set(parent, group);
        }
    }
    Ok(taken)
}

/// Whether the subdirectories of a directory are unrelated to each other.
fn begins_trees(core: &Core, directory: InodeNr) -> Result<bool> {
    if directory == InodeNr::ROOT {
        return Ok(true);
    }
    Ok(core.state.inode(directory)?.get().flags.contains(InodeFlags::TOPDIR))
}

fn shape(core: &Core) -> Shape {
    let (geometry, flex) = (core.state.geometry(), core.state.groups.flex());
    Shape {
        flexes: flex.count(),
        inodes: u64::from(geometry.inodes_per_group) * u64::from(flex.size()),
        clusters: u64::from(geometry.clusters_per_group) * u64::from(flex.size()),
        totals: Totals {
            free_inodes: core.state.groups.free_inodes().into(),
            free_clusters: flex.free_clusters(),
            directories: flex.directories(),
        },
    }
}

/// The groups of a group's flex group, from that one on and around.
fn flex_from(core: &Core, group: GroupNr) -> impl Iterator<Item = GroupNr> {
    let flex = core.state.groups.flex();
    let nr = flex.of(group);
    let has_inodes = core.state.groups.flex_counts(nr).is_ok_and(|counts| counts.free_inodes > 0);
    let Range { start, end } = if has_inodes { flex.groups(nr) } else { 0..0 };
    (group.get()..end).chain(start..group.get().min(end)).map(GroupNr::new)
}

/// Allocates the first free inode from a flex group on.
fn take_anywhere(core: &Core, start: u32, directory: bool) -> Result<Option<Taken>> {
    let mut unreadable = None;
    for flex in (start..core.state.groups.flex().count()).chain(0..start) {
        let taken = match core.state.groups.flex_counts(flex) {
            Ok(counts) if counts.free_inodes > 0 => take_in(core, flex, directory)?,
            Ok(_) => None,
            Err(error) => {
                unreadable.get_or_insert(error);
                None
            }
        };
        if taken.is_some() {
            return Ok(taken);
        }
    }
    // If not all groups were readable, it is unknown whether there is none.
    unreadable.map_or(Ok(None), Err)
}

/// Allocates the first free inode of a flex group.
fn take_in(core: &Core, flex: u32, directory: bool) -> Result<Option<Taken>> {
    for group in core.state.groups.flex().groups(flex).map(GroupNr::new) {
        if core.state.groups.has_inodes(group)
            && let Some(taken) = core.state.groups.take_inode(group, directory)?
        {
            return Ok(Some(taken));
        }
    }
    Ok(None)
}

/// Frees an inode that has no content any more. The caller holds its operation lock.
pub(crate) fn free_inode(core: &Core, handle: &mut Handle<'_>, inode: &Arc<CachedInode>) -> Result<()> {
    let directory = {
        let now = core.state.now();
        let mut data = inode.edit(handle, &core.state.inodes);
        let directory = data.kind() == Some(Kind::Directory);
        data.dtime = hectare_units::low32(now.seconds.max(1).cast_unsigned());
        data.links = 0;
        data.size = 0;
        data.sectors = 0;
        directory
    };
    // Before the number is free: a commit that found the inode busy and not freed would write it over the next
    // owner of the number.
    inode.set_freed(true);
    if let Err(error) = core.state.groups.free_inode(inode.nr(), directory).watched(&core.state.findings) {
        inode.set_freed(false);
        return Err(error);
    }
    core.state.uncount_inode(inode.nr(), &inode.get());
    Ok(())
}
