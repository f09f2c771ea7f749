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

use super::{failed, kind_of, meta_of};
use crate::copy::ends::Reason;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A path that leads to the open file.
fn place(fd: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

fn c_name(name: &[u8]) -> Result<CString, Reason> {
    CString::new(name).map_err(|_| "a name can't contain a NUL byte".to_owned())
}

fn errno(error: Errno) -> Reason {
    failed(error.into())
}
