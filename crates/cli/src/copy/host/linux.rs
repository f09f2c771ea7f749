//! A directory of the host as origin or target of a copy.
//!
//! Everything below the top is reached from its parent directory in a `Walk`, never by a long path and
//! never through a symbolic link, and an opened file must be the one that was examined. Attributes of files
//! that can't be opened (links, devices) are set through `/proc/self/fd`, on the very object that was made.
//! So a user with write access to the directory can spoil the copy, but not redirect it.
//!
//! An image may be hostile, so what gives its files power over the host is kept only on request
//! ([`Rights`](super::Rights)). Keeping owners needs root; where that is refused, the owner stays as it is,
//! as with `cp -a`, and set-ID bits and capabilities are dropped. So are attributes that the host's file
//! system or a missing right does not allow. Both are counted, and reported once.

mod below;
mod origin;
mod target;

pub(crate) use below::Below;
pub(crate) use origin::{LocalOrigin, Node};
pub(crate) use target::LocalTarget;

use crate::copy::Reason;
use crate::output::reason as io_reason;
use hectare_engine::Kind;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A path that leads to the open file.
fn place(fd: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

fn c_name(name: &[u8]) -> Result<CString, Reason> {
    CString::new(name).map_err(|_| "a name has no NUL byte".to_owned())
}

fn errno(error: Errno) -> Reason {
    io_reason(&error.into())
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn io(error: std::io::Error) -> Reason {
    io_reason(&error)
}

fn kind_of(file_type: FileType) -> Result<Kind, Reason> {
    Ok(match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return Err("it is of a kind that is not known".to_owned()),
    })
}
