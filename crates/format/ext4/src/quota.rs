//! Quota files: how much space and how many inodes each user, group or project uses and may use.
//!
//! With the feature `quota` a volume has a hidden file for each [`Kind`] it counts, named in the superblock.
//! The file is a radix tree of blocks of 1 KiB, whatever the volume's block size is. Block 0 has the header
//! and the [`Info`]; block 1 is the root. An id is four bytes, each of which selects one of 256 references on
//! a level of the tree ([`lookup`], [`for_each`]); the fourth leads to a *leaf*, a block of up to
//! [`LEAF_RECORDS`] records ([`Record`]) in any order, which may be those of any ids. Leaves with room form a
//! list, and so do blocks without a use ([`insert`], [`remove`]).
//!
//! Invariants: a block is reached by one path, unless it is a leaf; an id's record lies in the leaf that its
//! path leads to. Whatever the bytes, a walk reads each node once, and each leaf once for every record it
//! has: then it ends, or with an error.
//!
//! Hazard: a record of zeros is a free slot. The record of an id that uses nothing and has no limits is
//! therefore stored with a grace time of 1, which no clock gives ([`Record::render`]).
//!
//! Programs that read or change a file on a volume do it through [`QuotaFile`]; what space owners get or give up
//! is summed by [`SpaceChanges`].
//!
//! Not here: the sums of all that is in use, which are a function of all inodes; the older file formats, which
//! ext4 keeps only in visible files.

mod build;
mod changes;
mod edit;
mod info;
mod lookup;
mod placed;
mod record;
mod rehearsal;
#[cfg(test)]
mod tests;

pub use build::build;
pub use changes::{SpaceChanges, counts};
pub use edit::{insert, remove};
pub use info::Info;
pub use lookup::{Slot, check_leaves, for_each, lookup};
pub use placed::{QuotaFile, Storage, StorageMut, hole, tree_blocks};
pub use record::{Record, Resource};
pub use rehearsal::check_insert;

use crate::error::{Corrupt, Place, Unsupported};
use hectare_units::InodeNr;
use std::fmt;

/// Bytes of a block of the tree.
pub const BLOCK_BYTES: usize = 1024;
/// The most records of a leaf.
pub const LEAF_RECORDS: usize = (BLOCK_BYTES - LEAF_HEADER) / Record::BYTES;

/// Bytes of a leaf before its records: the list it is on, and how many records it has.
const LEAF_HEADER: usize = 16;
/// Levels of nodes.
const DEPTH: usize = 4;
/// References in a node.
const FAN_OUT: usize = BLOCK_BYTES / 4;

/// A block of a quota file.
pub type Block = [u8; BLOCK_BYTES];

/// The number of a block of 1 KiB in a quota file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockIndex(u32);

impl BlockIndex {
    /// The header.
    pub const HEADER: Self = Self(0);
    /// The root of the tree.
    pub const ROOT: Self = Self(1);

    /// The block of a number.
    #[must_use]
    pub const fn new(nr: u32) -> Self {
        Self(nr)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a quota file counts by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The owner of an inode.
    User,
    /// Its group.
    Group,
    /// Its project.
    Project,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Looks up a name of tune2fs(8): `usrquota`, or `usr` alone, and so on.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name.strip_suffix("quota").unwrap_or(name) {
            "usr" => Some(Self::User),
            "grp" => Some(Self::Group),
            "prj" => Some(Self::Project),
            _ => None,
        }
    }

    /// The number that begins such a file.
    #[must_use]
    pub const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }

    /// The name of such a file, for errors.
    #[must_use]
    pub const fn structure(self) -> &'static str {
        match self {
            Self::User => "the user quota file",
            Self::Group => "the group quota file",
            Self::Project => "the project quota file",
        }
    }

    /// Its position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::User => 0,
            Self::Group => 1,
            Self::Project => 2,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        })
    }
}

/// A quota file to read.
pub trait QuotaRead {
    /// What can go wrong.
    type Error: From<Corrupt> + From<Unsupported>;

    /// What the file counts by.
    fn kind(&self) -> Kind;
    /// The file's inode.
    fn inode(&self) -> InodeNr;
    /// Whole blocks of 1 KiB in the file.
    fn len(&self) -> u32;
    /// Whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// One of these blocks.
    ///
    /// # Errors
    /// If it can't be read.
    fn block(&self, at: BlockIndex) -> Result<Block, Self::Error>;
}

/// A quota file to change.
pub trait QuotaWrite: QuotaRead {
    /// Runs `change` on the bytes of a block, and keeps what it makes of them.
    ///
    /// # Errors
    /// If the block can't be had for writing.
    fn edit<R>(&mut self, at: BlockIndex, change: impl FnOnce(&mut Block) -> R) -> Result<R, Self::Error>;
    /// Makes the file at least `blocks` long.
    ///
    /// # Errors
    /// If there is no space; the content is as before then.
    fn grow(&mut self, blocks: u32) -> Result<(), Self::Error>;
}

/// The error of a block, or of the header.
fn corrupt<F: QuotaRead + ?Sized>(file: &F, at: BlockIndex, what: impl fmt::Display) -> Corrupt {
    let reason = format!("block {} of its tree: {what}", at.get());
    Corrupt::new(file.kind().structure(), Place::Inode(file.inode()), reason)
}

/// The slot of an id in a node of a level.
const fn slot_of(id: u32, level: usize) -> usize {
    id.to_be_bytes()[level] as usize
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
