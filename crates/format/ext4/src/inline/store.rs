//! Puts content into an inode, and takes it out: the head in `i_block`, the tail in `system.data`.
//!
//! Other attributes of the inode stay where they are; so whether content fits depends on them, and the answer
//! is found by trying. Nothing is changed if it does not fit.

use super::HEAD;
use crate::error::{Corrupt, Place};
use crate::inode::{Inode, InodeFlags};
use crate::xattr::{self, Area, Attr, Name};
use hectare_units::u64_of;

/// Makes `content` the inline content of an inode, flag and size included, and returns whether it fits.
///
/// # Errors
/// `Corrupt` if the attributes beside it can't be read.
pub fn store(inode: &mut Inode, content: &[u8], place: Place) -> Result<bool, Corrupt> {
    let (head, tail) = content.split_at(content.len().min(HEAD));
    if !set_tail(inode, Some(tail), place)? {
        return Ok(false);
    }
    inode.block = [0; HEAD];
    inode.block[..head.len()].copy_from_slice(head);
    inode.flags.remove(InodeFlags::EXTENTS);
    inode.flags.insert(InodeFlags::INLINE_DATA);
    inode.size = u64_of(content.len());
    Ok(true)
}

/// Removes the inline content of an inode, and the flag. What `i_block` means then is the caller's to set.
///
/// # Errors
/// As [`store`].
pub fn clear(inode: &mut Inode, place: Place) -> Result<(), Corrupt> {
    set_tail(inode, None, place)?;
    inode.flags.remove(InodeFlags::INLINE_DATA);
    inode.block = [0; HEAD];
    Ok(())
}

/// Bytes that content can have beside the attributes in an inode's area; `None` if none can.
///
/// # Errors
/// As [`store`].
pub fn room(area: &[u8], place: Place) -> Result<Option<usize>, Corrupt> {
    let held = Area::in_inode(area, place)?;
    let mut attrs: Vec<Attr> = held.iter().flat_map(Area::entries).map(|entry| entry.to_attr()).collect();
    attrs.push(Attr::new(Name::inline_data(), Vec::new()));
    let fits = |attrs: &[Attr]| xattr::needs_block(attrs, area.len(), None).is_ok();
    let Some(last) = attrs.len().checked_sub(1).filter(|_| fits(&attrs)) else { return Ok(None) };
    let mut tail = 0;
    loop {
        attrs[last] = Attr::new(Name::inline_data(), vec![0; tail + 4]);
        if !fits(&attrs) {
            return Ok(Some(HEAD + tail));
        }
        tail += 4;
    }
}

/// The most bytes that content can have in an inode with these many bytes for attributes, with no others.
#[must_use]
pub fn room_max(xattr_area: usize) -> usize {
    HEAD + xattr_area
}

fn set_tail(inode: &mut Inode, tail: Option<&[u8]>, place: Place) -> Result<bool, Corrupt> {
    let name = Name::inline_data();
    let area = Area::in_inode(inode.xattr_area(), place)?;
    let mut attrs: Vec<Attr> = area.iter().flat_map(Area::entries).map(|entry| entry.to_attr()).collect();
    attrs.retain(|attr| attr.name != name);
    attrs.extend(tail.map(|tail| Attr::new(name, tail.to_vec())));
    let Ok(placed) = xattr::layout(&attrs, inode.xattr_area().len(), None) else { return Ok(false) };
    inode.xattr_area_mut().copy_from_slice(&placed.inode_area);
    Ok(true)
}
