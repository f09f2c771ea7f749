//! Roots of a group's trees that are a single leaf, as all are in a fresh volume.
//!
//! A block is a header, then records in ascending order; the checksum covers the whole block. Six trees have
//! this shape and differ by their magic number and records.

use crate::checksum::seal_start;
use crate::raw;
use crate::volume::{Run, Volume};
use hectare_units::{GroupNr, low16, u64_of, usize_of};
use std::mem::offset_of;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the unit in which a block gives its own location, as a shift.
const BASIC_BLOCK_SHIFT: u32 = 9;

/// Which tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tree {
    /// Free space by place.
    Bno,
    /// Free space by length.
    Cnt,
    /// Inode chunks.
    Ino,
    /// Inode chunks with free inodes.
    Fino,
    /// Owners.
    Rmap,
    /// Shared blocks.
    Refcount,
}

impl Tree {
    const fn magic(self) -> u32 {
        match self {
            Self::Bno => 0x4142_3342,      // AB3B
            Self::Cnt => 0x4142_3343,      // AB3C
            Self::Ino => 0x4941_4233,      // IAB3
            Self::Fino => 0x4649_4233,     // FIB3
            Self::Rmap => 0x524d_4233,     // RMB3
            Self::Refcount => 0x5233_4643, // R3FC
        }
    }
}

/// The owner of blocks that belong to no file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The headers of the group.
    Headers,
    /// The log.
    Log,
    /// The trees of free space and of owners, and the free list.
    FreeSpace,
    /// The inode trees.
    InodeTrees,
    /// Inodes.
    Inodes,
    /// The tree of shared blocks.
    Refcount,
}

impl Owner {
    const fn code(self) -> i64 {
        match self {
            Self::Headers => -3,
            Self::Log => -4,
            Self::FreeSpace => -5,
            Self::InodeTrees => -6,
            Self::Inodes => -7,
            Self::Refcount => -8,
        }
    }
}

/// A free run as the trees of free space have it.
#[must_use]
pub fn free_record(run: Run) -> raw::AllocRecord {
    raw::AllocRecord { ar_startblock: run.start.into(), ar_blockcount: run.len.into() }
}

/// A run and its owner as a record of the tree of owners.
#[must_use]
pub fn owner_record(run: Run, owner: Owner) -> raw::RmapRecord {
    raw::RmapRecord {
        rm_startblock: run.start.into(),
        rm_blockcount: run.len.into(),
        rm_owner: owner.code().cast_unsigned().into(),
        rm_offset: U64::ZERO,
    }
}

/// A whole chunk of 64 inodes from `first` on, of which the first `used` are in use, as the inode trees have
/// it.
#[must_use]
pub fn chunk_record(volume: &Volume, first: u32, used: u32) -> [u8; 16] {
    let left = 64 - used;
    let free = U64::new(u64::MAX.checked_shl(used).unwrap_or(0));
    let count = |n: u32| n.to_be_bytes()[3]; // at most 64
    let record = raw::SparseInodeRecord {
        ir_startino: first.into(),
        ir_holemask: U16::ZERO,
        ir_count: count(64),
        ir_freecount: count(left),
        ir_free: free,
    };
    if volume.sparse_inodes() {
        return zerocopy::transmute!(record);
    }
    let ir_freecount = U32::new(left);
    zerocopy::transmute!(raw::InodeRecord { ir_startino: first.into(), ir_freecount, ir_free: free })
}

/// Renders the root of a tree into block `at` of its group, whose bytes start with `start`; every byte of the
/// block must be zero.
///
/// # Panics
/// If `start` ends before the block does, or the records do not fit it; a fresh volume has few.
pub fn render<R: IntoBytes + Immutable>(
    volume: &Volume,
    tree: Tree,
    (group, at): (GroupNr, u32),
    records: &[R],
    start: &mut [u8],
) {
    let block = &mut start[usize_of(at) << volume.block_size.shift()..][..volume.block_size.len()];
    let Ok((header, rest)) = raw::ShortBlock::mut_from_prefix(block) else { return };
    header.bb_magic.set(tree.magic());
    header.bb_numrecs.set(low16(u64_of(records.len())));
    header.bb_leftsib.set(u32::MAX);
    header.bb_rightsib.set(u32::MAX);
    header.bb_blkno.set(volume.offset(group, at).get() >> BASIC_BLOCK_SHIFT);
    header.bb_uuid = volume.uuid;
    header.bb_owner.set(group.get());
    let bytes = records.as_bytes();
    rest[..bytes.len()].copy_from_slice(bytes);
    let used = size_of::<raw::ShortBlock>() + bytes.len();
    seal_start(block, used, offset_of!(raw::ShortBlock, bb_crc));
}
