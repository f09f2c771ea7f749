//! The face of [`crate::attributes`]: metadata, flags, permissions, extended attributes, the label.

use crate::attributes::permission::Access;
use crate::attributes::stat::Changes;
use crate::attributes::{flags, label, ownership, permission, stat, xattr_permission, xattr_read, xattrs};
use crate::caller::{Caller, Capabilities};
use crate::error::Result;
use crate::names::remove;
use crate::volume::Volume;
use hectare_ext4::inode::InodeFlags;
use hectare_ext4::xattr::How;
use hectare_units::InodeNr;

impl Volume {
    /// The flags of an inode that programs see (`FS_IOC_GETFLAGS`).
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is no such inode, or the error of reading it.
    pub fn inode_flags(&self, nr: InodeNr) -> Result<InodeFlags> {
        Ok(flags::inode_flags(&*self.core().state.inode(nr)?))
    }

    /// Sets the flags of an inode (`FS_IOC_SETFLAGS`). Those that are shown but can't be set stay as they
    /// are, whatever their value in `flags`.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] if the caller is not the owner, for changing the immutable or append-only
    /// flag without the capability, and for changing anything else of an inode that stays immutable;
    /// [`crate::Error::Unsupported`] for flags that the kind of inode, the volume or this program does not
    /// have.
    pub fn set_inode_flags(&self, nr: InodeNr, flags: InodeFlags, caller: &Caller<'_>) -> Result<()> {
        flags::change_flags(self.core(), nr, Some(flags), None, caller, remove::check_empty)
    }

    /// The project of an inode; 0 on a volume without projects.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is no such inode, or the error of reading it.
    pub fn project(&self, nr: InodeNr) -> Result<u32> {
        flags::project(self.core(), nr)
    }

    /// Sets flags and project at once (`FS_IOC_FSSETXATTR`), with flags as [`crate::with_xflags`] makes them.
    ///
    /// # Errors
    /// As [`Volume::set_inode_flags`]; [`crate::Error::Unsupported`] for a project other than 0 where the
    /// volume, or the inode's size, has no room for it.
    pub fn set_flags_and_project(
        &self,
        nr: InodeNr,
        flags: InodeFlags,
        project: u32,
        caller: &Caller<'_>,
    ) -> Result<()> {
        flags::change_flags(self.core(), nr, Some(flags), Some(project), caller, remove::check_empty)
    }

    /// Sets the project of an inode.
    ///
    /// # Errors
    /// As [`Volume::set_flags_and_project`].
    pub fn set_project(&self, nr: InodeNr, project: u32, caller: &Caller<'_>) -> Result<()> {
        flags::change_flags(self.core(), nr, None, Some(project), caller, remove::check_empty)
    }

    /// Sets or clears the flag that sends a file's content through the journal whatever the mode (`chattr
    /// +j`, `chattr -j`). New files inherit it from a directory. Clearing it on a file takes a commit and a
    /// checkpoint.
    ///
    /// # Errors
    /// As [`Volume::set_inode_flags`] for root.
    pub fn set_journal_data(&self, nr: InodeNr, on: bool) -> Result<()> {
        flags::set_journal_data(self.core(), nr, on, remove::check_empty)
    }

    /// The current label, up to 16 bytes.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.core().state.live_sb.lock().label().to_vec()
    }

    /// Sets the label, durably.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for one of more than 16 bytes, or with a NUL; or the error of the commit.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        label::set_label(self.core(), label)
    }

    /// Whether a user may do all of `access` with an inode.
    ///
    /// # Errors
    /// [`crate::Error::PermissionDenied`]; [`crate::Error::Immutable`] for writing to what is immutable;
    /// [`crate::Error::ReadOnly`] for writing to a volume that is; [`crate::Error::NotFound`], or the error
    /// of reading it.
    pub fn permission(&self, nr: InodeNr, caller: &Caller<'_>, access: Access) -> Result<()> {
        let inode = self.core().state.inode(nr)?;
        let _operation = inode.lock().read();
        inode.check_alive()?;
        let data = inode.get();
        permission::check_permission(self.core(), nr, &data, caller, access)
    }

    /// Changes an inode on behalf of a user, whose rights are checked. As with the kernel, giving a file away
    /// and changing its size clear set-id bits and file capabilities. The opener of the file checks that the
    /// user may write to a file whose size changes; setting times to the present is allowed to users with
    /// write permission ([`Volume::permission`]), and then done with [`Volume::touch`].
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] if the caller is not the owner, and for giving away what only root can;
    /// otherwise as [`Volume::change`].
    pub fn change_as(&self, nr: InodeNr, changes: &Changes, caller: &Caller<'_>) -> Result<()> {
        ownership::change_as(self.core(), nr, changes, caller)
    }

    /// Clears what must not survive a write by a user: set-id bits, unless the user may keep them, and file
    /// capabilities. Called before writes; most files have neither, which is remembered.
    /// Returns whether there was anything to clear.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::ReadOnly`], or the error of changing the inode.
    pub fn drop_privileges(&self, nr: InodeNr, caller: &Caller<'_>) -> Result<bool> {
        ownership::drop_privileges(self.core(), &self.core().state.inode(nr)?, caller)
    }

    /// The permissions of an inode after a permitted change of owner or group: set-ID bits are cleared on all
    /// but directories, as in [`Self::change_as`]. `None` if they stay.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or the error of reading the inode.
    pub fn permissions_given_away(&self, nr: InodeNr, caller: &Caller<'_>) -> Result<Option<u16>> {
        let inode = self.core().state.inode(nr)?;
        let data = inode.get();
        Ok(ownership::permissions_given_away(&data, caller))
    }

    /// The part of a umask that counts for new files in a directory: none, if the directory has a default
    /// ACL, which then decides alone, as where [`Creation`](crate::Creation) has the umask.
    ///
    /// # Errors
    /// [`crate::Error::NotADirectory`], [`crate::Error::NotFound`], or the error of reading the directory.
    pub fn umask_in(&self, directory: InodeNr, umask: u16) -> Result<u16> {
        ownership::umask_in(self.core(), directory, umask)
    }

    /// Changes an inode's permissions, owners, times or size.
    ///
    /// # Errors
    /// [`crate::Error::Immutable`] for an immutable inode, or the error of setting the size.
    pub fn change(&self, nr: InodeNr, changes: &Changes) -> Result<()> {
        stat::change(self.core(), nr, changes)
    }

    /// Sets times to the present, as `utimensat` without times does: also of an append-only file, which
    /// [`Volume::change`] refuses. `changes` has times alone, which the caller has from the clock.
    ///
    /// # Errors
    /// [`crate::Error::Immutable`] for an immutable inode, [`crate::Error::NotFound`], or
    /// [`crate::Error::ReadOnly`].
    pub fn touch(&self, nr: InodeNr, changes: &Changes) -> Result<()> {
        stat::touch(self.core(), nr, changes)
    }

    /// The value of an attribute, for a user.
    ///
    /// # Errors
    /// [`crate::Error::NoAttribute`] if it does not exist, or not for this user;
    /// [`crate::Error::PermissionDenied`]; otherwise as [`Volume::get_xattr`].
    pub fn get_xattr_as(&self, nr: InodeNr, name: impl AsRef<[u8]>, caller: &Caller<'_>) -> Result<Vec<u8>> {
        xattr_permission::get_xattr_as(self.core(), nr, name, caller)
    }

    /// The full names of the attributes that are visible to a user.
    ///
    /// # Errors
    /// As [`Volume::list_xattrs`].
    pub fn list_xattrs_as(&self, nr: InodeNr, caller: &Caller<'_>) -> Result<Vec<Vec<u8>>> {
        let mut names = xattr_read::list_attributes(self.core(), &*self.core().state.inode(nr)?)?;
        if !caller.may(Capabilities::SYS_ADMIN) {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }

    /// Sets an attribute for a user.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] or [`crate::Error::PermissionDenied`] if the user may not; otherwise as
    /// [`Volume::set_xattr`].
    pub fn set_xattr_as(
        &self,
        nr: InodeNr,
        name: impl AsRef<[u8]>,
        value: &[u8],
        how: How,
        caller: &Caller<'_>,
    ) -> Result<()> {
        xattrs::set_xattr_as(self.core(), nr, name, value, how, caller)
    }

    /// Removes an attribute for a user.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] or [`crate::Error::PermissionDenied`] if the user may not; otherwise as
    /// [`Volume::remove_xattr`].
    pub fn remove_xattr_as(&self, nr: InodeNr, name: impl AsRef<[u8]>, caller: &Caller<'_>) -> Result<()> {
        xattrs::remove_xattr_as(self.core(), nr, name, caller)
    }
}
