//! Looks up what is below a directory, without following a link on the way.

use hectare_host::{Stat, open_below, stat};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// An open directory.
pub(crate) struct Below(OwnedFd);

impl Below {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, PASSED, Mode::empty())?))
    }

    /// The metadata of a name in a directory below it, if it is there.
    pub(crate) fn stat(&self, parent: &[u8], name: &[u8]) -> Option<Stat> {
        let dir = open_below(self.0.as_fd(), parent, PASSED).ok()?;
        stat(dir.as_fd(), &CString::new(name).ok()?, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}
