//! A device that is a regular file of the host, by the standard library alone: for macOS, Windows and others.
//! It has the interface of `file`, which is Linux's, and does less:
//!
//! | | Linux | here |
//! |---|---|---|
//! | block devices | yes | refused |
//! | direct I/O | yes | refused |
//! | a range given up | freed | kept |
//! | a range of zeros | a hole | zeros are written |
//! | holes | found | taken for data |
//! | lock | of this program and of qemu; the holder is named | of this program (`flock`, `LockFileEx`) |
//! | loop devices on the file | refused | none are known |
//! | a file under construction | has no name | has a hidden name beside the final one |
//!
//! Hazards:
//! - A file's length is read once, at opening, as on Linux.
//! - On Windows the lock is not advisory: others can't read what is open for writing. New files are not sparse
//!   there: the host reserves their whole length.
//! - A program that is killed while it makes a file leaves the hidden one.

mod atomic_create;

use crate::beside::{parent_dir, parent_of};
use crate::device::{check_change, check_range, total_len};
use crate::os::{AsFd, BorrowedFd, FileExt};
use crate::scratch::with_scratch;
use crate::{Device, Error, FileOptions, Operation, Overwrite, Reason, Result, Span, Topology};
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::Mutex;
use std::fs::{self, File, TryLockError};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often a lock is tried for, and the first pause between; each other is twice the one before.
const LOCK_TRIES: u32 = 8;
const LOCK_PAUSE: Duration = Duration::from_millis(8);

/// How the name begins that a loop device of Linux remembers for a mount of ours. There are none here.
pub const MOUNT_KEY: &str = "hectare mount of ";

/// A regular file. Made by [`FileOptions`].
pub struct FileDevice {
    file: File,
    name: Arc<str>,
    len: AtomicU64,
    read_only: bool,
    zeroed: bool,
    /// The directory that holds a new name not yet known to be durable.
    pub(crate) unsynced_dir: Mutex<Option<File>>,
}

/// An open image and its lock. Made by [`FileDevice::claim`].
pub struct Claim(File);

impl Claim {
    /// Releases the lock, for a caller that is done with it and can't close it yet. Nothing may be written
    /// after that.
    pub fn release(&self) {
        // Where there are no locks, there was none.
        let _ = self.0.unlock();
    }
}

#[cfg(unix)]
impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(windows)]
impl AsFd for Claim {
    fn as_handle(&self) -> BorrowedFd<'_> {
        self.0.as_handle()
    }
}

impl FileDevice {
    /// A device on a file that is already open, for reading and writing as the file is. No lock is taken.
    /// `name` is for error messages.
    ///
    /// # Errors
    /// If it is not a regular file, or is open only for writing.
    pub fn from_file(file: File, name: &str) -> Result<Self> {
        let fail = |error: io::Error| Error::io(name, Operation::Open, None, &error);
        let metadata = file.metadata().map_err(fail)?;
        check_kind(&metadata, name, Operation::Open)?;
        // Nothing is transferred; what the file is not open for is refused all the same.
        if file.read_at(&mut [], 0).is_err() {
            let reason = Reason::Unsupported("it is open for writing only");
            return Err(Error::new(name, Operation::Open, None, reason));
        }
        let read_only = file.write_at(&[], 0).is_err();
        let len = AtomicU64::new(metadata.len());
        Ok(Self { file, name: name.into(), len, read_only, zeroed: false, unsynced_dir: Mutex::new(None) })
    }

    /// Whether it is a block device: never here.
    #[must_use]
    pub const fn is_block_device(&self) -> bool {
        false
    }

    /// The sizes that a block device reports: none here.
    #[must_use]
    pub const fn topology(&self) -> Option<Topology> {
        None
    }

    /// Whether it bypasses the host's page cache: never here.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        false
    }

    /// Whether a process that can't be identified claims to write to the file (qemu's locks, which are not
    /// known here).
    #[must_use]
    pub const fn is_claimed_by_writer(&self) -> bool {
        false
    }

    /// A reference to the open file, lock included, that can release the lock before the device is dropped.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn claim(&self) -> io::Result<Claim> {
        self.file.try_clone().map(Claim)
    }

    /// A second device on the same open file, lock included, for a layer that owns what it works on. The two
    /// know nothing of each other's changes of the length.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn another(&self) -> Result<Self> {
        let file =
            self.file.try_clone().map_err(|error| Error::io(&self.name, Operation::Open, None, &error))?;
        let len = AtomicU64::new(self.len().get());
        let (name, read_only, zeroed) = (Arc::clone(&self.name), self.read_only, self.zeroed);
        Ok(Self { file, name, len, read_only, zeroed, unsynced_dir: Mutex::new(None) })
    }

    fn fail_io(&self, operation: Operation, span: Span) -> impl Fn(io::Error) -> Error {
        move |error| Error::io(&self.name, operation, Some(span), &error)
    }

    fn set_len(&self, operation: Operation, len: Bytes) -> Result<()> {
        let span = (operation == Operation::Resize).then_some(Span::new(Bytes::ZERO, len));
        self.file.set_len(len.get()).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => {
                Error::new(&self.name, operation, span, Reason::TooLarge(len))
            }
            _ => Error::io(&self.name, operation, span, &error),
        })?;
        self.len.store(len.get(), Ordering::Release);
        Ok(())
    }
}

impl FileOptions {
    /// Opens an existing regular file.
    ///
    /// # Errors
    /// If there is none, permission lacks, it is another kind of file (a block device is refused on this
    /// host), it is locked ([`Reason::Busy`]), or direct I/O was asked for.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<FileDevice> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        let fail = |error: io::Error| Error::io(&name, Operation::Open, None, &error);
        self.refuse_direct(&name, Operation::Open)?;
        loop {
            // Opening a pipe would wait for its other end.
            check_kind(&fs::metadata(path).map_err(fail)?, &name, Operation::Open)?;
            let file = File::options().read(true).write(self.write).open(path).map_err(fail)?;
            if !self.shared {
                take_lock(&file, &name, Operation::Open, self.write)?;
            }
            if self.shared || !self.write || leads_to(path, &file) {
                let mut device = FileDevice::from_file(file, &name)?;
                device.read_only = !self.write;
                return Ok(device);
            }
        }
    }

    /// Makes a new file of `len` zeros, open for writing whatever these options say. It has its name from the
    /// start; [`FileOptions::create_pending`] gives it only to a finished file.
    ///
    /// # Errors
    /// If the file exists and is not to be replaced, it is in use, it is no regular file, or the
    /// host cannot hold a file of that length; in the last case no new file is left behind.
    pub fn create(&self, path: impl AsRef<Path>, len: Bytes, overwrite: Overwrite) -> Result<FileDevice> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        check_output_place(path)?;
        self.refuse_direct(&name, Operation::Create)?;
        match open_new(path, false) {
            Ok(file) => {
                let made = self.prepare(file, &name, len);
                if made.is_err() {
                    // Nothing better can be done than to report the first failure.
                    let _ = fs::remove_file(path);
                }
                let mut device = made?;
                *device.unsynced_dir.get_mut() = parent_dir(path);
                Ok(device)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                check_replaceable(path, &name, overwrite)?;
                let file = File::options().read(true).write(true).open(path);
                let file = file.map_err(|error| Error::io(&name, Operation::Create, None, &error))?;
                self.prepare(file, &name, len)
            }
            Err(error) => Err(Error::io(&name, Operation::Create, None, &error)),
        }
    }

    fn refuse_direct(&self, name: &str, operation: Operation) -> Result<()> {
        let reason = Reason::Unsupported("direct I/O is for Linux only: leave it out");
        if self.direct { Err(Error::new(name, operation, None, reason)) } else { Ok(()) }
    }

    /// Locks a file open for writing, empties it and gives it its length. What it holds stays if it can't
    /// have that length.
    fn prepare(&self, file: File, name: &str, len: Bytes) -> Result<FileDevice> {
        if !self.shared {
            take_lock(&file, name, Operation::Create, true)?;
        }
        let mut device = FileDevice::from_file(file, name)?;
        // Other failures may be gone when the file is empty.
        if device.len() > Bytes::ZERO
            && len > device.len()
            && let Err(error) = device.set_len(Operation::Create, len)
            && matches!(error.reason(), Reason::TooLarge(_))
        {
            return Err(error);
        }
        device.set_len(Operation::Create, Bytes::ZERO)?;
        device.set_len(Operation::Create, len)?;
        device.zeroed = true;
        Ok(device)
    }
}

/// Refuses what is not a regular file.
fn check_kind(metadata: &fs::Metadata, name: &str, operation: Operation) -> Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let kind = metadata.file_type();
    let reason = if kind.is_dir() { Reason::IsADirectory } else { Reason::NotADevice(kind_of(kind)) };
    Err(Error::new(name, operation, None, reason))
}

#[cfg(unix)]
fn kind_of(kind: fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_char_device() => "it is a character device",
        kind if kind.is_fifo() => "it is a pipe",
        kind if kind.is_socket() => "it is a socket",
        kind if kind.is_block_device() => "it is a block device, and those are for Linux only",
        _ => "it is not a regular file",
    }
}

#[cfg(not(unix))]
fn kind_of(_: fs::FileType) -> &'static str {
    "it is not a regular file"
}

/// Takes the lock on a file, exclusive for a writer.
fn take_lock(file: &File, name: &str, operation: Operation, write: bool) -> Result<()> {
    let mut pause = LOCK_PAUSE;
    for left in (0..LOCK_TRIES).rev() {
        let taken = if write { file.try_lock() } else { file.try_lock_shared() };
        match taken {
            Ok(()) => return Ok(()),
            // A program that is just starting another one shares its locks with it until that runs.
            Err(TryLockError::WouldBlock) if left > 0 => std::thread::sleep(pause),
            Err(TryLockError::WouldBlock) => break,
            // A file system without locks is used without.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(Error::io(name, operation, None, &error)),
        }
        pause *= 2;
    }
    let busy = "another program is using it; wait until that is done, or stop it".to_owned();
    Err(Error::new(name, operation, None, Reason::Busy(busy)))
}

/// Whether a path still leads to a file, as far as the host can tell: another one may have taken the name while a
/// writer waited for the lock.
fn leads_to(path: &Path, file: &File) -> bool {
    #[cfg(unix)]
    if let (Ok(now), Ok(opened)) = (fs::metadata(path), file.metadata()) {
        use std::os::unix::fs::MetadataExt;
        return (now.dev(), now.ino()) == (opened.dev(), opened.ino());
    }
    let _ = (path, file);
    true
}

/// Makes a file; a private one is its owner's alone, where the host has modes.
fn open_new(path: &Path, private: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    options.open(path)
}

/// Refuses to make a file at a path that does not exist and lies among the host's devices.
///
/// # Errors
/// [`Reason::NotADevice`] with what to do. Whatever else is wrong with the path is left for its opening to
/// find.
pub fn check_output_place(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let is_missing = fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let folder = parent_of(path).canonicalize().unwrap_or_default();
    if !is_missing || !cfg!(unix) || !folder.starts_with("/dev") || folder.starts_with("/dev/shm") {
        return Ok(());
    }
    let what = "there is no such device, and no file is made among devices; is it attached?";
    Err(Error::new(&path.to_string_lossy(), Operation::Create, None, Reason::NotADevice(what)))
}

/// Refuses a path that may not be replaced, or whose file is of a kind that cannot be.
fn check_replaceable(path: &Path, name: &str, overwrite: Overwrite) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) => {
            check_kind(&metadata, name, Operation::Create)?;
            match overwrite {
                Overwrite::Refuse => Err(Error::new(name, Operation::Create, None, Reason::Exists)),
                Overwrite::Replace => Ok(()),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(name, Operation::Create, None, &error)),
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        Bytes::new(self.len.load(Ordering::Acquire))
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        self.file.read_exact_at(buf, at.get()).map_err(self.fail_io(Operation::Read, span))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        check_change(self, Operation::Write, span)?;
        self.file.write_all_at(data, at.get()).map_err(self.fail_io(Operation::Write, span))
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        let mut place = at.get();
        for part in parts {
            self.file.write_all_at(part, place).map_err(self.fail_io(Operation::Write, span))?;
            place += u64_of(part.len());
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let fail = |error: io::Error| Error::io(&self.name, Operation::Flush, None, &error);
        self.file.sync_data().map_err(fail)?;
        let mut dir = self.unsynced_dir.lock();
        if let Some(open) = &*dir {
            open.sync_all().map_err(fail)?;
            *dir = None;
        }
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Zero, span)?;
        with_scratch(|scratch| {
            let most = index_of(span.len.get().min(u64_of(scratch.len())));
            scratch[..most].fill(0);
            span.pieces(u64_of(scratch.len()))
                .try_for_each(|piece| self.write_at(piece.at, &scratch[..index_of(piece.len.get())]))
        })
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Discard, Span::new(at, len))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        if self.read_only {
            let span = Some(Span::new(Bytes::ZERO, len));
            return Err(Error::new(&self.name, Operation::Resize, span, Reason::ReadOnly));
        }
        self.set_len(Operation::Resize, len)
    }

    fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_is_open_for_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "abc").unwrap();
        let open = |options: &mut fs::OpenOptions| FileDevice::from_file(options.open(&path).unwrap(), "f");
        assert!(open(File::options().read(true)).unwrap().is_read_only());
        assert!(!open(File::options().read(true).write(true)).unwrap().is_read_only());
        let error = open(File::options().write(true)).err().unwrap();
        assert!(error.to_string().contains("for writing only"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"abc");
    }

    #[test]
    fn what_this_host_lacks_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "abc").unwrap();
        let error = FileOptions::new().direct(true).open(&path).err().unwrap();
        assert!(error.to_string().contains("for Linux only"), "{error}");
        let made =
            FileOptions::new().direct(true).create(dir.path().join("g"), Bytes::kib(4), Overwrite::Refuse);
        assert!(made.is_err() && !dir.path().join("g").exists());
    }
}
