//! Sets and removes extended attributes.
//!
//! A change reads all attributes of the inode, changes the list, and lays all of it out anew
//! ([`crate::attributes::xattr_store`]).

use crate::attributes::permission::{SET_GID, keeps_set_gid};
use crate::attributes::xattr_names::{check_outside, parse_name};
use crate::attributes::xattr_store::{Plan, remove_if_there, set_error};
use crate::attributes::{freeing, grow, xattr_permission, xattr_store};
use crate::caller::Caller;
use crate::data::reclaim;
use crate::error::{Error, Result};
use crate::space::map_edit::MAP_CREDITS;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::acl::{self, Acl};
use hectare_ext4::inode::{Inode, Kind as FileKind};
use hectare_ext4::xattr::{self, Attr, How, Index, Name};
use hectare_units::InodeNr;
use std::sync::Arc;

/// Sets an attribute for a user.
pub(crate) fn set_xattr_as(
    core: &Core,
    nr: InodeNr,
    name: impl AsRef<[u8]>,
    value: &[u8],
    how: How,
    caller: &Caller<'_>,
) -> Result<()> {
    set_attribute(core, &core.state.inode(nr)?, name.as_ref(), value, how, Some(caller))
}

/// Removes an attribute for a user.
pub(crate) fn remove_xattr_as(
    core: &Core,
    nr: InodeNr,
    name: impl AsRef<[u8]>,
    caller: &Caller<'_>,
) -> Result<()> {
    remove_attribute(core, &core.state.inode(nr)?, name.as_ref(), Some(caller))
}

/// Sets an attribute, for a user if there is one, whose permission is checked. An access ACL sets the
/// mode's permissions as well.
pub(crate) fn set_attribute(
    core: &Core,
    inode: &Arc<CachedInode>,
    name: &[u8],
    value: &[u8],
    how: How,
    caller: Option<&Caller<'_>>,
) -> Result<()> {
    let name = parse_name(name)?;
    check_outside(&name)?;
    let stored = acl::to_stored(&name, value).map_err(|_| Error::Invalid("this is no valid POSIX ACL"))?;
    reclaim::retry(core, || {
        let _operation = inode.lock().write();
        core.check_changeable(inode)?;
        change_attributes(core, inode, |data, attrs| {
            caller.map_or(Ok(()), |caller| {
                xattr_permission::check_changes_attribute(core, inode.nr(), data, &name, caller)
            })?;
            let is_acl = matches!(name.index(), Index::ACL_ACCESS | Index::ACL_DEFAULT);
            if is_acl && data.kind() == Some(FileKind::Symlink) {
                return Err(Error::Unsupported("a symbolic link has no ACL".to_owned()));
            }
            let Some(stored) = &stored else { return remove_if_there(attrs, &name) };
            if name.index() == Index::ACL_ACCESS {
                let acl = Acl::from_xattr(value).ok().flatten();
                let acl = acl.ok_or(Error::Invalid("this is no valid POSIX ACL"))?;
                data.mode = acl.apply_to(data.mode);
                if caller.is_some_and(|caller| !keeps_set_gid(caller, data.gid)) {
                    data.mode &= !SET_GID;
                }
                if acl.to_mode().is_some() {
                    return remove_if_there(attrs, &name);
                }
            }
            if name.index() == Index::ACL_DEFAULT && data.kind() != Some(FileKind::Directory) {
                return Err(Error::PermissionDenied); // like the kernel, where it means that there is none
            }
            xattr::set(attrs, &name, stored, how).map_err(set_error)
        })
    })?;
    core.sync_if_asked(inode)
}

/// Removes an attribute, for a user if there is one.
pub(crate) fn remove_attribute(
    core: &Core,
    inode: &Arc<CachedInode>,
    name: &[u8],
    caller: Option<&Caller<'_>>,
) -> Result<()> {
    let name = parse_name(name)?;
    check_outside(&name)?;
    reclaim::retry(core, || {
        let _operation = inode.lock().write();
        core.check_changeable(inode)?;
        change_attributes(core, inode, |data, attrs| {
            caller.map_or(Ok(()), |caller| {
                xattr_permission::check_changes_attribute(core, inode.nr(), data, &name, caller)
            })?;
            // Having no ACL means no more than the mode, which is always consistent.
            if matches!(name.index(), Index::ACL_ACCESS | Index::ACL_DEFAULT) {
                return remove_if_there(attrs, &name);
            }
            xattr::remove(attrs, &name).map(drop).map_err(set_error)
        })
    })?;
    core.sync_if_asked(inode)
}

/// Removes an attribute, whatever the flags of the inode: as part of another, permitted change. The
/// caller holds the operation lock.
pub(crate) fn remove_attribute_locked(core: &Core, inode: &Arc<CachedInode>, name: &Name) -> Result<()> {
    change_attributes(core, inode, |_, attrs| remove_if_there(attrs, name))
}

/// Changes the attributes of an inode, whose operation lock the caller holds and which it may change.
fn change_attributes(
    core: &Core,
    inode: &Arc<CachedInode>,
    change: impl FnOnce(&mut Inode, &mut Vec<Attr>) -> Result<()>,
) -> Result<()> {
    freeing::with_dropped(core, || change_stored(core, inode, change))
}

fn change_stored(
    core: &Core,
    inode: &Arc<CachedInode>,
    change: impl FnOnce(&mut Inode, &mut Vec<Attr>) -> Result<()>,
) -> Result<()> {
    inode.set_harmless(false);
    let mut attrs = core.state.attributes(inode.nr(), &inode.get())?;
    let mut changed = inode.get().clone();
    change(&mut changed, &mut attrs)?;
    let plan = Plan::new(core, inode.nr(), &inode.get(), attrs)?;
    let mut handle = core.start(MAP_CREDITS + plan.credits(core))?;
    xattr_store::store(core, &mut handle, inode, plan)?;
    let now = core.state.now();
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    grow::grow_extra(core, &mut handle, inode.nr(), &mut data)?;
    data.mode = changed.mode;
    data.ctime = now;
    Ok(())
}
