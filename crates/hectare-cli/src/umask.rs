//! Permissions and owners of what is made.

use crate::os;

/// Permissions without the bits of the umask.
pub(crate) fn apply(mode: u16) -> u16 {
    mode & !os::umask()
}

/// How a new file or directory is made for this user: owner, group, permissions, and the umask.
pub(crate) fn creation(mode: u16) -> hectare_engine::Creation {
    let (uid, gid) = os::owner();
    hectare_engine::Creation { permissions: mode, umask: os::umask(), uid, gid }
}
