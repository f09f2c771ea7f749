//! The attribute structures as they lie on disk; field names are the specification's.

use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number that marks an attribute area, in an inode and in a block (`h_magic`).
pub const MAGIC: u32 = 0xea02_0000;

/// The longest value the format allows, in bytes; only one in an inode of its own can be that long.
pub const VALUE_MAX: u32 = 1 << 24;

/// Bytes of the mark in front of the entries in an inode.
pub const INODE_HEADER: usize = 4;

/// Bytes of the zero word that ends the entries.
pub const END: usize = 4;

/// What stands at the front of an attribute block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub h_magic: U32,
    /// How many inodes use the block, 1 to 1024.
    pub h_refcount: U32,
    /// How many blocks the attributes take; 1, always.
    pub h_blocks: U32,
    /// The hash over all entries, by which equal blocks are found; 0 if there is none.
    pub h_hash: U32,
    /// The checksum (`metadata_csum`), over the block's number and content.
    pub h_checksum: U32,
    /// Zero.
    pub h_reserved: [U32; 3],
}

/// One attribute; its name follows, without the prefix.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Entry {
    /// Bytes in the name.
    pub e_name_len: u8,
    /// Which prefix the name has.
    pub e_name_index: u8,
    /// Where the value starts: from the first entry in an inode, from the block's start in a block. Bytes.
    pub e_value_offs: U16,
    /// The inode that holds the value, or 0.
    pub e_value_inum: U32,
    /// Bytes in the value.
    pub e_value_size: U32,
    /// The hash of name and value; 0 in an inode.
    pub e_hash: U32,
}

const _: () = {
    assert!(size_of::<Header>() == 32);
    assert!(offset_of!(Header, h_refcount) == 4);
    assert!(offset_of!(Header, h_blocks) == 8);
    assert!(offset_of!(Header, h_hash) == 12);
    assert!(offset_of!(Header, h_checksum) == 16);
    assert!(size_of::<Entry>() == 16);
    assert!(offset_of!(Entry, e_value_offs) == 2);
    assert!(offset_of!(Entry, e_value_inum) == 4);
    assert!(offset_of!(Entry, e_value_size) == 8);
    assert!(offset_of!(Entry, e_hash) == 12);
};
