//! Sets, reads and removes attributes of files on a mount, with values as large as the system call takes.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;

/// Bytes of the longest value (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 65_536;

/// Sets an attribute, whether it is there or not.
///
/// # Errors
/// The kernel's.
pub fn set(file: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::lsetxattr(file, name, value, XattrFlags::empty())
}

/// The value of an attribute; `None` if there is none.
///
/// # Errors
/// The kernel's.
pub fn get(file: &Path, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; VALUE_MAX];
    match rustix::fs::lgetxattr(file, name, &mut value) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes an attribute.
///
/// # Errors
/// The kernel's.
pub fn remove(file: &Path, name: &str) -> Result<(), Errno> {
    rustix::fs::lremovexattr(file, name)
}
