//! Linux: descriptors.

mod attributes;

use crate::beneath::open_below;
use crate::stat::{Stat, stat, stat_open};
pub use attributes::AttributeReader;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

/// The bytes listed by one system call.
const LISTING_LEN: usize = 32 << 10;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// NONBLOCK: what is opened may be a pipe, and must not make us wait.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Folder {
    /// Opens a directory, which may be named through symbolic links.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        rustix::fs::open(path, DIRECTORY, Mode::empty()).map(Self)
    }

    /// Another handle of it.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// A directory below it, to reach what is in it; by an empty path itself. It can't be listed.
    ///
    /// # Errors
    /// As [`open_below`].
    pub fn reach(&self, path: &[u8]) -> Result<Self, Errno> {
        open_below(self.as_fd(), path, OFlags::PATH | OFlags::DIRECTORY).map(Self)
    }

    /// A directory below it, to list it; by an empty path itself. Its time of access stays as long as `quiet` is
    /// true, which becomes false where the system permits that only to owners.
    ///
    /// # Errors
    /// As [`open_below`].
    pub fn to_list(&self, path: &[u8], quiet: &mut bool) -> Result<Self, Errno> {
        quietly(quiet, |more| open_below(self.as_fd(), path, DIRECTORY | more)).map(Self)
    }

    /// Opens a file by its name in the directory; `quiet` as in [`Folder::to_list`].
    ///
    /// # Errors
    /// The system's error; `ELOOP` for a symbolic link.
    pub fn open_file(&self, name: &[u8], quiet: &mut bool) -> Result<File, Errno> {
        let flags = FILE | OFlags::NOFOLLOW;
        let open = |more| rustix::fs::openat(self, name, flags | more, Mode::empty());
        quietly(quiet, open).map(File::from)
    }

    /// Opens a file below the directory, without following a link on the way.
    ///
    /// # Errors
    /// As [`open_below`].
    pub fn open_below(&self, path: &[u8]) -> Result<File, Errno> {
        open_below(self.as_fd(), path, FILE).map(File::from)
    }

    /// The metadata of a name in it, not followed.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self, name: &CStr) -> Result<Stat, Errno> {
        stat(self.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
    }

    /// Its own metadata.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat_itself(&self) -> Result<Stat, Errno> {
        stat_open(self.as_fd())
    }

    /// What a symbolic link in it points at.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_link(&self, name: &CStr) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlinkat(self, name, Vec::with_capacity(256))?.into_bytes())
    }

    /// The names in it, each ended by a NUL. It must have been opened to be listed.
    ///
    /// # Errors
    /// The system's error.
    pub fn names(&self, room: &mut Listing) -> Result<Vec<u8>, Errno> {
        let mut names = Vec::new();
        let mut listing = RawDir::new(self, &mut room.0);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                names.extend_from_slice(name.to_bytes_with_nul());
            }
        }
        Ok(names)
    }
}

/// Room for listing directories; one for each thread.
pub struct Listing(Vec<MaybeUninit<u8>>);

impl Default for Listing {
    fn default() -> Self {
        Self(vec![MaybeUninit::uninit(); LISTING_LEN])
    }
}

/// Opens without updating the access time, as long as the system permits it (to owners and root).
fn quietly(quiet: &mut bool, open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    if *quiet {
        match open(OFlags::NOATIME) {
            Err(Errno::PERM) => *quiet = false,
            result => return result,
        }
    }
    open(OFlags::empty())
}

/// Opens a file to read it, and does not wait for the other end of a pipe. Links are followed.
///
/// # Errors
/// The system's error.
pub fn open_file(path: &Path) -> Result<File, Errno> {
    rustix::fs::open(path, FILE, Mode::empty()).map(File::from)
}

/// The data of an open file of `size` bytes, as offsets and lengths; `None` if it has no holes.
///
/// # Errors
/// The system's error.
pub fn data_of(file: BorrowedFd<'_>, size: u64) -> Result<Option<Vec<(u64, u64)>>, Errno> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break, // nothing but hole up to the end
            Err(Errno::INVAL | Errno::NOTSUP) => return Ok(None), // a file system that doesn't know holes
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        if end <= start {
            return Err(Errno::NOENT); // truncated meanwhile: reported as a change
        }
        segments.push((start, end - start));
        at = end;
    }
    Ok(if segments == [(0, size)] { None } else { Some(segments) })
}

/// The bytes that its file system has free for everybody; `None` if that is not known.
#[must_use]
pub fn free_space(file: &File) -> Option<u64> {
    rustix::fs::fstatvfs(file).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
