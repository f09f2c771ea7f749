//! A single call and its result as text, and the calls that cases and scenes share.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A ground that can't be prepared ends the run.
pub(super) const PREPARED: &str = "the volume was made a moment ago";

/// A single call, and its result as text.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) run: fn(&Path) -> String,
}

pub(super) fn said<T: Shown>(result: Result<T, Errno>) -> String {
    match result {
        Ok(value) => value.shown(),
        Err(errno) => format!("{errno} ({})", errno.raw_os_error()),
    }
}

pub(super) trait Shown {
    fn shown(self) -> String;
}
impl Shown for () {
    fn shown(self) -> String {
        "done".into()
    }
}
impl Shown for String {
    fn shown(self) -> String {
        self
    }
}
impl Shown for usize {
    fn shown(self) -> String {
        self.to_string()
    }
}
impl Shown for u64 {
    fn shown(self) -> String {
        self.to_string()
    }
}

pub(super) fn open(dir: &Path, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(dir.join(name), flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

pub(super) fn make(dir: &Path, name: &str) -> Result<(), Errno> {
    open(dir, name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).map(drop)
}

pub(super) fn mkdir(dir: &Path, name: &str) -> Result<(), Errno> {
    rustix::fs::mkdir(dir.join(name), Mode::from_raw_mode(0o755))
}
