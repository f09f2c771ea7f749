//! A file under construction, which gets its final name when it is finished (`publish`). How it is made, and how it
//! gets its name, is the host's: `file/atomic_create.rs` and `portable/atomic_create.rs`.
//!
//! Invariant: dropping an unfinished one removes its hidden name, if it has one.

use crate::file::FileDevice;
use crate::file_options::Overwrite;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file under construction.
pub struct PendingFile {
    /// `None` once published.
    pub(crate) device: Option<FileDevice>,
    /// The hidden name, while there is one.
    pub(crate) hidden: Option<PathBuf>,
    pub(crate) path: PathBuf,
    pub(crate) overwrite: Overwrite,
    /// The file that is to be replaced, locked against writers.
    pub(crate) replaced: Option<File>,
    /// Whether files in use are none of its concern.
    pub(crate) shared: bool,
}

impl PendingFile {
    /// The device to build on.
    ///
    /// # Panics
    /// Never: the device is there until [`PendingFile::publish`] takes it with the value.
    #[must_use]
    pub fn device(&self) -> &FileDevice {
        self.device.as_ref().expect("it is taken only when the value is consumed")
    }

    /// Gives it another final name in the same directory: for a file that is named after its content.
    #[must_use]
    pub fn renamed(mut self, name: impl AsRef<OsStr>) -> Self {
        self.path.set_file_name(name);
        self
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        // Some hosts don't remove what is open.
        self.device = None;
        if let Some(hidden) = &self.hidden {
            // Nothing better can be done than to leave it.
            let _ = fs::remove_file(hidden);
        }
    }
}

/// Gives a new file the permissions of the one that it replaces, and its owner as far as this user may. Who could
/// not read the old one can't read the new one: the bits of a group are for that group, and with an ACL they bound
/// what it allows. Where either can't be kept, a group may do what everybody may. Set-ID bits are not kept.
#[cfg(unix)]
pub(crate) fn keep_permissions(new: &File, replaced: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let old = fs::metadata(replaced)?;
    let made = new.metadata()?;
    if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
        // Only root may give files away, and others only to groups of theirs.
        let _ = fchown(new, Some(old.uid()), Some(old.gid())).or_else(|_| fchown(new, None, Some(old.gid())));
    }
    let group = new.metadata()?.gid() == old.gid();
    let exact = acl::keep(new, replaced) && group;
    let (all, everybody) = (old.mode() & 0o777, old.mode() & 0o007);
    let mode = if exact { all } else { all & 0o707 | everybody << 3 };
    let now = new.metadata()?.mode() & 0o777;
    if now == mode {
        return Ok(());
    }
    match new.set_permissions(fs::Permissions::from_mode(mode)) {
        // Nobody may do more than before, or the host has no modes to keep.
        Err(error) if now & !mode == 0 || error.kind() == io::ErrorKind::Unsupported => Ok(()),
        done => done,
    }
}

/// Access ACLs, which only Linux's calls copy here.
#[cfg(all(unix, not(all(target_os = "linux", not(hectare_portable)))))]
mod acl {
    pub(super) fn keep(_: &std::fs::File, _: &std::path::Path) -> bool {
        true
    }
}

/// Access ACLs.
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod acl {
    use rustix::fs::{XattrFlags, fremovexattr, fsetxattr, getxattr};
    use rustix::io::Errno;
    use std::fs::File;
    use std::path::Path;

    const NAME: &str = "system.posix_acl_access";
    /// The most that Linux stores as a value.
    const VALUE_MAX: usize = 1 << 16;

    /// Gives a new file the ACL of the one that it replaces, or none; whether that worked.
    pub(super) fn keep(new: &File, replaced: &Path) -> bool {
        let mut value = vec![0; VALUE_MAX];
        match getxattr(replaced, NAME, &mut value) {
            Ok(len) => fsetxattr(new, NAME, &value[..len], XattrFlags::empty()).is_ok(),
            // What the directory gives to new files is not kept either.
            Err(Errno::NODATA) => matches!(fremovexattr(new, NAME), Ok(()) | Err(Errno::NODATA)),
            Err(errno) => errno == Errno::OPNOTSUPP,
        }
    }
}
