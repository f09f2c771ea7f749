//! Checks users' access to extended attributes, by the prefix of their names.
//!
//! | prefix | read by | changed by |
//! |---|---|---|
//! | `user.` (files and directories) | readers of the file | its writers; of a sticky directory, the owner |
//! | `trusted.` | `CAP_SYS_ADMIN`; for others it is not there | `CAP_SYS_ADMIN` |
//! | `security.` | everybody | `CAP_SYS_ADMIN`; `security.capability`: `CAP_SETFCAP` |
//! | `system.posix_acl_` | everybody | the owner |
//!
//! The rules are those of the kernel (xattr(7)). Without a user ([`Volume::set_xattr`] and its like) there
//! are none: everything that the format can hold can be set, read and copied.

use crate::caller::{Caller, Capabilities};
use crate::error::{Error, Result};
use crate::permission::Access;
use crate::volume::Volume;
use crate::xattrs::{check_outside, parse_name};
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::xattr::{How, Index, Name};
use hectare_units::InodeNr;

impl Volume {
    /// The value of an attribute, for a user.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if it does not exist, or not for this user; [`Error::PermissionDenied`];
    /// otherwise as [`Volume::get_xattr`].
    pub fn get_xattr_as(&self, nr: InodeNr, name: impl AsRef<[u8]>, caller: &Caller<'_>) -> Result<Vec<u8>> {
        let inode = self.inode(nr)?;
        {
            let _operation = inode.lock().read();
            self.check_reads_attribute(nr, &inode.get(), &parse_name(name.as_ref())?, caller)?;
        }
        self.get_attribute(&inode, name.as_ref())
    }

    /// The full names of the attributes that are visible to a user.
    ///
    /// # Errors
    /// As [`Volume::list_xattrs`].
    pub fn list_xattrs_as(&self, nr: InodeNr, caller: &Caller<'_>) -> Result<Vec<Vec<u8>>> {
        let mut names = self.list_attributes(&*self.inode(nr)?)?;
        if !caller.may(Capabilities::SYS_ADMIN) {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }

    /// Sets an attribute for a user.
    ///
    /// # Errors
    /// [`Error::Forbidden`] or [`Error::PermissionDenied`] if the user may not; otherwise as
    /// [`Volume::set_xattr`].
    pub fn set_xattr_as(
        &self,
        nr: InodeNr,
        name: impl AsRef<[u8]>,
        value: &[u8],
        how: How,
        caller: &Caller<'_>,
    ) -> Result<()> {
        self.set_attribute(&self.inode(nr)?, name.as_ref(), value, how, Some(caller))
    }

    /// Removes an attribute for a user.
    ///
    /// # Errors
    /// [`Error::Forbidden`] or [`Error::PermissionDenied`] if the user may not; otherwise as
    /// [`Volume::remove_xattr`].
    pub fn remove_xattr_as(&self, nr: InodeNr, name: impl AsRef<[u8]>, caller: &Caller<'_>) -> Result<()> {
        self.remove_attribute(&self.inode(nr)?, name.as_ref(), Some(caller))
    }

    fn check_reads_attribute(
        &self,
        nr: InodeNr,
        data: &Inode,
        name: &Name,
        caller: &Caller<'_>,
    ) -> Result<()> {
        check_outside(name)?;
        match name.index() {
            Index::TRUSTED if !caller.may(Capabilities::SYS_ADMIN) => Err(Error::NoAttribute),
            Index::USER if !has_user_attributes(data) => Err(Error::NoAttribute),
            Index::USER => self.check_permission(nr, data, caller, Access::READ),
            Index::ACL_ACCESS | Index::ACL_DEFAULT => check_has_acls(data),
            _ => Ok(()),
        }
    }

    /// Returns an error for a change of an attribute that this user may not make. The caller holds the
    /// operation lock.
    pub(crate) fn check_changes_attribute(
        &self,
        nr: InodeNr,
        data: &Inode,
        name: &Name,
        caller: &Caller<'_>,
    ) -> Result<()> {
        let needs =
            |capability, reason| if caller.may(capability) { Ok(()) } else { Err(Error::Forbidden(reason)) };
        match name.index() {
            Index::USER if !has_user_attributes(data) => {
                Err(Error::Forbidden("only files and directories have attributes of users"))
            }
            Index::USER if is_sticky_directory(data) && !caller.acts_as(data.uid) => {
                Err(Error::Forbidden("only its owner may change the attributes of a sticky directory"))
            }
            Index::USER => self.check_permission(nr, data, caller, Access::WRITE),
            Index::TRUSTED => needs(Capabilities::SYS_ADMIN, "trusted attributes are root's"),
            Index::SECURITY if *name == Name::capability() => {
                needs(Capabilities::SETFCAP, "changing file capabilities requires CAP_SETFCAP")
            }
            Index::SECURITY => needs(Capabilities::SYS_ADMIN, "security attributes are root's"),
            Index::ACL_ACCESS | Index::ACL_DEFAULT => {
                check_has_acls(data)?;
                let owns = caller.acts_as(data.uid);
                let refused =
                    Error::Forbidden("only its owner may change the access control lists of a file");
                if owns { Ok(()) } else { Err(refused) }
            }
            _ => Ok(()),
        }
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
