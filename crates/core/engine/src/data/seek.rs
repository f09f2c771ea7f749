//! Finds data and holes in a file, and reports extents as `FIEMAP` does.
//!
//! Data is what is mapped and written, inside the size; unwritten extents are space, but hold none (as in the
//! kernel, unless its cache has pages of theirs). The results come from the map alone, so no byte of a block
//! that was never written is reported as data, and a block of written zeros is.

use crate::error::Result;
use crate::space::map::MapRef;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{Bytes, LogicalBlock};
use std::ops::{ControlFlow, Range};

bitflags::bitflags! {
    /// What is special about a [`FileExtent`], with the kernel's numbers (`FIEMAP_EXTENT_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct ExtentFlags: u32 {
        /// It is the last in the requested range.
        const LAST = 0x1;
        /// Its bytes are stored in another form than they are read: the file is encrypted.
        const ENCODED = 0x8;
        /// Likewise.
        const DATA_ENCRYPTED = 0x80;
        /// Its location is not made of whole blocks.
        const NOT_ALIGNED = 0x100;
        /// It lies in the inode, among metadata.
        const DATA_INLINE = 0x200;
        /// It is allocated and reads as zeros.
        const UNWRITTEN = 0x800;
        /// The format keeps no extents for the file; they were merged from blocks.
        const MERGED = 0x1000;
    }
}

/// A run of a file's bytes that is contiguous on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Its first byte in the file.
    pub at: Bytes,
    /// Its location on the device. For content in the inode: where it begins there.
    pub place: Bytes,
    /// How many bytes: whole blocks, except for content in the inode.
    pub len: Bytes,
    /// What is special about it.
    pub flags: ExtentFlags,
}

impl FileExtent {
    fn of(extent: &Extent, flags: ExtentFlags, core: &Core) -> Self {
        let size = core.state.geometry().block_size;
        Self {
            at: extent.logical.offset(size),
            place: extent.physical.offset(size),
            len: Bytes::new(u64::from(extent.len) << size.shift()),
            flags: if extent.unwritten { flags | ExtentFlags::UNWRITTEN } else { flags },
        }
    }

    /// The part inside a range of whole blocks.
    fn cut(self, range: &Range<u64>) -> Self {
        let (start, end) = (self.at.get(), self.at.get().saturating_add(self.len.get()));
        let (from, to) = (start.max(range.start), end.min(range.end));
        Self {
            at: Bytes::new(from),
            place: self.place + Bytes::new(from - start),
            len: Bytes::new(to.saturating_sub(from)),
            ..self
        }
    }
}

/// The first byte of data at or after `at`. The caller holds the operation lock.
pub(crate) fn seek_data_locked(core: &Core, inode: &CachedInode, at: u64) -> Result<Option<u64>> {
    let mut found = None;
    let size = each_data(core, inode, at, &mut |data| {
        found = Some(data.start.max(at));
        ControlFlow::Break(())
    })?;
    Ok(found.filter(|found| *found < size))
}

/// The first byte at or after `at` that is not data. The caller holds the operation lock.
pub(crate) fn seek_hole_locked(core: &Core, inode: &CachedInode, at: u64) -> Result<Option<u64>> {
    let mut hole = at;
    let size = each_data(core, inode, at, &mut |data| {
        if data.start > hole {
            return ControlFlow::Break(());
        }
        hole = data.end;
        ControlFlow::Continue(())
    })?;
    Ok((at < size).then(|| hole.min(size)))
}

/// Visits the runs of data that end after `at`, in order; returns the size of the file. None for an `at`
/// that is not before it.
fn each_data(
    core: &Core,
    inode: &CachedInode,
    at: u64,
    visit: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
) -> Result<u64> {
    let size = core.state.geometry().block_size;
    let held = inode.get();
    let from = LogicalBlock::containing(Bytes::new(at), size).filter(|_| at < held.size);
    let Some(from) = from else { return Ok(held.size) };
    if held.flags.contains(InodeFlags::INLINE_DATA) {
        let _ = visit(0..held.size);
        return Ok(held.size);
    }
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    map.for_each(from, &mut |extent| {
        if extent.unwritten {
            return ControlFlow::Continue(());
        }
        visit(extent.logical.offset(size).get()..extent.end() << size.shift())
    })?;
    Ok(held.size)
}

/// The extents of a range of bytes. The caller holds the operation lock.
pub(crate) fn extents_in_locked(
    core: &Core,
    inode: &CachedInode,
    range: Range<u64>,
) -> Result<Vec<FileExtent>> {
    let size = core.state.geometry().block_size;
    let held = inode.get();
    let mut flags = ExtentFlags::default();
    flags.set(ExtentFlags::ENCODED | ExtentFlags::DATA_ENCRYPTED, held.flags.contains(InodeFlags::ENCRYPT));
    let mut found = Vec::new();
    let from = LogicalBlock::containing(Bytes::new(range.start), size).filter(|_| !range.is_empty());
    let Some(from) = from else { return Ok(found) };
    if held.flags.contains(InodeFlags::INLINE_DATA) {
        let content = held.bytes();
        drop(held);
        found.extend(inline_extent(core, inode, content, flags)?.filter(|_| range.start < content.get()));
    } else {
        flags.set(ExtentFlags::MERGED, !held.flags.contains(InodeFlags::EXTENTS));
        let block = size.bytes().get();
        let blocks = from.offset(size).get()..range.end.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
        map.for_each(from, &mut |extent| {
            if extent.logical.offset(size).get() >= blocks.end {
                return ControlFlow::Break(());
            }
            found.push(FileExtent::of(&extent, flags, core).cut(&blocks));
            ControlFlow::Continue(())
        })?;
    }
    if let Some(last) = found.last_mut() {
        last.flags |= ExtentFlags::LAST;
    }
    Ok(found)
}

/// Content that is kept in the inode; it begins in the block map's bytes, and may continue in an
/// attribute.
fn inline_extent(
    core: &Core,
    inode: &CachedInode,
    content: Bytes,
    flags: ExtentFlags,
) -> Result<Option<FileExtent>> {
    /// Where an inode keeps its block map.
    const BLOCK_MAP_AT: usize = 40;
    let (block, slot) = core.state.inode_home(inode.nr())?;
    let place = block.nr().offset(core.state.geometry().block_size) + Bytes::of(slot.start + BLOCK_MAP_AT);
    let flags = flags | ExtentFlags::DATA_INLINE | ExtentFlags::NOT_ALIGNED;
    let extent = FileExtent { at: Bytes::ZERO, place, len: content, flags };
    Ok((content > Bytes::ZERO).then_some(extent))
}
