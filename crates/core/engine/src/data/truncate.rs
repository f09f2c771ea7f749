//! Changes file sizes: growing maps nothing; truncating unmaps, in as many transactions as that takes.
//!
//! A file of few extents is truncated in one transaction. Any other gets its new size and becomes an orphan
//! ([`crate::stores::orphans`]) in the first, loses its blocks from the end on in those that follow, and is
//! no orphan any more with the last: after a crash, recovery only has to resume.
//!
//! What a transaction may dirty is bounded beforehand. Freeing an extent changes the bitmap of each group it
//! lies in, and the block that holds the group's descriptor; so does freeing a tree node, and the node above
//! it changes. The number of groups bounds both on a small volume. Blocks of directories and symlinks are
//! each revoked, and the records of that take room in the log like blocks. ([`Step`])
//!
//! Hazard: the rest of a file's last block is zeroed before the size changes, as data is always written
//! before what refers to it. A crash in between leaves a file that is as long as before and has zeros there.
//! (Journalled data is zeroed in the same transaction.)

use crate::data::checks::Source;
use crate::data::{checks, clear, inline, writeback};
use crate::error::Result;
use crate::immutable::Deed;
use crate::space::map::MapRef;
use crate::space::map_edit::{INODE_CREDITS, MapMut, STEP_REVOKES};
use crate::space::reserve;
use crate::state::{Core, State};
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphans::ORPHAN_CREDITS;
use hectare_ext4::extent::{Extent, Mapping, Progress, WRITTEN_MAX};
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_journal::Handle;
use hectare_units::{Bytes, InodeNr, LogicalBlock, low32, u64_of, usize_of};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Blocks that one step of truncating may dirty, as far as that can be chosen.
const STEP_CREDITS: u32 = 180;

/// Extents of the largest step: it keeps others from committing for as long as it lasts.
const STEP_EXTENTS: u32 = 256;

/// Blocks that unmapping all of a file may dirty as part of another transaction.
const AT_ONCE_CREDITS: u32 = 100;

/// One more than the last file block.
const MAP_END: u64 = 1 << 32;

/// How much of a file one transaction unmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    extents: u32,
    /// The most blocks that this dirties.
    credits: u32,
}

/// What bounds the blocks that freeing space dirties.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    groups: u32,
    group_blocks: u32,
    desc_blocks: u32,
    descs_per_block: u32,
}

impl Bounds {
    fn of(state: &State) -> Self {
        let geometry = state.geometry();
        Self {
            groups: geometry.groups(),
            group_blocks: geometry.blocks_per_group().max(1),
            desc_blocks: geometry.desc_blocks(),
            descs_per_block: geometry.descs_per_block().max(1),
        }
    }

    /// The most groups that `blocks` contiguous blocks may lie in, and the blocks of their descriptors.
    fn run(&self, blocks: u32) -> (u32, u32) {
        let groups = (blocks.saturating_sub(1) / self.group_blocks).saturating_add(2);
        let descs = ((groups - 1) / self.descs_per_block).saturating_add(2).min(groups);
        (groups, descs)
    }

    /// Blocks dirtied by touching `groups` groups with `descs` blocks of descriptors.
    fn touched(&self, groups: u32, descs: u32) -> u32 {
        groups.min(self.groups).saturating_add(descs.min(self.desc_blocks))
    }

    /// Blocks that unmapping `extents` extents of a tree of that depth may dirty: each may be as long as an
    /// extent can be, and be alone in its leaf and the nodes above, which are then freed with it.
    fn extents(&self, extents: u32, depth: u32) -> u32 {
        let (groups, descs) = self.run(WRITTEN_MAX);
        let freed = self.touched(
            extents.saturating_mul(groups.saturating_add(depth)),
            extents.saturating_mul(descs.saturating_add(depth)),
        );
        freed.saturating_add(extents.saturating_mul(depth)).saturating_add(depth + INODE_CREDITS)
    }

    /// The largest step that is small enough, of at least one extent, with `revokes` blocks of revoke
    /// records.
    fn step(&self, depth: u32, revokes: u32) -> Step {
        let mut extents = STEP_EXTENTS;
        let credits = |extents| self.extents(extents, depth).saturating_add(revokes);
        while extents > 1 && credits(extents) > STEP_CREDITS {
            extents -= extents.div_ceil(8);
        }
        Step { extents, credits: credits(extents) }
    }
}

/// Makes a file longer or shorter. Where changes must be durable at once, the caller syncs.
pub(crate) fn set_size(core: &Core, inode: &Arc<CachedInode>, to: u64, source: Source) -> Result<()> {
    let _operation = inode.lock().write();
    check_resizable(core, inode, to)?;
    writeback::place_before_resize(core, inode, to)?;
    if inline::set_size(core, inode, to, source)? {
        writeback::drop_delayed(core, inode);
        return Ok(());
    }
    let from = inode.get().size;
    checks::bring_large_file(core, to);
    if to > from {
        clear::clear_tail(core, inode, to)?;
    }
    // Space beyond the end is freed even if the size stays; a file without space, such as a new one, is
    // not searched for it.
    if to < from || (to == from && inode.get().sectors > 0) {
        cut(core, inode, to, source)
    } else {
        note_size(core, inode, to, source)?;
        writeback::drop_delayed(core, inode);
        Ok(())
    }
}

/// Checks that a file may get this size, not that it can: for callers that must do something else first,
/// only if the change is allowed.
pub(crate) fn check_resize(core: &Core, nr: InodeNr, size: u64) -> Result<()> {
    let inode = core.state.inode(nr)?;
    let _operation = inode.lock().read();
    check_resizable(core, &inode, size)
}

/// Like [`check_resize`], where the caller holds the operation lock.
fn check_resizable(core: &Core, inode: &CachedInode, to: u64) -> Result<()> {
    core.check_takes_changes()?;
    checks::check_size(core, inode, 0, to)?;
    checks::check_content_writable(core, inode)?;
    Deed::Rewrite.check(inode.get().flags, inode.nr())
}

/// Sets the size of a file that keeps its blocks. The caller holds the operation lock.
pub(crate) fn note_size(core: &Core, inode: &Arc<CachedInode>, size: u64, source: Source) -> Result<()> {
    let mut handle = core.start(INODE_CREDITS)?;
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    data.size = size;
    checks::stamp_for(core, &mut data, source);
    Ok(())
}

/// Truncates a file to `size`, which is not beyond its end, and frees all blocks after that. The caller
/// holds the operation lock.
fn cut(core: &Core, inode: &Arc<CachedInode>, size: u64, source: Source) -> Result<()> {
    if begin_cut(core, inode, size, source)? == Progress::More {
        finish_cut(core, inode)?;
    }
    core.relieve_frees()
}

/// Runs the first transaction of truncating a file, which makes it an orphan unless it is the last, too.
pub(crate) fn begin_cut(
    core: &Core,
    inode: &Arc<CachedInode>,
    size: u64,
    source: Source,
) -> Result<Progress> {
    reserve::discard_window(core, inode);
    check_freeable(core, inode.nr(), &inode.get(), size)?;
    let rest = rest_of_block(core, inode, size)?;
    let clearing = rest.map(|at| clear::begin_clearing(core, inode, at)).transpose()?.flatten();
    let at_once = unmap_at_once(core, inode.nr(), &inode.get(), size)?;
    let cleared = u32::from(clearing.is_some());
    let mut handle = core.start(INODE_CREDITS + ORPHAN_CREDITS + at_once.unwrap_or(0) + cleared)?;
    if let Some(clearing) = &clearing {
        clear::log_clearing(core, &mut handle, clearing);
    }
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    data.size = size;
    checks::stamp_for(core, &mut data, source);
    let done = match at_once {
        Some(_) => unmap_all(core, &mut handle, inode.nr(), &mut data, size).map(|()| Progress::Done),
        None => Ok(Progress::More),
    };
    drop(data);
    writeback::drop_delayed(core, inode);
    match done {
        // Left by an earlier truncate that failed.
        Ok(Progress::Done) => end_cut(core, &mut handle, inode),
        _ => core.state.add_orphan(&mut handle, inode),
    }
    done
}

/// Frees all blocks after the end of an orphan, which then is none any more. The caller holds the
/// operation lock.
pub(crate) fn finish_cut(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    let size = inode.get().size;
    unmap(core, inode, size)?;
    let mut handle = core.start(ORPHAN_CREDITS)?;
    end_cut(core, &mut handle, inode);
    Ok(())
}

/// Removes a truncated file from the orphans, unless it is one for lack of a name.
fn end_cut(core: &Core, handle: &mut Handle<'_>, inode: &Arc<CachedInode>) {
    if inode.get().links > 0 {
        core.state.remove_orphan(handle, inode.nr());
    }
}

/// Returns an error if what an inode maps after `size` bytes can't be freed.
pub(crate) fn check_freeable(core: &Core, nr: InodeNr, data: &Inode, size: u64) -> Result<()> {
    match first_after(core, size).filter(|_| data.is_mapped()) {
        Some(from) => MapRef { state: &core.state, nr, inode: data }.check_range(from, MAP_END),
        None => Ok(()),
    }
}

/// Blocks that unmapping all of a file after `size` bytes dirties, if that fits one transaction with
/// other changes: the root of its map has all its extents, and they lie in few groups.
pub(crate) fn unmap_at_once(core: &Core, nr: InodeNr, data: &Inode, size: u64) -> Result<Option<u32>> {
    if !data.is_mapped() {
        return Ok(Some(0));
    }
    let map = MapRef { state: &core.state, nr, inode: data };
    if map.height()? > 0 {
        return Ok(None);
    }
    let Some(from) = first_after(core, size) else { return Ok(Some(0)) };
    let bounds = Bounds::of(&core.state);
    let (mut groups, mut descs, mut blocks) = (0u32, 0u32, 0u64);
    map.for_each(from, &mut |extent: Extent| {
        let (in_groups, in_descs) = bounds.run(extent.len);
        groups = groups.saturating_add(in_groups);
        descs = descs.saturating_add(in_descs);
        blocks += u64::from(extent.len);
        ControlFlow::Continue(())
    })?;
    let credits = bounds.touched(groups, descs).saturating_add(revoke_credits(core, data, blocks));
    Ok((credits <= AT_ONCE_CREDITS).then_some(credits))
}

/// Unmaps all blocks of a file that lie wholly after `size` bytes, where [`unmap_at_once`] found
/// that they are few.
pub(crate) fn unmap_all(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    size: u64,
) -> Result<()> {
    let Some(from) = first_after(core, size) else { return Ok(()) };
    if !data.is_mapped() {
        return Ok(());
    }
    let mut map = MapMut { core, handle, nr, inode: data };
    while map.remove_some(from, MAP_END, usize_of(STEP_EXTENTS))? == Progress::More {}
    Ok(())
}

/// Unmaps all blocks of a file that lie wholly after `size` bytes, a step per transaction. The caller
/// holds the operation lock.
pub(crate) fn unmap(core: &Core, inode: &Arc<CachedInode>, size: u64) -> Result<()> {
    let Some(from) = first_after(core, size) else { return Ok(()) };
    let step = {
        let data = inode.get();
        if !data.is_mapped() {
            return Ok(());
        }
        // This never grows the tree.
        let depth = MapRef { state: &core.state, nr: inode.nr(), inode: &data }.height()?;
        let revokes = revoke_credits(core, &data, u64::MAX).min(STEP_REVOKES);
        Bounds::of(&core.state).step(depth, revokes)
    };
    while unmap_step(core, inode, from, step)? == Progress::More {
        core.relieve_frees()?;
    }
    Ok(())
}

/// Blocks of the log that revoking `blocks` unmapped blocks of an inode takes. A file's blocks are
/// revoked only if they are in the log, and those are few.
fn revoke_credits(core: &Core, data: &Inode, blocks: u64) -> u32 {
    let log = core.state.log.as_ref().filter(|_| data.kind() != Some(Kind::File));
    log.map_or(0, |log| log.revoke_blocks(blocks))
}

fn unmap_step(core: &Core, inode: &Arc<CachedInode>, from: LogicalBlock, step: Step) -> Result<Progress> {
    let mut handle = core.start(step.credits)?;
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    let mut map = MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut data };
    map.remove_some(from, MAP_END, usize_of(step.extents))
}

/// Zeroes the rest of the block that holds a byte of a regular file, from that byte on.
pub(crate) fn clear_after(core: &Core, inode: &Arc<CachedInode>, at: u64) -> Result<()> {
    let Some(place) = rest_of_block(core, inode, at)? else { return Ok(()) };
    let size = core.state.geometry().block_size;
    clear::clear_place(core, inode, place, u64_of(size.len() - size.within(place)))
}

/// Where a byte of a regular file lies, if it is not the first of its block and the block is written.
fn rest_of_block(core: &Core, inode: &CachedInode, at: u64) -> Result<Option<Bytes>> {
    let size = core.state.geometry().block_size;
    let within = size.within(Bytes::new(at));
    let Some(block) = LogicalBlock::containing(Bytes::new(at), size).filter(|_| within > 0) else {
        return Ok(None);
    };
    let data = inode.get();
    // Only the key determines which bytes of an encrypted block read as zeros.
    let cleared = data.is_mapped() && !data.flags.contains(InodeFlags::ENCRYPT);
    if data.kind() != Some(Kind::File) || !cleared {
        return Ok(None);
    }
    let Mapping::Mapped(extent) =
        (MapRef { state: &core.state, nr: inode.nr(), inode: &data }).lookup(block)?
    else {
        return Ok(None);
    };
    let physical = extent.block_of(block).filter(|_| !extent.unwritten);
    Ok(physical.map(|physical| physical.offset(size) + Bytes::of(within)))
}

/// The first file block wholly after `size` bytes; `None` if no map reaches that far.
pub(crate) fn first_after(core: &Core, size: u64) -> Option<LogicalBlock> {
    let first = size.div_ceil(core.state.geometry().block_size.bytes().get());
    (first < MAP_END).then(|| LogicalBlock::new(low32(first)))
}

#[cfg(test)]
mod tests;
