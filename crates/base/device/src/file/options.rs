//! Options for opening a file or block device, and for making a new file.
//!
//! Hazard: between checking a path and opening it, it can become another file. So the checks that matter
//! are made on the open file; the earlier check only avoids what opening itself would do wrong (waiting for
//! a pipe's other end, or missing that a block device needs `O_EXCL` from the start).

use super::direct::Direct;
use super::{FileDevice, FileKind, file_type, lock, not_a_device, place, too_large};
use crate::beside::parent_dir;
use crate::device::Device;
use crate::file_options::{FileOptions, Overwrite};
use crate::{Error, Operation, Reason, Result};
use hectare_units::Bytes;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

impl FileOptions {
    /// Opens an existing regular file or block device.
    ///
    /// # Errors
    /// If there is none, permission lacks, it is another kind of file, it is in use
    /// ([`Reason::Busy`]: locked, mounted, or under a loop device), or the host cannot do direct I/O on it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<FileDevice> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        loop {
            let file = self.open_locked(path, &name)?;
            if self.shared || !self.write || leads_to(path, &file) {
                self.bypass_cache(&file, &name, Operation::Open)?;
                return FileDevice::from_file(file, &name);
            }
        }
    }

    /// Opens what a path leads to, and takes its lock.
    fn open_locked(&self, path: &Path, name: &str) -> Result<File> {
        let fail = |errno| open_error(name, Operation::Open, errno);
        let stat = rustix::fs::stat(path).map_err(fail)?;
        let mut flags = self.flags();
        match file_type(&stat) {
            FileType::RegularFile => {}
            FileType::BlockDevice if self.shared => {}
            FileType::BlockDevice => flags |= OFlags::EXCL,
            other => return Err(Error::new(name, Operation::Open, None, not_a_device(other))),
        }
        let opened = lock::patiently(|| rustix::fs::open(path, flags, Mode::empty()), |e| *e == Errno::BUSY);
        let file = File::from(opened.map_err(fail)?);
        if !self.shared && file_type(&rustix::fs::fstat(&file).map_err(fail)?) == FileType::RegularFile {
            lock::take(&file, name, Operation::Open, self.write)?;
        }
        Ok(file)
    }

    /// Makes a new sparse file of `len` zeros, open for writing whatever these options say. It has its name
    /// from the start; [`FileOptions::create_pending`] gives it only to a finished file.
    ///
    /// # Errors
    /// If the file exists and is not to be replaced, it is in use, it is no regular file, or the
    /// host cannot hold a file of that length; in the last case no new file is left behind.
    pub fn create(&self, path: impl AsRef<Path>, len: Bytes, overwrite: Overwrite) -> Result<FileDevice> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        place::check(path)?;
        let flags = Self { write: true, ..self.clone() }.flags();
        let fresh = rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, new_mode());
        match fresh {
            Ok(file) => {
                let made = self.prepare(file.into(), &name, len);
                if made.is_err() {
                    // Nothing better can be done than to report the first failure.
                    let _ = std::fs::remove_file(path);
                }
                let mut device = made?;
                *device.unsynced_dir.get_mut() = parent_dir(path);
                Ok(device)
            }
            Err(Errno::EXIST) => loop {
                check_replaceable(path, &name, overwrite)?;
                let fail = |errno| open_error(&name, Operation::Create, errno);
                let file = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
                let device = self.prepare(file.into(), &name, len)?;
                if self.shared || leads_to(path, &device.file) {
                    return Ok(device);
                }
            },
            Err(errno) => Err(open_error(&name, Operation::Create, errno)),
        }
    }

    /// The flags to open with, `O_EXCL` and `O_DIRECT` aside.
    pub(super) fn flags(&self) -> OFlags {
        let access = if self.write { OFlags::RDWR } else { OFlags::RDONLY };
        access | OFlags::CLOEXEC
    }

    /// Turns direct I/O on where asked for. Not asked of `open` itself, which on a host without it creates
    /// the file before it fails.
    fn bypass_cache(&self, file: &File, name: &str, operation: Operation) -> Result<()> {
        if !self.direct {
            return Ok(());
        }
        let flags = rustix::fs::fcntl_getfl(file);
        let set = flags.and_then(|flags| rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT));
        set.map_err(|errno| match errno {
            Errno::INVAL => {
                let reason = Reason::Unsupported("the file system it lies on has no direct I/O");
                Error::new(name, operation, None, reason)
            }
            errno => Error::errno(name, operation, None, errno),
        })
    }

    /// Refuses a length that a file can't have, while its content is still intact.
    fn check_len(&self, file: &File, name: &str, len: Bytes) -> Result<()> {
        if self.direct {
            Direct::new(file.as_fd(), FileKind::Regular).check_len(name, Operation::Create, len)?;
        }
        let held = file.metadata().map_err(|e| Error::io(name, Operation::Create, None, &e))?.len();
        if held == 0 || len.get() <= held {
            return Ok(());
        }
        // Other failures may be gone when the file is empty.
        let failed = file.set_len(len.get()).err();
        failed.and_then(|error| too_large(&error, name, Operation::Create, None, len)).map_or(Ok(()), Err)
    }

    /// Locks a file open for writing, empties it and gives it its length. What it holds stays if it can't
    /// have that length.
    pub(super) fn prepare(&self, file: File, name: &str, len: Bytes) -> Result<FileDevice> {
        if !self.shared {
            lock::take(&file, name, Operation::Create, true)?;
        }
        self.bypass_cache(&file, name, Operation::Create)?;
        self.check_len(&file, name, len)?;
        file.set_len(0).map_err(|e| Error::io(name, Operation::Create, None, &e))?;
        let mut device = FileDevice::from_file(file, name)?;
        device.set_len(Operation::Create, len)?;
        device.zeroed = true;
        debug_assert_eq!(device.len(), len);
        Ok(device)
    }
}

/// Whether a path still leads to a file: while a writer waited for the lock, another file may have taken the name,
/// and what is written to the old one is lost. A path that leads nowhere has no better one.
fn leads_to(path: &Path, file: &File) -> bool {
    match (rustix::fs::stat(path), rustix::fs::fstat(file)) {
        (Ok(now), Ok(opened)) => (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino),
        _ => true,
    }
}

/// What new files may be used for, before the umask.
pub(super) fn new_mode() -> Mode {
    Mode::from_raw_mode(0o666)
}

/// Refuses a path that may not be replaced, or whose file is of a kind that cannot be.
pub(super) fn check_replaceable(path: &Path, name: &str, overwrite: Overwrite) -> Result<()> {
    let refuse = |reason| Err(Error::new(name, Operation::Create, None, reason));
    match rustix::fs::stat(path).map(|stat| file_type(&stat)) {
        Ok(FileType::BlockDevice) => {
            refuse(Reason::NotADevice("it is a block device, which can be opened but not made"))
        }
        Ok(FileType::RegularFile) if overwrite == Overwrite::Refuse => refuse(Reason::Exists),
        Ok(FileType::RegularFile) | Err(Errno::NOENT) => Ok(()),
        Ok(other) => refuse(not_a_device(other)),
        Err(errno) => Err(Error::errno(name, Operation::Create, None, errno)),
    }
}

/// Explains a refused opening where the bare system error would be unclear.
pub(super) fn open_error(name: &str, operation: Operation, errno: Errno) -> Error {
    if errno != Errno::BUSY {
        return Error::errno(name, operation, None, errno);
    }
    let busy = "it is mounted or in use; unmount it first".to_owned();
    Error::new(name, operation, None, Reason::Busy(busy))
}
