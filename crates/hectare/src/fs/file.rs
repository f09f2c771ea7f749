//! An open file with a position.

use crate::error::{Error, Result};
use crate::fs::attributes;
use crate::fs::metadata::{FileTimes, Metadata, Permissions, mode_bits};
use crate::sync::{Mutex, MutexGuard};
use crate::volume::Volume;
use hectare_engine::{Caller, Changes, Error as Cause, FallocateMode, FileExtent, OpenFile, XattrHow};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

/// What may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
}

impl Access {
    /// For reading alone.
    pub(crate) const READ: Self = Self { read: true, write: false, append: false };
}

/// An open regular file.
///
/// It has one position, which all its clones share ([`try_clone`](Self::try_clone)); reads and writes at an
/// offset don't use it. It keeps its volume open, and its content: a file whose last name is removed lives
/// until it is closed. Small writes at the end may stay in memory for some seconds;
/// [`sync_all`](Self::sync_all) and [`close`](Self::close) report what becomes of them.
#[derive(Clone)]
pub struct File(Arc<Inner>);

struct Inner {
    open: OpenFile,
    volume: Volume,
    path: Box<[u8]>,
    access: Access,
    position: Mutex<u64>,
}

impl File {
    pub(crate) fn new(volume: &Volume, path: &[u8], open: OpenFile, access: Access) -> Self {
        let position = Mutex::new(0);
        Self(Arc::new(Inner { open, volume: volume.clone(), path: path.into(), access, position }))
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// If the inode is damaged.
    pub fn metadata(&self) -> Result<Metadata> {
        self.done(self.0.open.metadata()).map(Metadata)
    }

    /// Reads up to `out.len()` bytes from offset `at`; fewer only at the end of the file.
    ///
    /// # Errors
    /// If it is not open for reading, its map is damaged, or the device fails.
    pub fn read_at(&self, out: &mut [u8], at: u64) -> Result<usize> {
        self.check(self.0.access.read, "the file is not open for reading")?;
        self.done(self.0.open.read_at(at, out))
    }

    /// Fills `out` from offset `at`.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at); of kind `UnexpectedEof` if the file ends before.
    pub fn read_exact_at(&self, out: &mut [u8], at: u64) -> Result<()> {
        let wanted = out.len();
        let have = self.read_at(out, at)?;
        if have == wanted {
            return Ok(());
        }
        let bytes = hectare_units::Bytes::of;
        let cause = Cause::Short { have: bytes(have), want: bytes(wanted) };
        Err(Error::ends_early(self.0.volume.place(&self.0.path), cause))
    }

    /// Writes at offset `at`, and returns how many bytes: fewer than asked only if the volume is full or
    /// the file as large as it can be. A handle that appends writes at the end wherever `at` is, as on Linux.
    ///
    /// # Errors
    /// If it is not open for writing, the volume is full or read-only, or the device fails.
    pub fn write_at(&self, data: &[u8], at: u64) -> Result<usize> {
        self.check_writes()?;
        match self.0.access.append {
            true => self.done(self.0.open.append(data)).map(|(_, done)| done),
            false => self.done(self.0.open.write_at(at, data)),
        }
    }

    /// Writes all of `data` at offset `at`, or, by a handle that appends, at the end.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_all_at(&self, data: &[u8], at: u64) -> Result<()> {
        self.check_writes()?;
        if !self.0.access.append {
            return self.done(self.0.open.write_all_at(at, data));
        }
        let mut left = data;
        while !left.is_empty() {
            // Fewer are written only for a reason that the next call reports.
            let (_, done) = self.done(self.0.open.append(left))?;
            left = &left[done..];
        }
        Ok(())
    }

    /// Makes the file this long: what is beyond is removed, what is missing reads as zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.check_writes()?;
        self.done(self.0.open.set_len(len))
    }

    /// Makes content and metadata durable.
    ///
    /// # Errors
    /// The first write since the last sync that failed.
    pub fn sync_all(&self) -> Result<()> {
        self.done(self.0.open.sync())
    }

    /// Makes the content durable, and what is needed to read it.
    ///
    /// # Errors
    /// The first write since the last sync that failed.
    pub fn sync_data(&self) -> Result<()> {
        self.done(self.0.open.sync_data())
    }

    /// Allocates space for a range, which reads as zeros where nothing was written; the file grows to its
    /// end.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); of kind `Unsupported` on files with block maps.
    pub fn allocate(&self, at: u64, len: u64) -> Result<()> {
        self.check_writes()?;
        self.done(self.0.open.allocate(at, len, false))
    }

    /// Frees the whole blocks of a range, which then reads as zeros; the length stays.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn punch_hole(&self, at: u64, len: u64) -> Result<()> {
        self.check_writes()?;
        self.done(self.0.open.fallocate(FallocateMode::PunchHole, at, len))
    }

    /// The first offset from `at` on that is in no hole; `None` if only holes follow.
    ///
    /// # Errors
    /// If the map is damaged.
    pub fn seek_data(&self, at: u64) -> Result<Option<u64>> {
        self.done(self.0.open.seek_data(at))
    }

    /// The first offset from `at` on that is in a hole: the end of the file at the latest; `None` at or
    /// beyond it.
    ///
    /// # Errors
    /// If the map is damaged.
    pub fn seek_hole(&self, at: u64) -> Result<Option<u64>> {
        self.done(self.0.open.seek_hole(at))
    }

    /// Where a range of bytes lies on the device.
    ///
    /// # Errors
    /// If the map is damaged.
    pub fn extents(&self, range: Range<u64>) -> Result<Vec<FileExtent>> {
        self.done(self.0.open.extents_in(range))
    }

    /// Changes the permissions.
    ///
    /// # Errors
    /// If the volume is read-only or the device fails.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let permissions = Some(mode_bits(permissions.mode()));
        self.done(self.0.open.change(&Changes { permissions, ..Changes::default() }))
    }

    /// Changes the times.
    ///
    /// # Errors
    /// If the volume is read-only or the device fails.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.done(self.0.open.change(&times.changes()))
    }

    /// Changes the owner, the group or both.
    ///
    /// # Errors
    /// If the volume is read-only or the device fails.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.done(self.0.open.change(&Changes { uid, gid, ..Changes::default() }))
    }

    /// The value of an extended attribute; `None` if there is none of that name.
    ///
    /// # Errors
    /// If the attributes are damaged, or the device fails.
    pub fn xattr(&self, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.done(attributes::value(self.0.volume.engine(), self.0.open.inode(), name))
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// If the attributes are damaged, or the device fails.
    pub fn xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.done(self.0.volume.engine().list_xattrs(self.0.open.inode()))
    }

    /// Sets an extended attribute, new or not.
    ///
    /// # Errors
    /// If the value does not fit, the volume is read-only, or the device fails.
    pub fn set_xattr(&self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (engine, inode) = (self.0.volume.engine(), self.0.open.inode());
        self.done(engine.set_xattr(inode, name, value.as_ref(), XattrHow::Either))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// If there is no such attribute, the volume is read-only, or the device fails.
    pub fn remove_xattr(&self, name: impl AsRef<[u8]>) -> Result<()> {
        self.done(self.0.volume.engine().remove_xattr(self.0.open.inode(), name))
    }

    /// Another handle of the same open file, with the same position. It can't fail; the name is `std`'s.
    ///
    /// # Errors
    /// None.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(self.clone())
    }

    /// The open file of the engine.
    #[must_use]
    pub fn engine(&self) -> &OpenFile {
        &self.0.open
    }

    /// Places what is still in memory and reports whether that worked. Dropping does the same, silently. It
    /// makes nothing durable.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.0) {
            Ok(Inner { open, volume, path, .. }) => open.close().map_err(|cause| volume.error(&path, cause)),
            // Others still have it.
            Err(_) => Ok(()),
        }
    }

    fn done<T>(&self, result: Result<T, Cause>) -> Result<T> {
        result.map_err(|cause| self.0.volume.error(&self.0.path, cause))
    }

    fn check(&self, allowed: bool, why: &'static str) -> Result<()> {
        if allowed { Ok(()) } else { Err(Error::bad_handle(self.0.volume.place(&self.0.path), why)) }
    }

    /// Whoever writes a program anew does not pass on the rights that the old one had: file capabilities are
    /// cleared, as Linux does, for root as well.
    fn check_writes(&self) -> Result<()> {
        self.check(self.0.access.write, "the file is not open for writing")?;
        self.done(self.0.open.drop_privileges(&Caller::ROOT)).map(drop)
    }

    fn position(&self) -> MutexGuard<'_, u64> {
        self.0.position.lock()
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = self.0.volume.place(&self.0.path);
        f.debug_struct("File").field("path", &place).field("access", &self.0.access).finish_non_exhaustive()
    }
}

impl Read for &File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position();
        let done = self.read_at(out, *position)?;
        *position += hectare_units::u64_of(done);
        Ok(done)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position();
        let (at, done) = if self.0.access.append {
            self.check_writes()?;
            self.done(self.0.open.append(data))?
        } else {
            (*position, self.write_at(data, *position)?)
        };
        *position = at + hectare_units::u64_of(done);
        Ok(done)
    }

    /// Nothing is buffered here: [`File::sync_all`] makes things durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position();
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (*position, by),
            SeekFrom::End(by) => (self.metadata()?.len(), by),
        };
        let at = base.checked_add_signed(by).filter(|at| i64::try_from(*at).is_ok());
        *position = at.ok_or_else(|| {
            let place = self.0.volume.place(&self.0.path);
            Error::invalid(place, "a position is neither negative nor beyond 2^63 - 1")
        })?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
