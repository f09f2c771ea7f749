//! A file under construction, which gets its final name when it is finished. How it is made, and how it gets its
//! name, is the host's: `file/atomic_create.rs` and `portable.rs`.
//!
//! Invariant: dropping an unfinished one removes its hidden name, if it has one.

use crate::{Device, Error, FileDevice, FileOptions, Operation, Overwrite, Reason, Result};
use hectare_units::Bytes;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

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

    /// Gives the file its name. It is durable under that name once [`Device::flush`] of what is returned has
    /// succeeded.
    ///
    /// # Errors
    /// If meanwhile there is a file of that name and it is not to be replaced, or the directory does not take
    /// it. The file is then gone.
    ///
    /// # Panics
    /// Never: the device is there until this takes it.
    pub fn publish(mut self) -> Result<FileDevice> {
        let mut device = self.device.take().expect("it is taken only here");
        self.give_name(&device).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::new(device.name(), Operation::Publish, None, Reason::Exists)
            }
            _ => Error::io(device.name(), Operation::Publish, None, &error),
        })?;
        *device.unsynced_dir.get_mut() = parent_dir(&self.path);
        Ok(device)
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

impl FileOptions {
    /// Makes a file of `len` zeros in a directory that never has a name, or none that stays.
    ///
    /// # Errors
    /// If the directory takes no file, or the host can't hold one of that length.
    pub fn create_nameless(&self, directory: impl AsRef<Path>, len: Bytes) -> Result<FileDevice> {
        let options = Self { private: true, ..self.clone() };
        loop {
            let path = hidden_name(&directory.as_ref().join("nameless"));
            match options.create_pending(path, len, Overwrite::Refuse) {
                // A process that was killed left it.
                Err(error) if *error.reason() == Reason::Exists => {}
                made => return made?.device().another(),
            }
        }
    }
}

/// The directory a path lies in.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The directory a path lies in, opened so that it can be made durable; `None` if the host does not open
/// directories, as Windows doesn't, or it may not be read.
pub(crate) fn parent_dir(path: &Path) -> Option<File> {
    File::open(parent_of(path)).ok()
}

/// Makes something under a hidden name beside the final one. Names that exist are passed over: a process that was
/// killed left them, and numbers of processes come again.
pub(crate) fn under_hidden_name<T>(
    path: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    loop {
        let hidden = hidden_name(path);
        match make(&hidden) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((hidden, made?)),
        }
    }
}

/// A name beside the final one that is unique in this and all other processes that run.
fn hidden_name(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // The final name is left out: with it, a name near the limit of 255 bytes would become too long.
    path.with_file_name(format!(".hectare-{}-{count}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes in containers have the same numbers again and again.
    #[test]
    fn regression_names_that_a_killed_process_left_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let left: Vec<PathBuf> = (0..3).map(|_| hidden_name(&path)).collect();
        let next = left[2].file_name().unwrap().to_str().unwrap().rsplit('-').next().unwrap();
        let next: u32 = next.parse().unwrap();
        for number in next + 1..next + 40 {
            let name = format!(".hectare-{}-{number}", std::process::id());
            fs::write(folder.path().join(name), "left").unwrap();
        }
        let make = |hidden: &Path| File::create_new(hidden).map(drop);
        let (hidden, ()) = under_hidden_name(&path, make).unwrap();
        assert_eq!(fs::metadata(hidden).unwrap().len(), 0);
    }
}
