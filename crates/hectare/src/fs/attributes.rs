//! What a volume's files have beside their content: permissions, owners, times, extended attributes.

use crate::error::Result;
use crate::fs::metadata::{FileTimes, Permissions, mode_bits};
use crate::path::VolumePath;
use crate::volume::Volume;
use hectare_engine::{Changes, Error as Cause, XattrHow};
use hectare_units::InodeNr;

impl Volume {
    /// Changes permissions; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn set_permissions(&self, path: impl VolumePath, permissions: Permissions) -> Result<()> {
        let permissions = Some(mode_bits(permissions.mode()));
        self.change(path, true, &Changes { permissions, ..Changes::default() })
    }

    /// Changes the owner, the group or both; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn chown(&self, path: impl VolumePath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path, true, &Changes { uid, gid, ..Changes::default() })
    }

    /// As [`chown`](Self::chown), of a symbolic link itself.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn lchown(&self, path: impl VolumePath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path, false, &Changes { uid, gid, ..Changes::default() })
    }

    /// Changes times; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn set_times(&self, path: impl VolumePath, times: FileTimes) -> Result<()> {
        self.change(path, true, &times.changes())
    }

    /// As [`set_times`](Self::set_times), of a symbolic link itself.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn set_times_nofollow(&self, path: impl VolumePath, times: FileTimes) -> Result<()> {
        self.change(path, false, &times.changes())
    }

    /// The value of an extended attribute; `None` if there is none of that name. Links are followed.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn xattr(&self, path: impl VolumePath, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.at_inode(path, true, |engine, inode| value(engine, inode, name))
    }

    /// The names of the extended attributes. Links are followed.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn xattrs(&self, path: impl VolumePath) -> Result<Vec<Vec<u8>>> {
        self.at_inode(path, true, hectare_engine::Volume::list_xattrs)
    }

    /// Sets an extended attribute, new or not. Links are followed.
    ///
    /// # Errors
    /// If there is nothing at the path, or the value does not fit.
    pub fn set_xattr(
        &self,
        path: impl VolumePath,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_xattr(path, true, name.as_ref(), value.as_ref())
    }

    /// Removes an extended attribute. Links are followed.
    ///
    /// # Errors
    /// If there is nothing at the path, or no such attribute.
    pub fn remove_xattr(&self, path: impl VolumePath, name: impl AsRef<[u8]>) -> Result<()> {
        self.at_inode(path, true, |engine, inode| engine.remove_xattr(inode, name))
    }

    /// As [`xattr`](Self::xattr), of a symbolic link itself.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn lxattr(&self, path: impl VolumePath, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.at_inode(path, false, |engine, inode| value(engine, inode, name))
    }

    /// As [`xattrs`](Self::xattrs), of a symbolic link itself.
    ///
    /// # Errors
    /// If there is nothing at the path.
    pub fn lxattrs(&self, path: impl VolumePath) -> Result<Vec<Vec<u8>>> {
        self.at_inode(path, false, hectare_engine::Volume::list_xattrs)
    }

    /// As [`set_xattr`](Self::set_xattr), of a symbolic link itself. Linux does not show those of the prefix
    /// `user.` there.
    ///
    /// # Errors
    /// If there is nothing at the path, or the value does not fit.
    pub fn lset_xattr(
        &self,
        path: impl VolumePath,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_xattr(path, false, name.as_ref(), value.as_ref())
    }

    /// As [`remove_xattr`](Self::remove_xattr), of a symbolic link itself.
    ///
    /// # Errors
    /// If there is nothing at the path, or no such attribute.
    pub fn lremove_xattr(&self, path: impl VolumePath, name: impl AsRef<[u8]>) -> Result<()> {
        self.at_inode(path, false, |engine, inode| engine.remove_xattr(inode, name))
    }

    fn change(&self, path: impl VolumePath, follow: bool, changes: &Changes) -> Result<()> {
        self.at_inode(path, follow, |engine, inode| engine.change(inode, changes))
    }

    fn put_xattr(&self, path: impl VolumePath, follow: bool, name: &[u8], value: &[u8]) -> Result<()> {
        self.at_inode(path, follow, |engine, inode| engine.set_xattr(inode, name, value, XattrHow::Either))
    }

    /// Calls the engine for what a path leads to, or for a symbolic link at its end itself.
    fn at_inode<T>(
        &self,
        path: impl VolumePath,
        follow: bool,
        call: impl FnOnce(&hectare_engine::Volume, InodeNr) -> Result<T, Cause>,
    ) -> Result<T> {
        self.at(path, |engine, path| call(engine, engine.resolve(path, follow)?))
    }
}

/// The value of an attribute; `None` if there is none of that name.
pub(crate) fn value(
    engine: &hectare_engine::Volume,
    inode: InodeNr,
    name: impl AsRef<[u8]>,
) -> Result<Option<Vec<u8>>, Cause> {
    match engine.get_xattr(inode, name) {
        Err(Cause::NoAttribute) => Ok(None),
        found => found.map(Some),
    }
}
