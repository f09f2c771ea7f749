//! A quota file on a volume: the blocks of its tree in blocks of the file ([`QuotaFile`]).
//!
//! The caller, which has the volume, knows how a block of a file is found and read ([`Storage`]); a block of
//! the tree is never longer than one of the file, and lies within one.

use super::{BLOCK_BYTES, Block, BlockIndex, Kind, QuotaRead};
use crate::error::{Corrupt, Place, Unsupported};
use hectare_units::{BlockSize, InodeNr, LogicalBlock, low32, u64_of, usize_of};

/// The blocks of one file.
pub trait Storage {
    /// What can go wrong.
    type Error: From<Corrupt> + From<Unsupported>;

    /// Reads a part of a block of the file, from byte `start` of it on; returns false, and reads nothing, where
    /// the file has a hole or an unwritten block.
    ///
    /// # Errors
    /// If the block can't be found or read.
    fn read(&self, at: LogicalBlock, start: usize, bytes: &mut Block) -> Result<bool, Self::Error>;
}

/// The blocks of a file that can be changed in place.
pub trait StorageMut: Storage {
    /// Writes what [`Storage::read`] reads; returns false, and writes nothing, in a hole.
    ///
    /// # Errors
    /// If the block can't be found or written.
    fn write(&self, at: LogicalBlock, start: usize, bytes: &Block) -> Result<bool, Self::Error>;
}

/// A quota file on a volume.
pub struct QuotaFile<S> {
    /// What it counts by.
    pub kind: Kind,
    /// Its inode.
    pub nr: InodeNr,
    /// Its length in bytes.
    pub len: u64,
    /// The size of the volume's blocks.
    pub block_size: BlockSize,
    /// Its blocks.
    pub storage: S,
}

impl BlockIndex {
    /// The block of the file that has this block of the tree, and the byte in it where that begins.
    #[must_use]
    pub fn in_file(self, size: BlockSize) -> (LogicalBlock, usize) {
        let together = low32(size.bytes().get() / u64_of(BLOCK_BYTES));
        (LogicalBlock::new(self.0 / together), usize_of(self.0 % together) * BLOCK_BYTES)
    }
}

/// How many whole blocks of the tree a quota file of so many bytes has.
#[must_use]
pub fn tree_blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / u64_of(BLOCK_BYTES)).unwrap_or(u32::MAX)
}

/// The error of a block of the tree that lies in a hole of its file.
#[must_use]
pub fn hole(kind: Kind, nr: InodeNr, at: BlockIndex) -> Corrupt {
    let reason = format!("block {} of its tree is a hole", at.get());
    Corrupt::new(kind.structure(), Place::Inode(nr), reason)
}

impl<S: Storage> QuotaRead for QuotaFile<S> {
    type Error = S::Error;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn inode(&self) -> InodeNr {
        self.nr
    }

    fn len(&self) -> u32 {
        tree_blocks(self.len)
    }

    fn block(&self, at: BlockIndex) -> Result<Block, S::Error> {
        let (logical, start) = at.in_file(self.block_size);
        let mut bytes = [0; BLOCK_BYTES];
        match self.storage.read(logical, start, &mut bytes)? {
            true => Ok(bytes),
            false => Err(hole(self.kind, self.nr, at).into()),
        }
    }
}

impl<S: StorageMut> QuotaFile<S> {
    /// Writes a block of the tree.
    ///
    /// # Errors
    /// If it lies in a hole, or can't be written.
    pub fn set_block(&self, at: BlockIndex, bytes: &Block) -> Result<(), S::Error> {
        let (logical, start) = at.in_file(self.block_size);
        match self.storage.write(logical, start, bytes)? {
            true => Ok(()),
            false => Err(hole(self.kind, self.nr, at).into()),
        }
    }
}
