//! The extent tree: maps the blocks of a file to blocks of the volume.
//!
//! A tree is a root of 60 bytes inside the inode (`i_block`) and, below it, whole blocks. Every node is a
//! header and an array of 12-byte entries sorted by file block: *extents* in leaves (depth 0), *index
//! entries* above (the first file block of a child, and the child's block). This module is the tree as an
//! algorithm: it reads and edits nodes through [`TreeRead`] and [`TreeWrite`], and knows nothing of caches,
//! journals or devices.
//!
//! Hazards and the rules that meet them:
//! - *Untrusted nodes.* The store verifies a node when it loads it ([`check_block`]: checksum and all that
//!   can be checked without the parent). Every operation checks again what depends on the parent (depth,
//!   first key, end of range) and each entry it uses, so that even unverified bytes give an error, never a
//!   panic or a loop: the depth stored in a node must be one less than its parent's, so no path is longer
//!   than [`DEPTH_MAX`].
//! - *Keys of parents are exact.* An index entry's key equals the first key of its child, and every child has
//!   one. The kernel and e2fsck refuse anything else; it also means that no node can be reached twice, so
//!   that a hostile tree cannot multiply.
//! - *Running out of space.* An operation takes every node it may need before it changes the first byte; if
//!   one can't be had it gives the others back, and the tree maps what it mapped before.
//! - *Two meanings of a length.* An `ee_len` up to 32768 is that many written blocks; above, it is an
//!   unwritten extent of `ee_len - 32768` blocks. An unwritten extent is thus one block shorter at most.
//! - *The last file block.* Block 2^32 - 1 does not exist for the kernel (its 32-bit end would wrap to 0), so
//!   [`insert`] refuses it.
//!
//! Invariants of every tree written here: entries sorted, never overlapping, keys exact, no empty node but
//! the root, all leaves at the same depth, neighbours in a leaf joined when they are inserted or marked.
//!
//! It is not: an allocator (data blocks come and go as [`Extent`]s), nor responsible for checksums: the
//! store sets those with [`set_checksum`] when it writes a node out.
//!
//! Source of the format: the ext4 disk layout documentation of the Linux kernel, "Extent Tree".

mod build;
mod edit;
mod insert;
mod lookup;
mod mark;
mod node;
mod path;
pub mod raw;
mod remove;
mod repoint;
mod shift;
mod shrink;
#[cfg(test)]
pub(crate) mod tests;

pub use build::{Built, build, tree_blocks};
pub use insert::insert;
pub use lookup::{for_each, for_each_node, last, lookup};
pub use mark::mark;
pub use node::{Child, Node, check_block, mend, set_checksum, verify_checksum};
pub use remove::{Progress, remove};
pub use repoint::repoint;
pub use shift::{shift_down, shift_up};

use crate::error::{Corrupt, Place};
use crate::geometry::Geometry;
use hectare_units::{BlockNr, BlockSize, Blocks, InodeNr, LogicalBlock, high32, join32, low16, low32};
use std::ops::Deref;

/// Bytes of a root, the inode's `i_block`.
pub const ROOT_LEN: usize = 60;
/// The greatest depth of a root: five levels of blocks below it.
pub const DEPTH_MAX: u16 = 5;
/// Blocks in the longest written extent.
pub const WRITTEN_MAX: u32 = 32768;
/// Blocks in the longest unwritten extent.
pub const UNWRITTEN_MAX: u32 = 32767;
/// One more than the last file block that fits the 32 bits of a key.
const FILE_END: u64 = 1 << 32;
/// Bits of a block number in an entry.
const PHYSICAL_BITS: u32 = 48;

/// A run of file blocks that lies in one run of volume blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first file block.
    pub logical: LogicalBlock,
    /// How many blocks: 1 to 32768 written, 1 to 32767 unwritten.
    pub len: u32,
    /// The volume block that holds the first file block; 48 bits.
    pub physical: BlockNr,
    /// Whether the blocks are allocated but read as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The file block after the last; up to 2^32.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.logical.get()) + u64::from(self.len)
    }

    /// The volume block that holds file block `at`; `None` outside the extent.
    #[must_use]
    pub fn block_of(&self, at: LogicalBlock) -> Option<BlockNr> {
        let offset = at.get().checked_sub(self.logical.get()).filter(|offset| *offset < self.len)?;
        self.physical.checked_add(Blocks::new(u64::from(offset)))
    }

    /// The longest extent of a state.
    #[must_use]
    pub const fn len_max(unwritten: bool) -> u32 {
        if unwritten { UNWRITTEN_MAX } else { WRITTEN_MAX }
    }

    /// Whether `next` continues this extent in the file, on the volume and in state, and both fit in one.
    #[must_use]
    pub fn joins(&self, next: &Self) -> bool {
        self.unwritten == next.unwritten
            && self.end() == u64::from(next.logical.get())
            && self.physical.get().checked_add(u64::from(self.len)) == Some(next.physical.get())
            && u64::from(self.len) + u64::from(next.len) <= u64::from(Self::len_max(self.unwritten))
    }

    /// This extent made longer by one that [joins](Self::joins) it.
    fn joined(self, next: Self) -> Self {
        Self { len: self.len.saturating_add(next.len), ..self }
    }

    /// The part before file block `at`; `None` if that is nothing.
    fn before(self, at: u64) -> Option<Self> {
        let len = at.min(self.end()).checked_sub(u64::from(self.logical.get()))?;
        (len > 0).then(|| Self { len: low32(len), ..self })
    }

    /// The part from file block `at` on; `None` if that is nothing.
    fn after(self, at: u64) -> Option<Self> {
        let skip = at.saturating_sub(u64::from(self.logical.get()));
        let len = u64::from(self.len).checked_sub(skip).filter(|len| *len > 0)?;
        Some(Self {
            logical: self.logical.checked_add(low32(skip))?,
            len: low32(len),
            physical: self.physical.checked_add(Blocks::new(skip))?,
            ..self
        })
    }

    /// Reads an entry of a leaf; the length 0, which means nothing, is kept for the caller to refuse.
    #[inline]
    fn decode(entry: &raw::Leaf) -> Self {
        let stored = u32::from(entry.ee_len.get());
        let unwritten = stored > WRITTEN_MAX;
        Self {
            logical: LogicalBlock::new(entry.ee_block.get()),
            len: if unwritten { stored - WRITTEN_MAX } else { stored },
            physical: BlockNr::new(join32(entry.ee_start_lo.get(), u32::from(entry.ee_start_hi.get()))),
            unwritten,
        }
    }

    /// The entry of a leaf.
    fn encode(&self) -> raw::RawEntry {
        let stored = if self.unwritten { self.len.saturating_add(WRITTEN_MAX) } else { self.len };
        let physical = self.physical.get();
        zerocopy::transmute!(raw::Leaf {
            ee_block: self.logical.get().into(),
            ee_len: low16(u64::from(stored)).into(),
            ee_start_hi: low16(u64::from(high32(physical))).into(),
            ee_start_lo: low32(physical).into(),
        })
    }
}

/// What a file block is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// It lies in this extent.
    Mapped(Extent),
    /// It is mapped to nothing.
    Hole {
        /// Where to look next: nothing is mapped in between. `None`: nothing is mapped up to the end. An
        /// extent tree has an extent that begins here; an indirect map may have a further hole here.
        next: Option<LogicalBlock>,
    },
}

/// What a tree needs to know of its volume and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeGeometry {
    /// Bytes in a block, and so in a node below the root.
    pub block_size: BlockSize,
    /// `s_first_data_block`: it holds the superblock, so a file's blocks all lie after it.
    pub first_data_block: BlockNr,
    /// Blocks of the volume.
    pub blocks_count: Blocks,
    /// The inode whose tree it is, for messages.
    pub inode: InodeNr,
}

impl TreeGeometry {
    /// What a volume allows the tree of an inode.
    #[must_use]
    pub fn of(geometry: &Geometry, inode: InodeNr) -> Self {
        Self {
            block_size: geometry.block_size,
            first_data_block: BlockNr::new(geometry.first_data_block.into()),
            blocks_count: geometry.blocks_count,
            inode,
        }
    }

    /// Whether `len` blocks from `start` can belong to a file: after the superblock's block, inside the
    /// volume, and within 48 bits.
    #[inline]
    #[must_use]
    pub fn holds(&self, start: BlockNr, len: u32) -> bool {
        let end = start.get().checked_add(u64::from(len));
        start > self.first_data_block
            && end.is_some_and(|end| end <= self.blocks_count.get() && end <= 1 << PHYSICAL_BITS)
    }

    /// A finding about the tree at one file block.
    fn corrupt(&self, at: LogicalBlock, reason: &'static str) -> Corrupt {
        Corrupt::new("extent tree", Place::FileBlock(self.inode, at), reason)
    }
}

/// A store of nodes to read a tree from.
pub trait TreeRead {
    /// What reading can fail with.
    type Error: From<Corrupt>;
    /// The bytes of a node block, held for as long as they are looked at.
    type Node: Deref<Target = [u8]>;

    /// The root as it is now.
    fn root(&self) -> [u8; ROOT_LEN];

    /// The node in block `nr`, which the tree has found to be a block of the volume. The store verifies it
    /// with [`check_block`] when it loads it.
    ///
    /// # Errors
    /// When the block can't be read or is corrupt.
    fn node(&self, nr: BlockNr) -> Result<Self::Node, Self::Error>;

    /// The volume and inode of the tree.
    fn geometry(&self) -> TreeGeometry;
}

/// A store of nodes to change a tree in.
///
/// An error of [`edit`](Self::edit) or [`free`](Self::free) in the middle of an operation leaves a tree in
/// between: the transaction must not commit. An error of [`allocate`](Self::allocate) is harmless.
pub trait TreeWrite: TreeRead {
    /// Changes the root; `change` gets its 60 bytes.
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Changes the node in block `nr`. The checksum is the store's to renew, with [`set_checksum`].
    ///
    /// # Errors
    /// When the block can't be read or changed.
    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, Self::Error>;

    /// A block for a new node, near `goal`, filled with zeros and counted to the inode.
    ///
    /// # Errors
    /// When there is no space.
    fn allocate(&mut self, goal: BlockNr) -> Result<BlockNr, Self::Error>;

    /// Gives a node's block back, and takes it off the inode's count.
    ///
    /// # Errors
    /// When it can't be freed.
    fn free(&mut self, nr: BlockNr) -> Result<(), Self::Error>;
}

/// The root of an empty file.
#[must_use]
pub fn empty_root() -> [u8; ROOT_LEN] {
    let mut root = [0; ROOT_LEN];
    edit::format(&mut root, 0);
    root
}

/// Makes `root`, the 60 bytes of an inode's `i_block`, the root of an empty file.
///
/// # Panics
/// If it is not 60 bytes long.
pub fn init_root(root: &mut [u8]) {
    root.copy_from_slice(&empty_root());
}
