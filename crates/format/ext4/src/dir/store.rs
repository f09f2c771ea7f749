//! The traits through which the directory code reads and writes a directory's blocks.

use crate::{Corrupt, Place, Unsupported};
use hectare_units::LogicalBlock;
use std::ops::Deref;

/// A directory to read.
pub trait DirRead {
    /// What can go wrong.
    type Error: From<Corrupt> + From<Unsupported>;
    /// A block's bytes, of the volume's block size.
    type Block: Deref<Target = [u8]>;

    /// Block `at`, its checksum verified; `None` for a hole.
    ///
    /// # Errors
    /// If it can't be read, or its checksum is wrong.
    fn block(&self, at: LogicalBlock) -> Result<Option<Self::Block>, Self::Error>;
    /// How many blocks the directory has.
    fn blocks(&self) -> u32;
    /// Whether the inode says that the directory is indexed (`EXT4_INDEX_FL`).
    fn is_indexed(&self) -> bool;
    /// How to name block `at` in an error.
    fn place(&self, at: LogicalBlock) -> Place;
}

/// A directory to change.
pub trait DirWrite: DirRead {
    /// Runs `f` on the bytes of block `at`, which is no hole, and keeps what it makes of them. The checksum
    /// is set later.
    ///
    /// # Errors
    /// If the block can't be had for writing.
    fn edit<R>(&mut self, at: LogicalBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, Self::Error>;
    /// Like [`Self::edit`], with a block that [`block`](DirRead::block) returned and that has not changed
    /// since, so that it need not be found again.
    ///
    /// # Errors
    /// If the block can't be had for writing.
    fn edit_read<R>(
        &mut self,
        at: LogicalBlock,
        block: Self::Block,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Self::Error> {
        drop(block);
        self.edit(at, f)
    }
    /// Adds a block of zeros at the end and grows the directory by it; its number is what
    /// [`blocks`](DirRead::blocks) was.
    ///
    /// # Errors
    /// If there is no space; the directory is as before then.
    fn append(&mut self) -> Result<LogicalBlock, Self::Error>;
    /// Sets or clears the inode's index flag.
    ///
    /// # Errors
    /// If the inode can't be opened for writing.
    fn set_indexed(&mut self, indexed: bool) -> Result<(), Self::Error>;
}
