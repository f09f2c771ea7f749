//! Reads extended attributes, with the values that lie in inodes of their own.

use crate::attributes::value_inodes::{self, Owner};
use crate::attributes::xattr_names::parse_name;
use crate::error::{Error, Result};
use crate::state::Core;
use crate::state::attributes::ValueAt;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::acl::{self, Acl};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::Inode;
use hectare_ext4::xattr::{self, Attr, Index, Name, Value};
use hectare_units::{Bytes, InodeNr, u64_of};

/// The most bytes that the values of one inode may have together in a request for all: some hundred values of
/// the largest size, where a block of 4 KiB has room for two hundred small ones. One value of 64 KiB may
/// appear under each of thousands of names.
const VALUES_MAX: Bytes = Bytes::mib(64);

/// A value, wherever it lies.
fn value(core: &Core, owner: Owner, attr: &Attr) -> Result<Vec<u8>> {
    match &attr.value {
        Value::Inline(bytes) => Ok(bytes.clone()),
        Value::Inode { inode, size, hash } => {
            let at = ValueAt { inode: *inode, size: *size, hash: *hash };
            value_inodes::read_value(core, owner, &attr.name, &at)
        }
    }
}

/// A value by its full name (`user.comment`).
pub(crate) fn get_attribute(core: &Core, inode: &CachedInode, name: &[u8]) -> Result<Vec<u8>> {
    let name = parse_name(name)?;
    let _operation = inode.lock().read();
    inode.check_alive()?;
    let attrs = core.state.attributes(inode.nr(), &inode.get())?;
    let attr = xattr::find(&attrs, &name).ok_or(Error::NoAttribute)?;
    let owner = Owner::of(inode.nr(), &inode.get());
    let value = value(core, owner, attr)?;
    Ok(acl::to_shown(&name, &value, Place::Inode(inode.nr()))?.into_owned())
}

/// The full names and the values of an inode's attributes, which are read and parsed once.
pub(crate) fn all_attributes(core: &Core, inode: &CachedInode) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let _operation = inode.lock().read();
    inode.check_alive()?;
    let attrs = core.state.attributes(inode.nr(), &inode.get())?;
    let hidden = Name::inline_data();
    let shown = attrs.iter().filter(|attr| attr.name != hidden);
    // By their declared sizes, before any is read; a value of another size is refused when it is.
    let total: u64 = shown.clone().map(|attr| stored_len(&attr.value)).sum();
    if Bytes::new(total) > VALUES_MAX {
        let (nr, most) = (inode.nr(), VALUES_MAX.get() >> 20);
        let what = format!("the attributes of inode {nr} have {total} bytes, and {most} MiB are read");
        return Err(Error::Unsupported(what));
    }
    let (mut all, owner) = (Vec::new(), Owner::of(inode.nr(), &inode.get()));
    for attr in shown {
        let Some(full) = attr.name.full() else { continue };
        let value = value(core, owner, attr)?;
        all.push((full, acl::to_shown(&attr.name, &value, Place::Inode(inode.nr()))?.into_owned()));
    }
    Ok(all)
}

/// The full names of an inode's attributes; inline data and names without a known prefix are left out.
pub(crate) fn list_attributes(core: &Core, inode: &CachedInode) -> Result<Vec<Vec<u8>>> {
    let _operation = inode.lock().read();
    inode.check_alive()?;
    let attrs = core.state.attributes(inode.nr(), &inode.get())?;
    let hidden = Name::inline_data();
    Ok(attrs.iter().filter(|attr| attr.name != hidden).filter_map(|attr| attr.name.full()).collect())
}

/// Whether an inode has an attribute.
pub(crate) fn has_attribute(core: &Core, nr: InodeNr, data: &Inode, name: &Name) -> Result<bool> {
    Ok(xattr::find(&core.state.attributes(nr, data)?, name).is_some())
}

/// The access ACL, where it differs from the mode.
pub(crate) fn access_acl(core: &Core, nr: InodeNr, data: &Inode) -> Result<Option<Acl>> {
    let attrs = core.state.attributes(nr, data)?;
    attrs
        .iter()
        .find(|attr| attr.name.index() == Index::ACL_ACCESS)
        .map(|attr| acl_of(core, Owner::of(nr, data), attr))
        .transpose()
}

/// Whether a directory has a default ACL.
pub(crate) fn has_default_acl(core: &Core, nr: InodeNr, data: &Inode) -> Result<bool> {
    Ok(core.state.attributes(nr, data)?.iter().any(|attr| attr.name.index() == Index::ACL_DEFAULT))
}

pub(crate) fn acl_of(core: &Core, owner: Owner, attr: &Attr) -> Result<Acl> {
    let bad = |e: acl::Invalid| Corrupt::new("access control list", Place::Inode(owner.nr), e.to_string());
    Ok(Acl::from_disk(&value(core, owner, attr)?).map_err(bad)?)
}

/// The declared size of a value.
fn stored_len(value: &Value) -> u64 {
    match value {
        Value::Inline(bytes) => u64_of(bytes.len()),
        Value::Inode { size, .. } => u64::from(*size),
    }
}
