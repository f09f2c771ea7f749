//! Reads the extended attributes of files in a directory.
//!
//! No system call older than Linux 6.13 reads the attributes of a name relative to a directory without
//! opening it, and opening every file costs more than the rest of the scan. The path `/proc/self/fd/N/name`
//! does: one call that returns "none" for most files. Where `/proc` is not mounted, files and directories are
//! opened instead, and links and devices are taken to have none.
//!
//! A file system without attributes answers the first call with "not supported"; it is not asked again.

use super::Folder;
use crate::folder::Attribute;
use crate::stat::{FileType, Stat};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;

/// Reads attributes; one for each scanning thread.
#[derive(Debug, Default)]
pub struct AttributeReader {
    path: Vec<u8>,
    /// The device that last reported that it has no attributes.
    without: Option<u64>,
    /// The directory that `path` starts with.
    prefix: Option<(i32, usize)>,
}

impl AttributeReader {
    /// Whether names can be reached through `/proc`.
    fn has_proc(dir: BorrowedFd<'_>) -> bool {
        rustix::fs::access(format!("/proc/self/fd/{}", dir.as_raw_fd()), rustix::fs::Access::EXISTS).is_ok()
    }

    /// The attributes of `name` in `dir`, of which the metadata are known; the values of those only whose name
    /// is `wanted`.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(
        &mut self,
        dir: &Folder,
        name: &CStr,
        stat: &Stat,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Attribute>, Errno> {
        let (dir, device) = (dir.as_fd(), stat.identity.device);
        if self.without == Some(device) {
            return Ok(Vec::new());
        }
        let prefix = self.set_prefix(dir);
        self.path.truncate(prefix);
        self.path.extend_from_slice(name.to_bytes());
        let openable = matches!(stat.file_type, FileType::Directory | FileType::RegularFile);
        let result = match Object::Path(&self.path).attributes(&wanted) {
            Err(Errno::NOENT | Errno::NOTDIR) if !Self::has_proc(dir) => open_object(dir, name, openable)
                .and_then(|object| match object {
                    Some(fd) => Object::Fd(fd).attributes(&wanted),
                    None => Ok(Vec::new()),
                }),
            result => result,
        };
        self.settle(result, device)
    }

    /// The attributes of an open directory, of which the metadata are known.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_itself(
        &mut self,
        dir: &Folder,
        stat: &Stat,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Attribute>, Errno> {
        let fd = dir.try_clone().map_err(|_| Errno::MFILE);
        let result = fd.and_then(|Folder(fd)| Object::Fd(fd).attributes(&wanted));
        self.settle(result, stat.identity.device)
    }

    fn settle(
        &mut self,
        result: Result<Vec<Attribute>, Errno>,
        device: u64,
    ) -> Result<Vec<Attribute>, Errno> {
        match result {
            Err(Errno::NOTSUP | Errno::NOSYS) => {
                self.without = Some(device);
                Ok(Vec::new())
            }
            result => result,
        }
    }

    /// Notes that descriptor numbers may refer to other directories now.
    pub fn forget_directory(&mut self) {
        self.prefix = None;
    }

    fn set_prefix(&mut self, dir: BorrowedFd<'_>) -> usize {
        let fd = dir.as_raw_fd();
        match self.prefix {
            Some((known, len)) if known == fd => len,
            _ => {
                self.path.clear();
                self.path.extend_from_slice(format!("/proc/self/fd/{fd}/").as_bytes());
                self.prefix = Some((fd, self.path.len()));
                self.path.len()
            }
        }
    }
}

fn open_object(dir: BorrowedFd<'_>, name: &CStr, openable: bool) -> Result<Option<OwnedFd>, Errno> {
    if !openable {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty()).map(Some)
}

/// An object with attributes.
enum Object<'a> {
    Path(&'a [u8]),
    Fd(OwnedFd),
}

impl Object<'_> {
    fn attributes(&self, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<Attribute>, Errno> {
        // A list longer than this is rare, and the kernel allocates as much as it is offered.
        let mut small = [0u8; 512];
        let list = match self.list(&mut small) {
            Ok(0) => return Ok(Vec::new()),
            Ok(len) => small[..len].to_vec(),
            Err(Errno::RANGE) => grow(|buffer| self.list(buffer))?,
            Err(errno) => return Err(errno),
        };
        let mut found = Vec::new();
        for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = if wanted(name) { self.value(name) } else { Ok(Vec::new()) };
            match value {
                Ok(value) => found.push(Attribute { name: name.into(), value: value.into() }),
                // Removed since it was listed, or listed by a file system that can't give it.
                Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(found)
    }

    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Path(path) => rustix::fs::llistxattr(*path, buffer),
            Self::Fd(fd) => rustix::fs::flistxattr(fd.as_fd(), buffer),
        }
    }

    fn value(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        grow(|buffer| match self {
            Self::Path(path) => rustix::fs::lgetxattr(*path, name, buffer),
            Self::Fd(fd) => rustix::fs::fgetxattr(fd.as_fd(), name, buffer),
        })
    }
}

/// Calls `read` with larger and larger buffers, up to what Linux allows (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
fn grow(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    for size in [512, 8192, 65536] {
        let mut buffer = vec![0; size];
        match read(&mut buffer[..]) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::TOOBIG)
}
