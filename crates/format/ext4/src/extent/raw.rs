//! The four structures of an extent tree as they lie on disk, with the specification's names.
//!
//! Nothing is validated here; see [`Node`](super::Node).

use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic` of every node.
pub const MAGIC: u16 = 0xf30a;

/// Any entry, index or leaf, as bytes: both kinds are 12 bytes and begin with their key.
pub type RawEntry = [u8; 12];

/// What every node begins with (`ext4_extent_header`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub eh_magic: U16,
    /// Entries in use.
    pub eh_entries: U16,
    /// Entries there is room for; the checksum of a block lies behind them.
    pub eh_max: U16,
    /// Levels below this node; 0 is a leaf.
    pub eh_depth: U16,
    /// Unused by Linux.
    pub eh_generation: U32,
}

/// An entry above the leaves (`ext4_extent_idx`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Index {
    /// The first file block below.
    pub ei_block: U32,
    /// The child's block, low half.
    pub ei_leaf_lo: U32,
    /// The child's block, bits 32 to 47.
    pub ei_leaf_hi: U16,
    /// Unused.
    pub ei_unused: U16,
}

/// An entry of a leaf (`ext4_extent`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Leaf {
    /// The first file block.
    pub ee_block: U32,
    /// Blocks; more than 32768 means unwritten, and that many less.
    pub ee_len: U16,
    /// The first volume block, bits 32 to 47.
    pub ee_start_hi: U16,
    /// The first volume block, low half.
    pub ee_start_lo: U32,
}

/// What follows the room for entries in a block of a volume with `metadata_csum` (`ext4_extent_tail`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Tail {
    /// crc32c of everything before it, from the inode's seed.
    pub et_checksum: U32,
}

const _: () = {
    assert!(size_of::<Header>() == 12);
    assert!(offset_of!(Header, eh_entries) == 2);
    assert!(offset_of!(Header, eh_max) == 4);
    assert!(offset_of!(Header, eh_depth) == 6);
    assert!(offset_of!(Header, eh_generation) == 8);
    assert!(size_of::<Index>() == size_of::<RawEntry>());
    assert!(offset_of!(Index, ei_block) == 0);
    assert!(offset_of!(Index, ei_leaf_lo) == 4);
    assert!(offset_of!(Index, ei_leaf_hi) == 8);
    assert!(size_of::<Leaf>() == size_of::<RawEntry>());
    assert!(offset_of!(Leaf, ee_block) == 0);
    assert!(offset_of!(Leaf, ee_len) == 4);
    assert!(offset_of!(Leaf, ee_start_hi) == 6);
    assert!(offset_of!(Leaf, ee_start_lo) == 8);
    assert!(size_of::<Tail>() == 4);
    // A power of two leaves 4 or 8 bytes over after header and entries: the tail always fits.
    assert!((1024 - size_of::<Header>()) % size_of::<RawEntry>() >= size_of::<Tail>());
    assert!((2048 - size_of::<Header>()) % size_of::<RawEntry>() >= size_of::<Tail>());
};
