//! What FUSE can ask and the engine has no call for yet: refused here, and nowhere else.
//!
//! Each function has the shape of the request; whoever gives the engine the call replaces the refusal by it.
//! `ENOSYS` makes the kernel do it by other means and not ask again; `EOPNOTSUPP` is told to the program.

use crate::errno::Answer;
use crate::nodes::Node;
use fuser::Errno;

/// Bytes of one file copied into another (`copy_file_range`): the kernel falls back to reading and writing.
pub(crate) fn copy_file_range(_from: (&Node, u64), _to: (&Node, u64), _len: u64) -> Answer<u64> {
    Err(Errno::ENOSYS.into())
}

/// An inode's flags set (`FS_IOC_SETFLAGS`).
pub(crate) fn set_flags(_node: &Node, _flags: u32) -> Answer {
    Err(Errno::EOPNOTSUPP.into())
}

/// An inode's flags and project set (`FS_IOC_FSSETXATTR`).
pub(crate) fn set_project(_node: &Node, _xflags: u32, _project: u32) -> Answer {
    Err(Errno::EOPNOTSUPP.into())
}

/// Free space discarded (`FITRIM`): how many bytes were.
pub(crate) fn trim(_start: u64, _len: u64, _smallest: u64) -> Answer<u64> {
    Err(Errno::EOPNOTSUPP.into())
}
