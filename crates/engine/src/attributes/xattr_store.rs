//! Stores extended attributes: lays them out in the inode and its attribute block, inside a transaction.
//!
//! Attributes lie in the inode's slot, in one attribute block, or both. An attribute block may be shared by
//! inodes with equal attributes; it is never changed while shared: the changing inode leaves it (one
//! reference less) and gets a block of its own.

use crate::attributes::xattr_read;
use crate::error::{Error, Result};
use crate::space::piece::Room;
use crate::space::reserve;
use crate::state::Core;
use hectare_ext4::inode::{Inode, Kind as FileKind};
use hectare_ext4::xattr::{self, Attr, Index, Name, SetError, Value};
use hectare_journal::Handle;
use hectare_units::{Clusters, InodeNr};

/// Lays out the attributes of an inode anew. Nothing is changed if they don't fit.
pub(crate) fn store_attributes(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    attrs: &[Attr],
) -> Result<()> {
    let before = core.state.attributes(nr, data)?;
    refuse_values_elsewhere(nr, &before)?;
    // Removing one, or repeating a mode in an ACL, must not fail for lack of space.
    let room = if bytes_of(attrs) <= bytes_of(&before) { Room::Kept } else { Room::Open };
    lay_attributes_out(core, handle, nr, data, (attrs, room))
}

/// Lays out attributes whose values all lie here, with a block from `room` if one is needed.
pub(crate) fn lay_attributes_out(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    (attrs, room): (&[Attr], Room),
) -> Result<()> {
    let size = core.state.geometry().block_size;
    let placed =
        xattr::layout(attrs, data.xattr_area().len(), Some(size)).map_err(|_| Error::AttributeTooLarge)?;
    store_attribute_block(core, handle, nr, data, (placed.block, room))?;
    data.xattr_area_mut().copy_from_slice(&placed.inode_area);
    Ok(())
}

/// Returns an error, by name, for changing or removing attributes with values in inodes of their own.
pub(crate) fn refuse_values_elsewhere(nr: InodeNr, attrs: &[Attr]) -> Result<()> {
    if !attrs.iter().any(|attr| matches!(attr.value, Value::Inode { .. })) {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "inode {nr} has attribute values in inodes of their own (ea_inode): they can be read, but not \
         changed yet"
    )))
}

fn store_attribute_block(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    (content, room): (Option<Vec<u8>>, Room),
) -> Result<()> {
    let Some(content) = content else { return leave_attribute_block(core, handle, data) };
    let kind = core.state.xattr_kind();
    if let Some(old) = data.file_acl {
        let block = core.state.xattr_block(old)?;
        if xattr::refcount(&block.bytes()) == Some(1) {
            core.state.blocks.edit(handle, &block, kind, |bytes| bytes.copy_from_slice(&content));
            return Ok(());
        }
    }
    let goal = core.state.geometry().first_block(core.state.groups.slot(nr)?.0);
    let _quota = match room {
        Room::Open => core.state.claim_clusters(nr, data, Clusters::ONE)?.1,
        Room::Kept => None,
    };
    let (new, sectors) = reserve::allocate_metadata(core, handle, goal, room)?;
    leave_attribute_block(core, handle, data)?;
    let block = core.state.blocks.fresh(new, kind);
    core.state.blocks.edit(handle, &block, kind, |bytes| bytes.copy_from_slice(&content));
    data.file_acl = Some(new);
    data.sectors += sectors;
    Ok(())
}

/// Releases an inode's attribute block: one reference less, or freed with the last.
pub(crate) fn leave_attribute_block(core: &Core, handle: &mut Handle<'_>, data: &mut Inode) -> Result<()> {
    let Some(nr) = data.file_acl.take() else { return Ok(()) };
    let block = core.state.xattr_block(nr)?;
    let count = xattr::refcount(&block.bytes()).unwrap_or(1);
    let sectors = if count > 1 {
        let edit = |bytes: &mut [u8]| xattr::set_refcount(bytes, count - 1);
        core.state.blocks.edit(handle, &block, core.state.xattr_kind(), edit);
        u64::from(core.state.geometry().cluster_blocks()) << (core.state.geometry().block_size.shift() - 9)
    } else {
        reserve::free_metadata(core, handle, nr)?
    };
    data.sectors = data.sectors.saturating_sub(sectors);
    Ok(())
}

/// What a new inode inherits from its directory's default ACL: its mode, and its attributes.
pub(crate) fn inherited_acl(
    core: &Core,
    parent: InodeNr,
    parent_data: &Inode,
    mode: u16,
) -> Result<(u16, Vec<Attr>)> {
    let attrs = core.state.attributes(parent, parent_data)?;
    let Some(default) = attrs.iter().find(|attr| attr.name.index() == Index::ACL_DEFAULT) else {
        return Ok((mode, Vec::new()));
    };
    let acl = xattr_read::acl_of(core, parent, default)?;
    let inherited = acl.inherit(mode);
    let mut own = Vec::new();
    if let Some(access) = inherited.access
        && let Some(name) = Name::stored(Index::ACL_ACCESS, b"")
    {
        own.push(Attr::new(name, access.to_disk()));
    }
    if FileKind::of_mode(mode) == Some(FileKind::Directory) {
        own.push(Attr::new(default.name.clone(), acl.to_disk()));
    }
    Ok((inherited.mode, own))
}

/// An access ACL after `chmod`.
pub(crate) fn chmod_acl(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    mode: u16,
) -> Result<()> {
    let mut attrs = core.state.attributes(nr, data)?;
    let Some(attr) = attrs.iter().position(|attr| attr.name.index() == Index::ACL_ACCESS) else {
        return Ok(());
    };
    refuse_values_elsewhere(nr, &attrs)?;
    let attr = &mut attrs[attr];
    let mut acl = xattr_read::acl_of(core, nr, attr)?;
    acl.chmod(mode);
    attr.value = Value::Inline(acl.to_disk());
    store_attributes(core, handle, nr, data, &attrs)
}

pub(crate) fn remove_if_there(attrs: &mut Vec<Attr>, name: &Name) -> Result<()> {
    attrs.retain(|attr| attr.name != *name);
    Ok(())
}

/// Bytes of names and values.
fn bytes_of(attrs: &[Attr]) -> usize {
    let value = |attr: &Attr| if let Value::Inline(bytes) = &attr.value { bytes.len() } else { 0 };
    attrs.iter().map(|attr| attr.name.suffix().len() + value(attr)).sum()
}

pub(crate) fn set_error(error: SetError) -> Error {
    match error {
        SetError::Exists => Error::Exists,
        SetError::Missing => Error::NoAttribute,
    }
}
