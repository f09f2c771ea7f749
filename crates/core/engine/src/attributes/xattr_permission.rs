//! Checks users' access to extended attributes, by the prefix of their names.
//!
//! | prefix | read by | changed by |
//! |---|---|---|
//! | `user.` (files and directories) | readers of the file | its writers; of a sticky directory, the owner |
//! | `trusted.` | `CAP_SYS_ADMIN`; for others it is not there | `CAP_SYS_ADMIN` |
//! | `security.` | everybody | `CAP_SYS_ADMIN`; `security.capability`: `CAP_SETFCAP` |
//! | `system.posix_acl_` | everybody | the owner |
//!
//! The rules are those of the kernel (xattr(7)). Without a user ([`crate::Volume::set_xattr`] and its like)
//! there are none: everything that the format can hold can be set, read and copied.

use crate::attributes::permission::Access;
use crate::attributes::xattr_names::{check_outside, parse_name};
use crate::attributes::{permission, xattr_read};
use crate::caller::{Caller, Capabilities};
use crate::error::{Error, Result};
use crate::state::Core;
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::xattr::{Index, Name};
use hectare_units::InodeNr;

/// The value of an attribute, for a user.
pub(crate) fn get_xattr_as(
    core: &Core,
    nr: InodeNr,
    name: impl AsRef<[u8]>,
    caller: &Caller<'_>,
) -> Result<Vec<u8>> {
    let inode = core.state.inode(nr)?;
    {
        let _operation = inode.lock().read();
        check_reads_attribute(core, nr, &inode.get(), &parse_name(name.as_ref())?, caller)?;
    }
    xattr_read::get_attribute(core, &inode, name.as_ref())
}

fn check_reads_attribute(
    core: &Core,
    nr: InodeNr,
    data: &Inode,
    name: &Name,
    caller: &Caller<'_>,
) -> Result<()> {
    check_outside(name)?;
    match name.index() {
        Index::TRUSTED if !caller.may(Capabilities::SYS_ADMIN) => Err(Error::NoAttribute),
        Index::USER if !has_user_attributes(data) => Err(Error::NoAttribute),
        Index::USER => permission::check_permission(core, nr, data, caller, Access::READ),
        Index::ACL_ACCESS | Index::ACL_DEFAULT => check_has_acls(data),
        _ => Ok(()),
    }
}

/// Returns an error for a change of an attribute that this user may not make. The caller holds the
/// operation lock.
pub(crate) fn check_changes_attribute(
    core: &Core,
    nr: InodeNr,
    data: &Inode,
    name: &Name,
    caller: &Caller<'_>,
) -> Result<()> {
    let needs =
        |capability, reason| if caller.may(capability) { Ok(()) } else { Err(Error::NotPermitted(reason)) };
    match name.index() {
        Index::USER if !has_user_attributes(data) => {
            Err(Error::NotPermitted("only files and directories have attributes of users"))
        }
        Index::USER if is_sticky_directory(data) && !caller.acts_as(data.uid) => {
            Err(Error::NotPermitted("only its owner may change the attributes of a sticky directory"))
        }
        Index::USER => permission::check_permission(core, nr, data, caller, Access::WRITE),
        Index::TRUSTED => needs(Capabilities::SYS_ADMIN, "trusted attributes are root's"),
        Index::SECURITY if *name == Name::capability() => {
            needs(Capabilities::SETFCAP, "changing file capabilities requires CAP_SETFCAP")
        }
        Index::SECURITY => needs(Capabilities::SYS_ADMIN, "security attributes are root's"),
        Index::ACL_ACCESS | Index::ACL_DEFAULT => {
            check_has_acls(data)?;
            let owns = caller.acts_as(data.uid);
            let refused = Error::NotPermitted("only its owner may change the access control lists of a file");
            if owns { Ok(()) } else { Err(refused) }
        }
        _ => Ok(()),
    }
}

fn has_user_attributes(data: &Inode) -> bool {
    matches!(data.kind(), Some(Kind::File | Kind::Directory))
}

fn check_has_acls(data: &Inode) -> Result<()> {
    if data.kind() != Some(Kind::Symlink) {
        return Ok(());
    }
    Err(Error::Unsupported("symbolic links have no access control lists".into()))
}

fn is_sticky_directory(data: &Inode) -> bool {
    data.kind() == Some(Kind::Directory) && data.permissions() & 0o1000 != 0
}
