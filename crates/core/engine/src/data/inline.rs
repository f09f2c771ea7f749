//! Files whose content lies in the inode (`inline_data`): writes, resizes, and growing out of it.
//!
//! A file gets its content into the inode with its first write, if it is empty, nothing is mapped, and the
//! content fits beside the attributes that are there. A change that does not fit any more brings all of it
//! into a block first ([`leave`]); it never comes back, except that an empty file is like a new one.
//!
//! Every change is one transaction that logs the inode, so content here is journalled whatever the mode.
//!
//! Everything here runs under the inode's operation lock, exclusive, with nothing buffered.

use crate::data::checks::{Source, ZEROS};
use crate::data::{checks, clear, device, read, reclaim};
use crate::error::Result;
use crate::space::map_edit::{INODE_CREDITS, MAP_CREDITS, MapMut};
use crate::space::piece::{Piece, Use};
use crate::space::reserve;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::error::Place;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inline;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_ext4::map::MapKind;
use hectare_units::{LogicalBlock, index_of, u64_of};
use std::io::IoSlice;
use std::sync::Arc;

/// Writes bytes into the inode, and returns whether they are there; if not, the file has no content in its
/// inode any more.
pub(crate) fn write(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    source: Source,
) -> Result<bool> {
    if !is_or_may_become_inline(core, inode) {
        return Ok(false);
    }
    checks::check_write(core, inode, at, source)?;
    let end = at + u64_of(data.len());
    let size = end.max(inode.get().size);
    if size > room_max(inode) {
        leave(core, inode)?;
        return Ok(false);
    }
    let mut content = content(core, inode)?;
    content.resize(index_of(size), 0);
    content[index_of(at)..index_of(end)].copy_from_slice(data);
    put(core, inode, &content, source)
}

/// Changes the size of a file with content in its inode, and returns whether it is still there.
pub(crate) fn set_size(core: &Core, inode: &Arc<CachedInode>, to: u64, source: Source) -> Result<bool> {
    if !inode.get().is_inline() {
        return Ok(false);
    }
    if to > room_max(inode) {
        leave(core, inode)?;
        return Ok(false);
    }
    let mut content = content(core, inode)?;
    content.resize(index_of(to), 0);
    put(core, inode, &content, source)
}

/// Makes these bytes the content, and stamps the file unless the caller keeps its times; brings the content
/// into a block if they don't fit.
fn put(core: &Core, inode: &Arc<CachedInode>, content: &[u8], source: Source) -> Result<bool> {
    let stored = {
        let mut handle = core.start(INODE_CREDITS)?;
        let mut target = inode.edit(&mut handle, &core.state.inodes);
        let stored = inline::store(&mut target, content, Place::Inode(inode.nr()))?;
        if stored {
            checks::stamp_for(core, &mut target, source);
        }
        stored
    };
    if stored {
        reserve::discard_window(core, inode);
    } else {
        leave(core, inode)?;
    }
    Ok(stored)
}

/// Brings the content of a file from its inode into a block, if it is there.
///
/// # Errors
/// [`Error::NoSpace`], with nothing changed.
pub(crate) fn leave(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    loop {
        let seen = core.seen();
        match leave_once(core, inode) {
            Err(error) if core.may_lack_space(&error) && reclaim::reclaim(core, seen)? => {}
            left => return left,
        }
    }
}

fn leave_once(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    if !inode.get().is_inline() {
        return Ok(());
    }
    let content = content(core, inode)?;
    // A copy for the search for space only: other fields of the inode may change meanwhile.
    let mut mapped = inode.get().clone();
    take_out(core, &mut mapped, Place::Inode(inode.nr()))?;
    let piece = (!content.is_empty())
        .then(|| reserve::reserve_for(core, inode.nr(), &mapped, LogicalBlock::ZERO, 1, Use::data(inode)))
        .transpose()?;
    let journalled = core.state.journals_data(&mapped);
    if let Some(piece) = piece.as_ref().filter(|_| !journalled) {
        write_block(core, piece, &content)?;
    }
    let mut handle = core.start(MAP_CREDITS + INODE_CREDITS + 1)?;
    let mut target = inode.edit(&mut handle, &core.state.inodes);
    let before = target.clone();
    take_out(core, &mut target, Place::Inode(inode.nr()))?;
    let Some(piece) = piece else { return Ok(()) };
    let block = piece.extent.physical;
    let published =
        MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut target }.publish(piece, false);
    if let Err(error) = published {
        *target = before;
        return Err(error);
    }
    drop(target);
    if journalled {
        clear::log_part(core, &mut handle, block, 0, content.len(), &[], |bytes| {
            bytes.copy_from_slice(&content);
        });
    }
    Ok(())
}

fn write_block(core: &Core, piece: &Piece, content: &[u8]) -> Result<()> {
    let size = core.state.geometry().block_size;
    let tail = &ZEROS[..size.len() - content.len()];
    let place = piece.extent.physical.offset(size);
    device::write_data_parts(core, place, &[IoSlice::new(content), IoSlice::new(tail)])?;
    core.state.count_written(content.len());
    Ok(())
}

/// Gives an inode that has its content in it an empty map instead; the size stays.
pub(crate) fn take_out(core: &Core, inode: &mut Inode, place: Place) -> Result<()> {
    inline::clear(inode, place)?;
    let kind = core.state.map_of_new();
    inode.flags.set(InodeFlags::EXTENTS, kind == MapKind::Extents);
    inode.block = kind.empty_root();
    Ok(())
}

/// Whether content lies in the inode, or would with the first write.
fn is_or_may_become_inline(core: &Core, inode: &CachedInode) -> bool {
    let data = inode.get();
    if data.is_inline() {
        return true;
    }
    core.state.incompat(Incompat::INLINE_DATA)
        && data.kind() == Some(Kind::File)
        && data.size == 0
        && inode.delayed().end().is_none()
        && data.block == MapKind::of(data.flags).empty_root()
        && !data.flags.intersects(InodeFlags::ENCRYPT | InodeFlags::VERITY | InodeFlags::DAX)
}

/// Bytes that can't be exceeded, whatever the attributes.
fn room_max(inode: &CachedInode) -> u64 {
    u64_of(inline::room_max(inode.get().xattr_area().len()))
}

/// The content of a file; nothing if it is not in the inode.
fn content(core: &Core, inode: &CachedInode) -> Result<Vec<u8>> {
    let (inline, size) = {
        let data = inode.get();
        (data.is_inline(), data.size)
    };
    // A size that lies is found by reading, and no reason to allocate.
    let mut content = vec![0; index_of(if inline { size.min(room_max(inode)) } else { 0 })];
    read::read_locked(core, inode, 0, &mut content)?;
    Ok(content)
}
