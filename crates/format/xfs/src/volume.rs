//! A volume as its superblock describes it, and the places that follow from that.
//!
//! A *group* (allocation group) has `group_blocks` blocks, the last perhaps fewer. It starts with four
//! sectors (superblock, AGF, AGI, AGFL), then come the roots of its trees, a block each, in the order of
//! [`Roots`].
//!
//! Hazards: block numbers inside the format are not linear. A *file system block number* has the group in its
//! high bits and the block of the group in `group_shift` low ones, so it has gaps unless groups have a power
//! of two of blocks; an *inode number* is such a number with the inode's place in the block below it. Only
//! [`Volume::offset`] gives a place on the device.

use crate::feature::{Incompat, RoCompat};
use hectare_units::{BlockSize, Blocks, Bytes, GroupNr};

/// Inodes that are made together, at least.
pub const CHUNK_INODES: u32 = 64;
/// Blocks that a group keeps on its free list whatever its trees' heights, for the largest log that fits.
const FREE_LIST_RESERVE: u32 = 4;

/// Neighbouring blocks of one group, counted from the group's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first block.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl Run {
    /// From `start` up to, but without, `end`; empty where `end` lies before.
    #[must_use]
    pub const fn between(start: u32, end: u32) -> Self {
        Self { start, len: end.saturating_sub(start) }
    }

    /// The block after the last.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.start + self.len
    }
}

/// How the storage is striped, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// Blocks on one disk before the next one's turn; at least 1.
    pub unit: u32,
    /// Blocks on all data disks; a multiple of the unit.
    pub width: u32,
}

/// Where the log lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPlace {
    /// Its group.
    pub group: GroupNr,
    /// Its blocks.
    pub run: Run,
    /// Bytes that log writes are rounded up to, 1 for none.
    pub unit: u32,
}

/// Where the roots of a group's trees lie, as blocks of the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roots {
    /// Free space by place.
    pub bno: u32,
    /// Free space by length.
    pub cnt: u32,
    /// Inode chunks.
    pub ino: u32,
    /// Inode chunks with free inodes.
    pub fino: Option<u32>,
    /// Owners.
    pub rmap: Option<u32>,
    /// Shared blocks.
    pub refcount: Option<u32>,
    /// The block after the last root.
    pub end: u32,
}

/// What a superblock says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Bytes of a block.
    pub block_size: BlockSize,
    /// Bytes of a sector, 512 to 32768, a power of two, at most a block.
    pub sector_size: u32,
    /// Bytes of an inode, 512 to 2048, a power of two, at most half a block.
    pub inode_size: u32,
    /// Bytes of a directory block, at least a block, a power of two.
    pub directory_block_size: u32,
    /// Blocks of the whole volume.
    pub blocks: Blocks,
    /// Blocks of a group.
    pub group_blocks: u32,
    /// How many groups.
    pub groups: u32,
    /// How the storage is striped, if it is.
    pub stripe: Option<Stripe>,
    /// Percent of the space that inodes may take, 0 for all.
    pub inode_percent: u8,
    /// Features older code can read past.
    pub ro_compat: RoCompat,
    /// Features older code must refuse.
    pub incompat: Incompat,
    /// Where the log lies.
    pub log: LogPlace,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The label, padded with zeros.
    pub label: [u8; 12],
}

impl Volume {
    /// Blocks of one group.
    #[must_use]
    pub fn group_len(&self, group: GroupNr) -> u32 {
        let before = u64::from(group.get()) * u64::from(self.group_blocks);
        let left = self.blocks.get().saturating_sub(before);
        u32::try_from(left).map_or(self.group_blocks, |left| left.min(self.group_blocks))
    }

    /// Where a block of a group lies on the device.
    #[must_use]
    pub fn offset(&self, group: GroupNr, block: u32) -> Bytes {
        let linear = u64::from(group.get()) * u64::from(self.group_blocks) + u64::from(block);
        Bytes::new(linear << self.block_size.shift())
    }

    /// Bits that a file system block number has for the block inside its group.
    #[must_use]
    pub const fn group_shift(&self) -> u32 {
        u32::BITS - (self.group_blocks - 1).leading_zeros()
    }

    /// The file system block number of a block of a group.
    #[must_use]
    pub fn block_number(&self, group: GroupNr, block: u32) -> u64 {
        u64::from(group.get()) << self.group_shift() | u64::from(block)
    }

    /// Inodes in a block.
    #[must_use]
    pub const fn inodes_per_block(&self) -> u32 {
        self.block_size.get() / self.inode_size
    }

    /// Inodes made together: 64, or a whole block of them.
    #[must_use]
    pub fn chunk_inodes(&self) -> u32 {
        self.inodes_per_block().max(CHUNK_INODES)
    }

    /// Blocks of the inodes made together.
    #[must_use]
    pub fn chunk_blocks(&self) -> u32 {
        self.chunk_inodes() / self.inodes_per_block()
    }

    /// Whether inode chunks may have holes.
    #[must_use]
    pub const fn sparse_inodes(&self) -> bool {
        self.incompat.contains(Incompat::SPINODES)
    }

    /// `sb_inoalignmt`: blocks that chunks are aligned to, that of whole ones where they may have holes; 0
    /// where a block holds more than that.
    #[must_use]
    pub const fn inode_alignment(&self) -> u32 {
        if self.sparse_inodes() {
            CHUNK_INODES * self.inode_size / self.block_size.get()
        } else {
            self.cluster_blocks()
        }
    }

    /// `sb_spino_align`: blocks that parts of chunks are aligned to; 0 where chunks are whole.
    #[must_use]
    pub const fn sparse_alignment(&self) -> u32 {
        if self.sparse_inodes() { self.cluster_blocks() } else { 0 }
    }

    /// Blocks of an inode cluster, the inodes that are read and written together: 32, at least a block's.
    const fn cluster_blocks(&self) -> u32 {
        32 * self.inode_size / self.block_size.get()
    }

    /// Blocks of the four sectors at a group's start.
    #[must_use]
    pub const fn header_blocks(&self) -> u32 {
        (4 * self.sector_size).div_ceil(self.block_size.get())
    }

    /// Where the roots of a group's trees lie.
    #[must_use]
    pub fn roots(&self) -> Roots {
        let bno = self.header_blocks();
        let mut end = bno + 3;
        let mut next = |feature| {
            let has = self.ro_compat.contains(feature);
            end += u32::from(has);
            has.then(|| end - 1)
        };
        let (fino, rmap) = (next(RoCompat::FINOBT), next(RoCompat::RMAPBT));
        let refcount = next(RoCompat::REFLINK);
        Roots { bno, cnt: bno + 1, ino: bno + 2, fino, rmap, refcount, end }
    }

    /// Blocks on the free list of a group whose trees are all one block high: for each tree that grows while
    /// space is given out, its height and one more, but not more than it can ever have. That is worked out
    /// from `sb_agblocks` once for the volume: readers expect as many in the last group, be it shorter.
    #[must_use]
    pub fn free_list_blocks(&self) -> u32 {
        // A tree can be two blocks high if its records can be more than half a leaf. Free runs are at most
        // every second block, owners can change with each.
        let tree = |record: u32, records: u32| {
            let half_leaf = (self.block_size.get() - 56) / record / 2;
            if records > half_leaf { 2 } else { 1 }
        };
        let owners = if self.ro_compat.contains(RoCompat::RMAPBT) { tree(24, self.group_blocks) } else { 0 };
        2 * tree(8, self.group_blocks.div_ceil(2)) + owners
    }

    /// Blocks of the largest log that a group takes.
    #[must_use]
    pub fn log_blocks_max(&self) -> u32 {
        self.group_blocks.saturating_sub(self.roots().end + FREE_LIST_RESERVE + 1)
    }

    /// The first block of the first inodes, in group 0: where a reader expects the root directory.
    #[must_use]
    pub fn root_block(&self) -> u32 {
        let alignment = self.inode_alignment();
        let aligned = match self.stripe {
            Some(stripe) if alignment > 1 && stripe.unit.is_multiple_of(alignment) => stripe.unit,
            _ => alignment.max(1),
        };
        (self.roots().end + self.free_list_blocks()).next_multiple_of(aligned)
    }

    /// The inode number of the root directory; the bitmap and the summary of the realtime section follow.
    #[must_use]
    pub fn root_inode(&self) -> u64 {
        u64::from(self.root_block()) * u64::from(self.inodes_per_block())
    }
}
