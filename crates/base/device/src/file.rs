//! A device that is a regular file or a block device of the host.
//!
//! Reads and writes are `pread` and `pwrite`, through the host's page cache or past it (`direct`). Space is
//! given back with `fallocate` (`punch`). One write alone can be made durable (`dsync`). Writers of a
//! memory-backed file run side by side (`write_queue`, `uffd_insert`), and so do direct ones, which holes
//! would hinder (`host_prealloc`). Opening takes a lock, so that two programs don't write one volume (`lock`,
//! `options`); a file under construction has no name until it is finished (`atomic_create`).
//!
//! Hazards:
//! - The length is read once, at opening. A file that is shortened meanwhile gives `EndsEarly`, never a
//!   short success; lengthening it is not noticed.
//! - The lock is advisory: it keeps out programs that check it. The kernel's own users of an image, loop
//!   devices, don't, so they are looked for.
//! - A new name in a directory is durable only when the directory is, so the first flush after a creation
//!   flushes the directory too.

mod atomic_create;
mod direct;
mod dsync;
mod holes;
mod host_prealloc;
mod lock;
mod options;
mod place;
mod punch;
mod uffd_insert;
mod write_queue;

pub use lock::{Claim, MOUNT_KEY};
pub use place::check as check_output_place;

use crate::device::{check_change, check_range, copy_inside, copy_through_memory, total_len};
use crate::{Device, Error, Extent, Operation, Reason, Result, Span, Topology};
use direct::Direct;
use hectare_units::{Bytes, index_of, u64_of};
use holes::LastData;
use host_prealloc::Ahead;
use parking_lot::Mutex;
use punch::Holes;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use write_queue::Gate;

/// The most buffers given to one `pwritev`: below the 1024 that Linux takes, and 4 KiB of stack where a write
/// is resumed.
const PARTS_MAX: usize = 256;

/// The most bytes asked of one `copy_file_range`: Linux serves less than 2 GiB at a time, and a multiple of
/// any block size lets the host share blocks instead of copying.
const COPY_MAX: u64 = 1 << 30;

/// Copies shorter than this are not worth asking the host to share blocks.
const COPY_MIN: u64 = 1 << 16;

/// Host file systems on which `copy_file_range` shares blocks or copies on the server: Btrfs, XFS, bcachefs,
/// NFS, SMB, Ceph, OCFS2 (their numbers are those of statfs(2) and of `linux/magic.h`). Elsewhere the kernel
/// copies page by page through a pipe, which on ext4 was measured 1.3 to 2 times slower than reading and
/// writing, at every size from 4 KiB to 1 MiB.
const COPIES_WELL: [u32; 7] =
    [0x9123_683e, 0x5846_5342, 0xca45_1a4e, 0x6969, 0xff53_4d42, 0x00c3_6400, 0x7461_636f];

/// A regular file or a block device. Made by [`FileOptions`].
pub struct FileDevice {
    file: File,
    name: Arc<str>,
    kind: FileKind,
    len: AtomicU64,
    read_only: bool,
    zeroed: bool,
    direct: Option<Direct>,
    /// Space for direct writes, if it is a regular file that may have holes.
    ahead: Option<Ahead>,
    /// Where writers meet, if the file is one that takes pages beside them.
    gate: Option<Gate>,
    /// Whether copying inside the kernel is worth trying.
    copies_in_kernel: bool,
    holes: Holes,
    /// Data that the host was asked about.
    last_data: LastData,
    /// Whether the host was found unable to make a single write durable.
    no_dsync: AtomicBool,
    /// The directory that holds a new name not yet known to be durable.
    pub(crate) unsynced_dir: Mutex<Option<File>>,
}

/// What the file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileKind {
    Regular,
    Block(Topology),
}

impl FileDevice {
    /// A device on a file that is already open, for reading and writing as the file is. No lock is taken;
    /// direct I/O is used if the file was opened with `O_DIRECT`. `name` is for error messages.
    ///
    /// # Errors
    /// If it is neither a regular file nor a block device, is open only for writing, or its length does not
    /// suit direct I/O.
    pub fn from_file(file: File, name: &str) -> Result<Self> {
        let fail = |errno| Error::errno(name, Operation::Open, None, errno);
        let flags = rustix::fs::fcntl_getfl(&file).map_err(fail)?;
        if flags & OFlags::RWMODE == OFlags::WRONLY {
            let reason = Reason::Unsupported("it is open for writing only");
            return Err(Error::new(name, Operation::Open, None, reason));
        }
        let stat = rustix::fs::fstat(&file).map_err(fail)?;
        let kind = match file_type(&stat) {
            FileType::RegularFile => FileKind::Regular,
            FileType::BlockDevice => FileKind::Block(Topology::of(&file, &stat).map_err(fail)?),
            other => return Err(Error::new(name, Operation::Open, None, not_a_device(other))),
        };
        let len = length(&file, kind).map_err(|e| Error::io(name, Operation::Open, None, &e))?;
        let mut device = Self {
            name: name.into(),
            kind,
            len: AtomicU64::new(len),
            read_only: flags & OFlags::RWMODE == OFlags::RDONLY,
            zeroed: false,
            direct: None,
            ahead: None,
            gate: None,
            copies_in_kernel: kind == FileKind::Regular && copies_well(file.as_fd()),
            file,
            holes: Holes::default(),
            last_data: LastData::default(),
            no_dsync: AtomicBool::new(false),
            unsynced_dir: Mutex::new(None),
        };
        if flags.contains(OFlags::DIRECT) {
            let direct = Direct::new(device.file.as_fd(), kind);
            direct.check_len(name, Operation::Open, Bytes::new(len))?;
            device.direct = Some(direct);
            device.ahead = (kind == FileKind::Regular && !device.read_only).then(Ahead::new);
            device.copies_in_kernel = false;
        } else if kind == FileKind::Regular && !device.read_only {
            device.gate = Gate::new(&device.file);
        }
        Ok(device)
    }

    /// Whether it is a block device rather than a regular file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        matches!(self.kind, FileKind::Block(_))
    }

    /// The sizes it reports, if it is a block device.
    #[must_use]
    pub fn topology(&self) -> Option<Topology> {
        match self.kind {
            FileKind::Regular => None,
            FileKind::Block(topology) => Some(topology),
        }
    }

    /// Whether it bypasses the host's page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Whether a process that can't be identified claims to write to the file (qemu's locks): what is read
    /// may then mix several states. Always false for a device that was opened for writing, which such a claim
    /// keeps from being opened.
    #[must_use]
    pub fn is_claimed_by_writer(&self) -> bool {
        self.read_only && lock::is_claimed_by_writer(&self.file)
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
        let mut another = Self::from_file(file, &self.name)?;
        another.zeroed = self.zeroed;
        Ok(another)
    }

    /// The file itself, for a mapping of it.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn fail_io(&self, operation: Operation, span: Span) -> impl Fn(io::Error) -> Error {
        move |error| Error::io(&self.name, operation, Some(span), &error)
    }

    fn fail_errno(&self, operation: Operation, span: Span) -> impl Fn(Errno) -> Error {
        move |errno| Error::errno(&self.name, operation, Some(span), errno)
    }

    /// Sets the length of a fresh file.
    fn set_len(&self, operation: Operation, len: Bytes) -> Result<()> {
        if let Some(direct) = &self.direct {
            direct.check_len(&self.name, operation, len)?;
        }
        let span = (operation == Operation::Resize).then_some(Span::new(Bytes::ZERO, len));
        self.file.set_len(len.get()).map_err(|error| {
            too_large(&error, &self.name, operation, span, len)
                .unwrap_or_else(|| Error::io(&self.name, operation, span, &error))
        })?;
        self.len.store(len.get(), Ordering::Release);
        Ok(())
    }

    /// Writes all parts through the host's page cache.
    fn write_buffered(&self, span: Span, parts: &[IoSlice<'_>]) -> Result<()> {
        let turn = self.gate.as_ref().map(|gate| gate.enter(&self.file, span.at.get(), parts));
        self.write_parts(span, parts, turn.as_ref().map_or(0, |turn| turn.done))
    }

    /// Writes all parts but their first `done` bytes with as few system calls as they need.
    fn write_parts(&self, span: Span, parts: &[IoSlice<'_>], done: usize) -> Result<()> {
        let mut at = span.at.get() + u64_of(done);
        let (mut first, mut skip) = advance(parts, done);
        while first < parts.len() {
            let mut advanced = None;
            let rest = batch(&parts[first..], skip, &mut advanced);
            let written = match rustix::io::pwritev(&self.file, rest, at) {
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(self.fail_errno(Operation::Write, span)(errno)),
            };
            if written == 0 && rest.iter().any(|part| !part.is_empty()) {
                return Err(self.fail_errno(Operation::Write, span)(Errno::IO));
            }
            at += u64_of(written);
            let (done, into) = advance(&parts[first..], skip + written);
            (first, skip) = (first + done, into);
        }
        Ok(())
    }

    /// Sees to it that a direct write finds space.
    fn take_space(&self, span: Span) {
        if let Some(ahead) = &self.ahead {
            ahead.of_write(&self.file, span, self.len());
        }
    }

    /// Makes a new name durable, if it isn't known to be.
    fn sync_name(&self) -> Result<()> {
        let mut dir = self.unsynced_dir.lock();
        if let Some(open) = &*dir {
            open.sync_all().map_err(|e| Error::io(&self.name, Operation::Flush, None, &e))?;
            *dir = None;
        }
        Ok(())
    }

    /// Copies inside the kernel as far as that goes; the rest is for a loop.
    fn copy_in_kernel(&self, span: Span, source: BorrowedFd<'_>, source_at: Bytes) -> Result<Bytes> {
        let (mut from, mut to, mut left) = (source_at.get(), span.at.get(), span.len.get());
        while left > 0 {
            let want = index_of(left.min(COPY_MAX));
            match rustix::fs::copy_file_range(source, Some(&mut from), &self.file, Some(&mut to), want) {
                Ok(0) => break,
                Ok(n) => left -= u64_of(n),
                Err(Errno::INTR) => {}
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                    return Err(self.fail_errno(Operation::Copy, span)(errno));
                }
                // Another file system, a kind of file without it, a failing source: the loop does it, or says
                // which side failed.
                Err(_) => break,
            }
        }
        Ok(Bytes::new(span.len.get() - left))
    }
}

/// The error if setting a file's length to `len` failed since there are no such files; the kernel is not
/// even asked where the number does not fit.
fn too_large(
    error: &io::Error,
    name: &str,
    operation: Operation,
    span: Option<Span>,
    len: Bytes,
) -> Option<Error> {
    let is_too_large = error.kind() == io::ErrorKind::FileTooLarge || error.raw_os_error().is_none();
    is_too_large.then(|| Error::new(name, operation, span, Reason::TooLarge(len)))
}

/// How many parts the first `done` bytes cover whole, and how far they reach into the next.
fn advance(parts: &[IoSlice<'_>], done: usize) -> (usize, usize) {
    let mut left = done;
    for (whole, part) in parts.iter().enumerate() {
        if part.len() > left {
            return (whole, left);
        }
        left -= part.len();
    }
    (parts.len(), 0)
}

/// The parts that one call can take, where `skip` bytes of the first are done; `advanced` holds them if
/// there are any.
fn batch<'p>(
    parts: &'p [IoSlice<'p>],
    skip: usize,
    advanced: &'p mut Option<[IoSlice<'p>; PARTS_MAX]>,
) -> &'p [IoSlice<'p>] {
    let whole = &parts[..parts.len().min(PARTS_MAX)];
    if skip == 0 {
        return whole;
    }
    let advanced = advanced.insert([IoSlice::new(&[]); PARTS_MAX]);
    advanced[..whole.len()].copy_from_slice(whole);
    advanced[0].advance(skip);
    &advanced[..whole.len()]
}

/// Whether the file lies on one of [`COPIES_WELL`].
fn copies_well(file: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstatfs(file).ok().map(|stat| crate::os::magic_of(&stat));
    kind.is_some_and(|kind| COPIES_WELL.contains(&kind))
}

/// The type bits of a file's mode.
fn file_type(stat: &rustix::fs::Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// What to say of a file that cannot be a device.
fn not_a_device(kind: FileType) -> Reason {
    Reason::NotADevice(match kind {
        FileType::Directory => return Reason::IsADirectory,
        FileType::CharacterDevice => "it is a character device",
        FileType::Fifo => "it is a pipe",
        FileType::Socket => "it is a socket",
        _ => "it is neither a regular file nor a block device",
    })
}

/// The length in bytes; for a block device where its end is.
fn length(file: &File, kind: FileKind) -> io::Result<u64> {
    match kind {
        FileKind::Regular => Ok(file.metadata()?.len()),
        FileKind::Block(_) => Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?),
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
        match &self.direct {
            None => self.file.read_exact_at(buf, at.get()),
            Some(direct) => direct.read(&self.file, at.get(), buf),
        }
        .map_err(self.fail_io(Operation::Read, span))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        check_change(self, Operation::Write, span)?;
        self.take_space(span);
        match &self.direct {
            None => self.write_buffered(span, &[IoSlice::new(data)]),
            Some(direct) => {
                direct.write(&self.file, at.get(), data).map_err(self.fail_io(Operation::Write, span))
            }
        }
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        self.take_space(span);
        match &self.direct {
            None => self.write_buffered(span, parts),
            Some(direct) => direct
                .write_gathered(&self.file, at.get(), parts)
                .map_err(self.fail_io(Operation::Write, span)),
        }
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        self.take_space(span);
        if self.write_through(span, parts)? {
            return self.sync_name();
        }
        self.write_all_at(at, parts)?;
        self.flush()
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| Error::io(&self.name, Operation::Flush, None, &e))?;
        self.sync_name()
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Zero, span)?;
        let done = self.zero_range(span);
        self.last_data.forget();
        done
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Discard, span)?;
        let done = self.discard_range(span);
        self.last_data.forget();
        done
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        let span = Span::new(at, len);
        check_change(self, Operation::Copy, span)?;
        let by_kernel = if self.copies_in_kernel && len.get() >= COPY_MIN {
            self.copy_in_kernel(span, source, source_at)?
        } else {
            Bytes::ZERO
        };
        if by_kernel == len {
            return Ok(len);
        }
        let rest = len - by_kernel;
        let source_at = Bytes::new(source_at.get().saturating_add(by_kernel.get()));
        Ok(by_kernel + copy_through_memory(self, at + by_kernel, source, source_at, rest)?)
    }

    fn copy_within(&self, from: Bytes, to: Bytes, len: Bytes) -> Result<()> {
        let source = Span::new(from, len);
        check_range(self, Operation::Read, source)?;
        check_change(self, Operation::Copy, Span::new(to, len))?;
        if !self.copies_in_kernel {
            return copy_inside(self, from, to, len);
        }
        if self.copy_from(to, self.file.as_fd(), from, len)? < len {
            return Err(Error::new(&self.name, Operation::Read, Some(source), Reason::EndsEarly));
        }
        Ok(())
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let span = Some(Span::new(Bytes::ZERO, len));
        let refuse = |reason| Err(Error::new(&self.name, Operation::Resize, span, reason));
        if self.read_only {
            return refuse(Reason::ReadOnly);
        }
        if self.is_block_device() {
            return refuse(Reason::Unsupported("a block device has the length it has"));
        }
        self.set_len(Operation::Resize, len)
    }

    fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    fn discards_to_zeros(&self) -> bool {
        self.punches_discarded()
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        let span = Span::new(at, len);
        check_range(self, Operation::Read, span)?;
        Ok(self.last_data.extent_at(&self.file, span))
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn alignment(&self) -> u32 {
        self.direct.as_ref().map_or(1, Direct::unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileOptions, Overwrite};

    #[test]
    fn a_write_cut_short_goes_on_where_it_stopped() {
        let parts = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"de")];
        let at = [0, 2, 3, 4, 5].map(|done| advance(&parts, done));
        assert_eq!(at, [(0, 0), (0, 2), (2, 0), (2, 1), (3, 0)]);
    }

    #[test]
    fn parts_are_resumed_in_the_middle_of_one() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8).unwrap();
        let device = FileDevice::from_file(file, "file").unwrap();
        // A limit on written bytes is out of reach here, so the resumption is passed directly.
        let parts = [IoSlice::new(b"abc"), IoSlice::new(b"defgh")];
        device.write_parts(Span::new(Bytes::ZERO, Bytes::new(8)), &parts, 4).unwrap();
        let mut buf = [0; 8];
        device.read_at(Bytes::ZERO, &mut buf).unwrap();
        assert_eq!(&buf, b"\0\0\0\0efgh");
    }

    #[test]
    fn copying_in_the_kernel_gives_the_same_bytes() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[1] ^ 0x55).collect();
        let source = tempfile::tempfile().unwrap();
        source.write_all_at(&bytes, 0).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let mut device = FileDevice::from_file(file, "file").unwrap();
        device.copies_in_kernel = true;
        let (at, from) = (Bytes::new(333), Bytes::new(4097));
        let span = Span::new(at, Bytes::new(100_000));
        assert_eq!(device.copy_in_kernel(span, source.as_fd(), from).unwrap(), span.len);
        let copied = device.copy_from(at, source.as_fd(), from, Bytes::new(300_000)).unwrap();
        assert_eq!(copied, Bytes::new(195_903));
        let mut buf = vec![0; 195_904];
        device.read_at(at, &mut buf).unwrap();
        assert!(buf[..195_903] == bytes[4097..] && buf[195_903] == 0);
    }

    #[test]
    fn extents_of_files_and_of_memory_agree() {
        let folder = tempfile::tempdir().unwrap();
        let len = Bytes::mib(4);
        let file =
            FileOptions::new().write(true).create(folder.path().join("f"), len, Overwrite::Refuse).unwrap();
        let (memory, sparse) = (crate::MemoryDevice::new(len), crate::SparseDevice::new(len));
        let devices: [&dyn Device; 3] = [&file, &memory, &sparse];
        for device in devices {
            device.write_at(Bytes::mib(1), &[1; 1 << 20]).unwrap();
            let at = |at, len| device.extent_at(at, len).unwrap();
            assert_eq!(at(Bytes::ZERO, len), Extent::zeros(Bytes::mib(1)), "{}", device.name());
            assert_eq!(at(Bytes::kib(1500), Bytes::mib(2)), Extent::data(Bytes::kib(548)));
            assert_eq!(at(Bytes::mib(2), Bytes::mib(2)), Extent::zeros(Bytes::mib(2)));
            assert_eq!(at(len, Bytes::ZERO).len, Bytes::ZERO);
            assert!(device.extent_at(len, Bytes::new(1)).is_err());
        }
    }

    #[test]
    fn holes_made_meanwhile_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let len = Bytes::mib(4);
        let file =
            FileOptions::new().write(true).create(folder.path().join("f"), len, Overwrite::Refuse).unwrap();
        file.write_at(Bytes::ZERO, &vec![1; 4 << 20]).unwrap();
        assert_eq!(file.extent_at(Bytes::ZERO, len).unwrap(), Extent::data(len));
        assert_eq!(file.extent_at(Bytes::mib(1), Bytes::mib(2)).unwrap(), Extent::data(Bytes::mib(2)));
        file.zero(Bytes::mib(1), Bytes::mib(1)).unwrap();
        let hole = file.extent_at(Bytes::mib(1), Bytes::mib(2)).unwrap();
        // A host that can't punch writes zeros.
        assert!(!hole.is_zero || hole == Extent::zeros(Bytes::mib(1)));
        file.write_at(Bytes::mib(1), &[2; 4096]).unwrap();
        assert!(!file.extent_at(Bytes::mib(1), Bytes::mib(2)).unwrap().is_zero);
    }
}
