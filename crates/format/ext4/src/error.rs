//! The errors of bytes that claim to be ext4.
//!
//! Two kinds and no more: [`Corrupt`] (the bytes break the format) and [`Unsupported`] (the bytes are fine,
//! but use something this program does not handle). Both name the structure, the place and the reason on one
//! line.

use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, LogicalBlock};
use std::borrow::Cow;
use std::fmt;

/// Where a structure lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// The volume as a whole.
    Volume,
    /// A byte offset on the device.
    Byte(Bytes),
    /// A block of the device.
    Block(BlockNr),
    /// A block group.
    Group(GroupNr),
    /// An inode.
    Inode(InodeNr),
    /// A block of a file.
    FileBlock(InodeNr, LogicalBlock),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume => write!(f, "of the volume"),
            Self::Byte(at) => write!(f, "at byte {at}"),
            Self::Block(nr) => write!(f, "in block {nr}"),
            Self::Group(nr) => write!(f, "of group {nr}"),
            Self::Inode(nr) => write!(f, "of inode {nr}"),
            Self::FileBlock(nr, block) => write!(f, "in block {block} of inode {nr}"),
        }
    }
}

/// The bytes break the format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{structure} {place} is corrupt: {reason}")]
pub struct Corrupt {
    /// The structure, as the field names it ("extent node", "superblock").
    pub structure: &'static str,
    /// Where it lies.
    pub place: Place,
    /// What is wrong with it.
    pub reason: Cow<'static, str>,
    /// Whether that is its checksum.
    pub is_checksum: bool,
}

impl Corrupt {
    /// A finding.
    #[must_use]
    pub fn new(structure: &'static str, place: Place, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { structure, place, reason: reason.into(), is_checksum: false }
    }

    /// A checksum that does not match.
    #[must_use]
    pub fn checksum(structure: &'static str, place: Place, found: u32, expected: u32) -> Self {
        let reason = format!("its checksum is {found:#010x}, its content gives {expected:#010x}");
        Self { is_checksum: true, ..Self::new(structure, place, reason) }
    }
}

/// The bytes are well formed but use something that is not handled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Either kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// The bytes break the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The bytes use something that is not handled.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}
