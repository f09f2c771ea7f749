//! What writes of content share: which are allowed, who makes them, and what they leave in the inode.

use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{Inode, Kind};
use hectare_units::index_of;

/// One more than the last file block the format can map.
pub(crate) const FILE_BLOCKS_MAX: u64 = (1 << 32) - 1;

/// Padding for writes: as much as the largest block holds.
pub(crate) static ZEROS: [u8; 65536] = [0; 65536];

/// Files of at least this size need `large_file`.
pub(crate) const LARGE_FILE: u64 = hectare_ext4::inode::LARGE_FILE.get();

/// What to do with an unwritten extent of which only a part is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// It becomes up to three, for which the tree may need a block.
    AsNeeded,
    /// It stays one, and is zeroed around that part: there is no block left, and allocated space must stay
    /// writable.
    Spare,
}

/// Where written bytes come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A caller, now: the times change with it. If there is no space, some is freed first.
    Caller,
    /// A caller who keeps the file's times, and sets them.
    TimesKept,
    /// A cache that took the bytes when the file's flags allowed it; they may forbid it by now.
    Cache,
    /// Buffered bytes: the times changed when they arrived, and there is a claim on space for them.
    Gathered,
}

pub(crate) fn check_size(core: &Core, at: u64, len: u64) -> Result<u64> {
    let end = at.checked_add(len).ok_or(Error::FileTooLarge)?;
    if end > file_size_max(core) { Err(Error::FileTooLarge) } else { Ok(end) }
}

/// Bytes of the longest file there can be.
pub(crate) fn file_size_max(core: &Core) -> u64 {
    FILE_BLOCKS_MAX << core.state.geometry().block_size.shift()
}

/// Records that the volume has a large file, if a file ends at byte `end`.
pub(crate) fn bring_large_file(core: &Core, end: u64) {
    if end >= LARGE_FILE {
        core.state.bring_feature(RoCompat::LARGE_FILE);
    }
}

/// Returns an error where there is no content to write, and for what the file's flags forbid.
pub(crate) fn check_write(core: &Core, inode: &CachedInode, at: u64, source: Source) -> Result<()> {
    if source == Source::Cache {
        return check_has_content(core, inode);
    }
    check_content_writable(core, inode)?;
    check_appends(core, inode, at)
}

/// Returns an error where there is no content to change, and where the file's flags forbid any change.
pub(crate) fn check_content_writable(core: &Core, inode: &CachedInode) -> Result<()> {
    check_has_content(core, inode)?;
    Deed::Grow.check(inode.get().flags, inode.nr())
}

fn check_has_content(core: &Core, inode: &CachedInode) -> Result<()> {
    if inode.is_freed() {
        return Err(Error::NotFound);
    }
    let data = inode.get();
    match data.kind() {
        Some(Kind::Directory) => return Err(Error::IsADirectory),
        Some(Kind::File) => {}
        _ => return Err(Error::Invalid("only regular files have content to write")),
    }
    core.state.check_file_writable(&data, inode.nr())
}

/// Returns an error for overwriting bytes of a file that forbids it.
fn check_appends(_core: &Core, inode: &CachedInode, at: u64) -> Result<()> {
    let gathered = inode.delayed().end().unwrap_or(0);
    let data = inode.get();
    if at < data.size.max(gathered) { Deed::Rewrite.check(data.flags, inode.nr()) } else { Ok(()) }
}

/// The part of `data` that fits into `blocks` blocks from byte `within` of the first on.
pub(crate) fn part_in<'a>(core: &Core, data: &'a [u8], within: u64, blocks: u32) -> &'a [u8] {
    let bytes = (u64::from(blocks) << core.state.geometry().block_size.shift()).saturating_sub(within);
    &data[..data.len().min(index_of(bytes))]
}

/// Updates the inode for a write up to byte `end`: the size, and the times if the caller does not keep
/// them.
pub(crate) fn bring_written(core: &Core, target: &mut Inode, end: u64, source: Source) {
    target.size = target.size.max(end);
    stamp_for(core, target, source);
}

/// Stamps a file whose content changed, unless the caller keeps its times.
pub(crate) fn stamp_for(core: &Core, target: &mut Inode, source: Source) {
    if source == Source::Caller {
        core.state.stamp(target);
    }
}
