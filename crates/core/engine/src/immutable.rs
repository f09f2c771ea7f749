//! Enforces the immutable and append-only flags: immutable inodes don't change, append-only ones only grow.
//!
//! Only this module reads the two flags. Every operation that changes an inode checks its deed here, under
//! the inode's operation lock; the flags change under the same lock, exclusively
//! ([`crate::attributes::flags`]).

use crate::error::{Error, Result};
use hectare_ext4::inode::InodeFlags;
use hectare_units::InodeNr;

/// A change of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// Its content grows, in bytes or in space.
    Grow,
    /// Its content changes: bytes are overwritten, truncated, zeroed or moved.
    Rewrite,
    /// Its owners, permissions, times or attributes change, or it gets or loses a name.
    Alter,
    /// A directory gets a name.
    AddName,
    /// A directory loses a name, or the name leads elsewhere.
    TakeName,
}

impl Deed {
    /// The flags that forbid it.
    const fn forbidden_by(self) -> InodeFlags {
        match self {
            Self::Grow | Self::AddName => InodeFlags::IMMUTABLE,
            Self::Rewrite | Self::Alter | Self::TakeName => InodeFlags::IMMUTABLE.union(InodeFlags::APPEND),
        }
    }

    /// Whether an inode with these flags allows it.
    pub(crate) const fn is_allowed(self, flags: InodeFlags) -> bool {
        !flags.intersects(self.forbidden_by())
    }

    /// Returns an error for what the flags of inode `nr` forbid.
    pub(crate) fn check(self, flags: InodeFlags, nr: InodeNr) -> Result<()> {
        match self.is_allowed(flags) {
            true => Ok(()),
            false if flags.contains(InodeFlags::IMMUTABLE) => Err(Error::Immutable(nr)),
            false => Err(Error::AppendOnly(nr)),
        }
    }
}
