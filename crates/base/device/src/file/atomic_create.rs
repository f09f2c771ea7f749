//! A file that has no name until it is finished, so that a build that fails, or is killed, leaves nothing
//! under the final name.
//!
//! The file is opened with `O_TMPFILE` and linked into its directory at the end; if the program dies before,
//! the kernel frees it. Host file systems without `O_TMPFILE` get a hidden name beside the final one instead,
//! removed when the value is dropped (a killed program then leaves the hidden file).
//!
//! Hazard: publishing must not replace an existing file without permission, even one that appeared meanwhile;
//! linking and `RENAME_NOREPLACE` refuse that in one step.

use super::FileDevice;
use super::options::{check_replaceable, new_mode, open_error};
use super::{lock, place};
use crate::beside::{parent_of, under_hidden_name};
use crate::file_options::{FileOptions, Overwrite};
use crate::pending::{PendingFile, keep_permissions};
use crate::{Device, Error, Operation, Reason, Result};
use hectare_units::Bytes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

impl FileOptions {
    /// Makes a new sparse file of `len` zeros that appears under its name only when
    /// [`published`](PendingFile::publish), and disappears if that never happens.
    ///
    /// # Errors
    /// As [`FileOptions::create`], except that a file to be replaced may be in use by readers, who keep it. One that
    /// somebody writes to is refused, unless these options share it: what is written later would be lost.
    pub fn create_pending(
        &self,
        path: impl AsRef<Path>,
        len: Bytes,
        overwrite: Overwrite,
    ) -> Result<PendingFile> {
        PendingFile::create(self, path.as_ref(), len, overwrite)
    }
}

impl PendingFile {
    pub(super) fn create(
        options: &FileOptions,
        path: &Path,
        len: Bytes,
        overwrite: Overwrite,
    ) -> Result<Self> {
        let name = path.to_string_lossy();
        place::check(path)?;
        check_replaceable(path, &name, overwrite)?;
        if path.file_name().is_none() {
            let reason = Reason::NotADevice("that is no name for a file");
            return Err(Error::new(&name, Operation::Create, None, reason));
        }
        let replaces = overwrite == Overwrite::Replace && path.exists();
        let replaced = if replaces && !options.shared { hold(path, &name)? } else { None };
        // Through a symbolic link the file it leads to is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let fail = |errno| open_error(&name, Operation::Create, errno);
        let flags = options.clone().write(true).flags();
        // Nobody can open it before it has the permissions of the other.
        let mode = if replaces || options.private { Mode::from_raw_mode(0o600) } else { new_mode() };
        let (file, hidden) = match rustix::fs::open(parent_of(&path), flags | OFlags::TMPFILE, mode) {
            Ok(file) => (file, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let make = |hidden: &Path| Ok(rustix::fs::open(hidden, flags, mode)?);
                let made = under_hidden_name(&path, make);
                let (hidden, file) =
                    made.map_err(|error| Error::io(&name, Operation::Create, None, &error))?;
                (file, Some(hidden))
            }
            Err(errno) => return Err(fail(errno)),
        };
        // From here on dropping it removes the hidden name.
        let mut pending = Self { device: None, hidden, path, overwrite, replaced, shared: options.shared };
        let file = File::from(file);
        if replaces {
            let kept = keep_permissions(&file, &pending.path);
            kept.map_err(|error| Error::io(&name, Operation::Create, None, &error))?;
        }
        pending.device = Some(options.prepare(file, &name, len)?);
        Ok(pending)
    }

    /// Gives the file its final name.
    pub(crate) fn give_name(&mut self, device: &FileDevice) -> io::Result<()> {
        if self.hidden.is_none() {
            if self.overwrite == Overwrite::Refuse {
                return Ok(link(device, &self.path)?);
            }
            // A link cannot replace; a rename can.
            let (hidden, ()) = under_hidden_name(&self.path, |hidden| Ok(link(device, hidden)?))?;
            self.hidden = Some(hidden);
        }
        let Some(hidden) = self.hidden.clone() else { return Err(Errno::NOENT.into()) };
        match self.overwrite {
            Overwrite::Refuse => rename_new(&hidden, &self.path)?,
            Overwrite::Replace => self.rename_over(&hidden, device.name())?,
        }
        self.hidden = None;
        Ok(())
    }

    /// Renames to the final name. The file that has it now may be another one than that at the beginning.
    fn rename_over(&mut self, hidden: &Path, name: &str) -> io::Result<()> {
        let held = self.replaced.take();
        let is_other = match (held.as_ref().map(File::metadata).transpose()?, fs::metadata(&self.path)) {
            (Some(held), Ok(now)) => (held.dev(), held.ino()) != (now.dev(), now.ino()),
            (None, Ok(_)) => !self.shared,
            (_, Err(_)) => false,
        };
        let other = if is_other { hold(&self.path, name)? } else { None };
        match rustix::fs::rename(hidden, &self.path) {
            // Some network file systems don't replace what is open.
            Err(_) if held.is_some() || other.is_some() => {
                drop((held, other));
                Ok(rustix::fs::rename(hidden, &self.path)?)
            }
            renamed => Ok(renamed?),
        }
    }
}

/// Opens a file that is to be replaced, and keeps writers away from it. `None` if there is none, or this user may
/// not open it.
fn hold(path: &Path, name: &str) -> Result<Option<File>> {
    let fail = |error: &io::Error| Error::io(name, Operation::Create, None, error);
    // A pipe that took the name meanwhile would wait for its other end.
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            lock::take_to_replace(&file, name)?;
            Ok(Some(file))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::ACCESS | Errno::PERM) => {
            let meta = fs::metadata(path).map_err(|error| fail(&error))?;
            lock::refuse_writing_loop(&meta, name).map(|()| None)
        }
        Err(errno) => Err(fail(&errno.into())),
    }
}

/// Links an unnamed file, by way of its entry in `/proc`, which needs no privilege (see open(2),
/// `O_TMPFILE`).
fn link(device: &FileDevice, path: &Path) -> rustix::io::Result<()> {
    let entry = format!("/proc/self/fd/{}", device.file.as_raw_fd());
    rustix::fs::linkat(CWD, entry, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Renames without replacing. Some host file systems cannot check that in the same step; there it is checked
/// first.
fn rename_new(from: &Path, to: &Path) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(to).is_ok() => Err(Errno::EXIST),
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::rename(from, to),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a host file system without `O_TMPFILE`.
    fn with_hidden_name(path: &Path, overwrite: Overwrite) -> PendingFile {
        let (hidden, ()) = under_hidden_name(path, |hidden| fs::write(hidden, b"new")).unwrap();
        let device = FileOptions::new().write(true).open(&hidden).unwrap();
        let path = path.to_owned();
        PendingFile {
            device: Some(device),
            hidden: Some(hidden),
            path,
            overwrite,
            replaced: None,
            shared: false,
        }
    }

    #[test]
    fn a_hidden_name_becomes_the_final_one_or_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        drop(with_hidden_name(&path, Overwrite::Refuse));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        with_hidden_name(&path, Overwrite::Refuse).publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        fs::write(&path, b"old").unwrap();
        let refused = with_hidden_name(&path, Overwrite::Refuse).publish().err().unwrap();
        assert_eq!((refused.reason(), &fs::read(&path).unwrap()[..]), (&Reason::Exists, &b"old"[..]));
        with_hidden_name(&path, Overwrite::Replace).publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        with_hidden_name(&path, Overwrite::Replace).renamed("other.img").publish().unwrap();
        assert_eq!(fs::read(path.with_file_name("other.img")).unwrap(), b"new");
        fs::remove_file(path.with_file_name("other.img")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
