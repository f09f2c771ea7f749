//! What writes of content share: which are allowed, where the bytes come from, and what they leave in the
//! inode.

use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::map::MapKind;
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

/// The end of `len` bytes from `at` on, which the file can hold.
pub(crate) fn check_size(core: &Core, inode: &CachedInode, at: u64, len: u64) -> Result<u64> {
    within(size_max(core, MapKind::of(inode.get().flags)), at, len)
}

/// How many of `len` bytes from `at` on the file can hold: what goes over its largest size is cut off, as by
/// Linux, and an error if that is all.
pub(crate) fn fitting(core: &Core, inode: &CachedInode, at: u64, len: u64) -> Result<u64> {
    match size_max(core, MapKind::of(inode.get().flags)).saturating_sub(at) {
        0 => Err(Error::FileTooLarge),
        room => Ok(len.min(room)),
    }
}

fn within(max: u64, at: u64, len: u64) -> Result<u64> {
    at.checked_add(len).filter(|end| *end <= max).ok_or(Error::FileTooLarge)
}

/// Bytes of the longest file that can be made.
pub(crate) fn file_size_max(core: &Core) -> u64 {
    size_max(core, core.state.map_of_new())
}

/// Bytes of the longest file with such a map.
fn size_max(core: &Core, kind: MapKind) -> u64 {
    let huge = core.state.sb.features().ro_compat.contains(RoCompat::HUGE_FILE);
    kind.size_max(core.state.geometry().block_size, huge)
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
    check_appends(inode, at)
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
fn check_appends(inode: &CachedInode, at: u64) -> Result<()> {
    if at < content_end(inode) { Deed::Rewrite.check(inode.get().flags, inode.nr()) } else { Ok(()) }
}

/// The length of a file, with what is buffered at its end.
pub(crate) fn content_end(inode: &CachedInode) -> u64 {
    // In this order: buffered bytes are placed, and the inode has the new size, before there are none.
    let buffered_end = inode.delayed().end().unwrap_or(0);
    inode.get().size.max(buffered_end)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenOptions;
    use crate::open::assemble::tests::{planned, unformatted};
    use hectare_ext4::time::Timestamp;

    #[test]
    fn a_part_ends_with_the_data_or_the_blocks() {
        let core = unformatted(OpenOptions::default());
        let block = core.state.geometry().block_size.len();
        let data = vec![0; 3 * block];
        assert_eq!(part_in(&core, &data, 0, 2).len(), 2 * block);
        assert_eq!(part_in(&core, &data, 10, 1).len(), block - 10);
        assert_eq!(part_in(&core, &data, 10, 9).len(), 3 * block);
        assert_eq!(part_in(&core, &data, 10, 0).len(), 0);
    }

    #[test]
    fn no_file_grows_beyond_what_the_format_can_map() {
        let core = unformatted(OpenOptions::default());
        let max = file_size_max(&core);
        assert!(size_max(&core, MapKind::Blocks) < max);
        for max in [max, size_max(&core, MapKind::Blocks)] {
            assert!(matches!(within(max, max - 5, 5), Ok(end) if end == max));
            assert!(matches!(within(max, max - 5, 6), Err(Error::FileTooLarge)));
            assert!(matches!(within(max, u64::MAX, 1), Err(Error::FileTooLarge)));
        }
    }

    #[test]
    fn only_a_caller_who_does_not_keep_the_times_changes_them() {
        let core = unformatted(OpenOptions::default());
        let before = Timestamp::from_seconds(60);
        for source in [Source::Caller, Source::TimesKept, Source::Cache, Source::Gathered] {
            let mut inode = Inode::new(0o100_644, before, 1, &planned());
            bring_written(&core, &mut inode, 7, source);
            bring_written(&core, &mut inode, 5, source);
            assert_eq!((inode.size, inode.mtime != before), (7, source == Source::Caller));
        }
    }
}
