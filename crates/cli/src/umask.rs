//! The process's umask.

use rustix::fs::Mode;
use std::sync::OnceLock;

static MASK: OnceLock<u16> = OnceLock::new();

/// Reads the process's umask. The system only lets it be read by setting it, so this comes before any thread.
pub(crate) fn note() {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    let _ = MASK.set(u16::try_from(mask.bits() & 0o777).unwrap_or(0o022));
}

/// Permissions without the bits of the umask.
pub(crate) fn apply(mode: u16) -> u16 {
    mode & !MASK.get().copied().unwrap_or(0o022)
}

/// How a new file or directory is made for this user: owner, group, and permissions after the umask.
pub(crate) fn creation(mode: u16) -> hectare_engine::Creation {
    hectare_engine::Creation {
        permissions: apply(mode),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}
