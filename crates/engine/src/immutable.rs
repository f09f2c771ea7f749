//! What the flags of an inode forbid: immutable ones change in nothing, append-only ones only grow.
//!
//! This is the only place that looks at the two flags. Everything that changes an inode says here what it is
//! about to do, under the inode's operation lock; the flags change under the same lock, exclusively
//! ([`crate::flags`]).

use crate::error::{Error, Result};
use hectare_ext4::inode::InodeFlags;
use hectare_units::InodeNr;

/// What is to be done to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// Its content grows, in bytes or in space.
    Grow,
    /// What its content is changes: bytes are written over, cut off, cleared or moved.
    Rewrite,
    /// Its owners, permissions, times or attributes change, or it gets or loses a name.
    Alter,
    /// A name is added to it, a directory.
    AddName,
    /// A name is taken from it, a directory, or leads elsewhere.
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

    /// Refuses what the flags of inode `nr` forbid.
    pub(crate) fn check(self, flags: InodeFlags, nr: InodeNr) -> Result<()> {
        if self.is_allowed(flags) { Ok(()) } else { Err(Error::NotPermitted(nr)) }
    }
}
