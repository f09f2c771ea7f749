//! Reads the extended attributes of files in a directory, and selects those that ext4 can hold.
//!
//! No system call older than Linux 6.13 reads the attributes of a name relative to a directory without
//! opening it, and opening every file costs more than the rest of the scan. The path `/proc/self/fd/N/name`
//! does: one call that returns "none" for most files. Where `/proc` is not mounted, files and directories are
//! opened instead, and links and devices are taken to have none.
//!
//! A file system without attributes answers the first call with "not supported"; it is not asked again.

use crate::tree::Xattr;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;

/// Whether ext4 can store an attribute of this name.
pub(crate) fn fits_ext4(name: &[u8]) -> bool {
    let in_space = |space: &[u8]| name.strip_prefix(space).is_some_and(|rest| !rest.is_empty());
    in_space(b"user.")
        || in_space(b"trusted.")
        || in_space(b"security.")
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
}

/// Reads attributes; one for each scanning thread.
#[derive(Debug, Default)]
pub(crate) struct XattrReader {
    path: Vec<u8>,
    /// The device that last reported that it has no attributes.
    without: Option<u64>,
    /// The directory that `path` starts with.
    prefix: Option<(i32, usize)>,
}

impl XattrReader {
    /// Whether names can be reached through `/proc`.
    fn has_proc(dir: BorrowedFd<'_>) -> bool {
        rustix::fs::access(format!("/proc/self/fd/{}", dir.as_raw_fd()), rustix::fs::Access::EXISTS).is_ok()
    }

    /// The attributes of `name` in `dir` on `device`; `openable` if it is a regular file or a directory.
    pub(crate) fn read(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        device: u64,
        openable: bool,
    ) -> Result<Vec<Xattr>, Errno> {
        if self.without == Some(device) {
            return Ok(Vec::new());
        }
        let prefix = self.set_prefix(dir);
        self.path.truncate(prefix);
        self.path.extend_from_slice(name.to_bytes());
        let object = Object::Path(&self.path);
        let result = match object.xattrs() {
            Err(Errno::NOENT | Errno::NOTDIR) if !Self::has_proc(dir) => open_object(dir, name, openable)
                .and_then(|object| match object {
                    Some(fd) => Object::Fd(fd).xattrs(),
                    None => Ok(Vec::new()),
                }),
            result => result,
        };
        self.settle(result, device)
    }

    /// The attributes of an open directory.
    pub(crate) fn read_open(&mut self, dir: BorrowedFd<'_>, device: u64) -> Result<Vec<Xattr>, Errno> {
        let result =
            dir.try_clone_to_owned().map_err(|_| Errno::MFILE).and_then(|fd| Object::Fd(fd).xattrs());
        self.settle(result, device)
    }

    fn settle(&mut self, result: Result<Vec<Xattr>, Errno>, device: u64) -> Result<Vec<Xattr>, Errno> {
        match result {
            Err(Errno::NOTSUP | Errno::NOSYS) => {
                self.without = Some(device);
                Ok(Vec::new())
            }
            result => result,
        }
    }

    /// Notes that descriptor numbers may refer to other directories now.
    pub(crate) fn forget_directory(&mut self) {
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
    fn xattrs(&self) -> Result<Vec<Xattr>, Errno> {
        // A list longer than this is rare, and the kernel allocates as much as it is offered.
        let mut small = [0u8; 512];
        let list = match self.list(&mut small) {
            Ok(0) => return Ok(Vec::new()),
            Ok(len) => small[..len].to_vec(),
            Err(Errno::RANGE) => grow(|buffer| self.list(buffer))?,
            Err(errno) => return Err(errno),
        };
        let mut xattrs = Vec::new();
        for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = if fits_ext4(name) { self.value(name) } else { Ok(Vec::new()) };
            match value {
                Ok(value) => xattrs.push(Xattr { name: name.into(), value: value.into() }),
                // Removed since it was listed, or listed by a file system that can't give it.
                Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(xattrs)
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
