//! Grows the extra fields in inodes of old volumes.
//!
//! An inode from an older kernel, or from before the superblock asked for more (`s_want_extra_isize`), has
//! fewer extra fields than the volume wants: no nanoseconds, no birth time, no project. Where the inode is
//! changed anyway, the fields grow, and attributes that no longer fit behind them move to the attribute
//! block. The kernel does the same whenever it marks such an inode dirty.
//!
//! Growing is optional: where the attributes don't fit otherwise, or there is no space for a block, the inode
//! stays as it is, or grows as far as the volume requires of every inode (`s_min_extra_isize`), and the
//! change continues.

use crate::attributes::xattr_store;
use crate::error::Result;
use crate::space::piece::Room;
use crate::state::Core;
use hectare_ext4::inode::Inode;
use hectare_ext4::xattr::{self, Attr, Value};
use hectare_journal::Handle;
use hectare_units::InodeNr;

/// Grows the extra fields of an inode to what the volume wants, if possible.
///
/// # Errors
/// If the attributes can't be read, or a block of theirs can't.
pub(crate) fn grow_extra(core: &Core, handle: &mut Handle<'_>, nr: InodeNr, data: &mut Inode) -> Result<()> {
    if data.extra_isize == 0 || data.extra_isize >= core.state.sb.want_extra_isize() {
        return Ok(());
    }
    let attrs = core.state.attributes(nr, data)?;
    let Some(mut grown) = grown(core, data, &attrs) else { return Ok(()) };
    // It can wait: clusters reserved for freeing are not for this.
    match xattr_store::lay_attributes_out(core, handle, nr, &mut grown, (&attrs, Room::Open)) {
        Ok(_) => *data = grown,
        Err(error) if core.may_lack_space(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The inode with as many extra fields as its attributes leave room for, and no attributes in it yet;
/// `None` if none can be added, or if a value lies in an inode of its own.
fn grown(core: &Core, data: &Inode, attrs: &[Attr]) -> Option<Inode> {
    if attrs.iter().any(|attr| matches!(attr.value, Value::Inode { .. })) {
        return None;
    }
    let size = core.state.geometry().block_size;
    [core.state.sb.want_extra_isize(), core.state.sb.min_extra_isize()].into_iter().find_map(|to| {
        let mut grown = data.clone();
        grown.grow_extra(to);
        let fits = || xattr::needs_block(attrs, grown.xattr_area().len(), Some(size)).is_ok();
        (grown.extra_isize > data.extra_isize && fits()).then_some(grown)
    })
}
