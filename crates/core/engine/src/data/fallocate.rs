//! Allocates, frees and moves ranges of a file without writing data (`fallocate`).
//!
//! Nothing here writes data, except zeros into blocks that a range covers in part: what was written becomes
//! unwritten, is unmapped, or moves within the file, by changing the map. Unwritten blocks read as zeros and
//! are never read from the device, so no old data of another file can show.
//!
//! Every step is one transaction that leaves a sound file: its extents in order, none overlapping, none that
//! is written beyond the size. Where one transaction is not enough, the steps in between show in the content
//! (part of a range punched, part of what follows moved), and a crash can leave one of them. The size changes
//!
//! Partly covered blocks are zeroed after the map has changed, in place, like an overwrite; only bytes of the
//! range are ever touched.
//!
//! Hazard: splitting an extent may need a block for the tree. A full volume has some reserved for that
//! ([`crate::space::reserve`]); when they are used up, zeroing writes zeros instead, and punching and
//! inserting report that the volume is full, with nothing of that step done.

pub(crate) mod credits;
mod fill;
pub(crate) mod punch;
mod shift;
mod zero;

use crate::data::checks::Source;
use crate::data::{checks, inline, reclaim, writeback};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::space::map_edit::{MAP_CREDITS, MapMut};
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::map::MapKind;
use hectare_units::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// What to do with a range of a file; the modes of `fallocate(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FallocateMode {
    /// Allocates holes, which read as zeros until they are written; what is mapped stays.
    Allocate {
        /// The file does not grow to the end of the range.
        keep_size: bool,
    },
    /// The range reads as zeros, and its whole blocks are freed, beyond the size too; the size stays.
    PunchHole,
    /// The range reads as zeros, and is allocated: what is written becomes unwritten, holes are allocated.
    ZeroRange {
        /// The file does not grow to the end of the range.
        keep_size: bool,
    },
    /// The range is removed: what follows moves down, and the file becomes shorter. It must be made of whole
    /// clusters and end before the file does.
    CollapseRange,
    /// A hole is inserted: everything from the beginning of the range on moves up, and the file becomes
    /// longer. It must be made of whole clusters and begin before the file's end.
    InsertRange,
    /// Later writes to the range need no space. No two files share blocks here, so it does what
    /// [`Allocate`](Self::Allocate) does (the kernel's ext4 does not offer it).
    Unshare {
        /// The file does not grow to the end of the range.
        keep_size: bool,
    },
}

impl FallocateMode {
    /// The mode of `fallocate(2)` with these flags (`FALLOC_FL_*`).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for flags or combinations that ext4 does not know.
    pub fn from_flags(flags: u32) -> Result<Self> {
        const KEEP_SIZE: u32 = 0x01;
        let keep_size = flags & KEEP_SIZE != 0;
        match (flags & !KEEP_SIZE, keep_size) {
            (0, _) => Ok(Self::Allocate { keep_size }),
            (0x02, true) => Ok(Self::PunchHole),
            (0x08, false) => Ok(Self::CollapseRange),
            (0x10, _) => Ok(Self::ZeroRange { keep_size }),
            (0x20, false) => Ok(Self::InsertRange),
            (0x40, _) => Ok(Self::Unshare { keep_size }),
            _ => Err(Error::Unsupported(format!("fallocate can't combine the flags {flags:#x}"))),
        }
    }

    /// What it does to the file.
    fn deed(self) -> Deed {
        if matches!(self, Self::Allocate { .. }) { Deed::Grow } else { Deed::Rewrite }
    }
}

/// Changes the space of the bytes from `at` on.
pub(crate) fn fallocate(
    core: &Core,
    inode: &Arc<CachedInode>,
    mode: FallocateMode,
    (at, len): (u64, u64),
    source: Source,
) -> Result<()> {
    core.check_takes_changes()?;
    if len == 0 {
        return Err(Error::Invalid("the range to allocate, free or move is empty; give one byte at least"));
    }
    let end = checks::check_size(core, inode, at, len)?;
    {
        let _operation = inode.lock().write();
        checks::check_content_writable(core, inode)?;
        inline::leave(core, inode)?;
        check_map_allows(inode, mode)?;
        writeback::place_locked(core, inode)?;
        mode.deed().check(inode.get().flags, inode.nr())?;
        match mode {
            FallocateMode::Allocate { keep_size } | FallocateMode::Unshare { keep_size } => {
                allocate_range(core, inode, at..end, keep_size, source)
            }
            FallocateMode::PunchHole => punch::punch(core, inode, at..end, source),
            FallocateMode::ZeroRange { keep_size } => {
                zero::zero_range(core, inode, at..end, keep_size, source)
            }
            FallocateMode::CollapseRange => shift::collapse(core, inode, at..end, source),
            FallocateMode::InsertRange => shift::insert_range(core, inode, (at, len), source),
        }?;
    }
    if mode.deed() == Deed::Grow { core.relieve() } else { core.relieve_frees() }?;
    core.sync_if_asked(inode)
}

/// Returns an error for what only an extent tree can hold or do, as the kernel does.
fn check_map_allows(inode: &CachedInode, mode: FallocateMode) -> Result<()> {
    if mode == FallocateMode::PunchHole || MapKind::of(inode.get().flags) == MapKind::Extents {
        return Ok(());
    }
    let what = "is mapped by blocks (ext2, ext3), which can be punched out but not allocated ahead or moved";
    Err(Error::Unsupported(format!("inode {} {what}", inode.nr())))
}

/// Allocates a range; the file is stamped even if all of it was allocated, as in the kernel.
fn allocate_range(
    core: &Core,
    inode: &Arc<CachedInode>,
    range: Range<u64>,
    keep_size: bool,
    source: Source,
) -> Result<()> {
    if fill::fill_range(core, inode, range, keep_size, source)? {
        return Ok(());
    }
    change_map(core, inode, (MAP_CREDITS, source), |_| Ok(()))
}

/// Changes a map, and stamps the file unless the caller keeps its times, in one transaction; retries if
/// the missing space may have become free.
pub(crate) fn change_map<R>(
    core: &Core,
    inode: &Arc<CachedInode>,
    (credits, source): (u32, Source),
    mut change: impl FnMut(&mut MapMut<'_, '_>) -> Result<R>,
) -> Result<R> {
    loop {
        let seen = core.seen();
        let changed = {
            let mut handle = core.start(credits)?;
            let mut target = inode.edit(&mut handle, &core.state.inodes);
            let mut map = MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut target };
            let changed = change(&mut map);
            if changed.is_ok() {
                checks::stamp_for(core, &mut target, source);
            }
            changed
        };
        match changed {
            Err(error) if core.may_lack_space(&error) && reclaim::reclaim(core, seen)? => continue,
            _ => {}
        }
        #[cfg(test)]
        tests::after_step(core);
        return changed;
    }
}

/// The whole blocks of a range of bytes; empty if there are none.
pub(crate) fn whole_blocks(core: &Core, range: &Range<u64>) -> Range<u64> {
    let size = core.state.geometry().block_size;
    let first = range.start.div_ceil(size.bytes().get());
    first..(range.end >> size.shift()).max(first)
}

/// The parts of a range of bytes in blocks that it does not cover: none, one or two.
pub(crate) fn edges(core: &Core, range: &Range<u64>) -> [Range<u64>; 2] {
    let size = core.state.geometry().block_size;
    let block = size.bytes().get();
    let first_end = (range.start - within(core, range.start) + block).min(range.end);
    let last_start = range.end - within(core, range.end);
    let is_whole = first_end - range.start == block;
    let head = range.start..if is_whole { range.start } else { first_end };
    [head, last_start.max(first_end)..range.end]
}

/// How far into its block a byte is.
fn within(core: &Core, at: u64) -> u64 {
    hectare_units::u64_of(core.state.geometry().block_size.within(Bytes::new(at)))
}

#[cfg(test)]
mod tests;
