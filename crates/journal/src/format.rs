//! The format of jbd2's log: its superblock, and the blocks that transactions are made of.
//!
//! Everything is big-endian. Each block of the log's own begins with a [`Header`]: the magic number, what it is,
//! and the sequence number of its transaction. A *descriptor* lists, in tags, the places of the blocks that follow
//! it; a *revoke* block lists blocks whose older copies no longer count; a *commit* block makes a transaction
//! count. A logged block that happens to begin with the magic number has that word zeroed in the log, and a flag in
//! its tag (escaping), so that it is not taken for one of the log's own.
//!
//! How tags and checksums look depends on features, which is what [`LogFormat`] is made from:
//!
//! | checksums | tag | of what |
//! |---|---|---|
//! | none | 8 or 12 bytes | |
//! | v1 (compat `checksum`) | as none | commit block: crc32 of all descriptors and logged blocks |
//! | v2 | 2 bytes more | tag: low half of the block's crc32c; tails of descriptor and revoke blocks; commit block |
//! | v3 | 16 bytes | the same, whole crc32c |
//!
//! (12 and 8 bytes: with and without 64-bit block numbers.)
//!
//! Source: the kernel's documentation of the jbd2 format, checked against what debugfs, e2fsck and the kernel
//! write and read.

mod read;
mod superblock;
mod write;

pub(crate) use read::kind_of;
pub use read::{Revokes, Tag, Tags};
pub use superblock::{Incompat, JournalSuperblock, SuperblockError};

use hectare_ext4::checksum::crc32c;
use hectare_units::BlockSize;

/// The number that the log's own blocks begin with.
pub const MAGIC: u32 = 0xc03b_3998;
/// Bytes of a [`Header`].
pub const HEADER_LEN: usize = 12;
/// Bytes before the entries of a revoke block.
const REVOKE_HEADER_LEN: usize = HEADER_LEN + 4;
/// Bytes of the checksum at the end of descriptor and revoke blocks.
const TAIL_LEN: usize = 4;
/// Where the checksum is in a commit block.
const COMMIT_CHECKSUM: usize = 16;
/// Where the time is in a commit block: seconds (8 bytes), nanoseconds (4).
const COMMIT_TIME: usize = 48;

/// Flags of a tag.
mod flag {
    /// The logged block began with the magic number.
    pub(super) const ESCAPE: u32 = 1;
    /// No UUID follows: it is that of the tag before.
    pub(super) const SAME_UUID: u32 = 2;
    /// The last tag of the descriptor.
    pub(super) const LAST: u32 = 8;
}

/// What a block of the log's own is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockType {
    /// A list of the blocks that follow.
    Descriptor,
    /// The end of a transaction.
    Commit,
    /// A list of blocks whose older copies don't count.
    Revoke,
}

impl BlockType {
    const fn number(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::Revoke => 5,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        [Self::Descriptor, Self::Commit, Self::Revoke].into_iter().find(|kind| kind.number() == number)
    }
}

/// How a block of the log's own begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is.
    pub kind: BlockType,
    /// Its transaction.
    pub sequence: u32,
}

impl Header {
    /// The header of a block; `None` if it is not one of the log's own.
    #[must_use]
    pub fn parse(block: &[u8]) -> Option<Self> {
        let (magic, kind, sequence) = (be32(block, 0)?, be32(block, 4)?, be32(block, 8)?);
        if magic != MAGIC {
            return None;
        }
        Some(Self { kind: BlockType::from_number(kind)?, sequence })
    }

    fn write(self, block: &mut [u8]) {
        put32(block, 0, MAGIC);
        put32(block, 4, self.kind.number());
        put32(block, 8, self.sequence);
    }
}

/// What the blocks of a log are protected by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// Nothing.
    None,
    /// One crc32 over a transaction, in its commit block.
    V1,
    /// crc32c of each block, of which tags keep half.
    V2,
    /// crc32c of each block.
    V3,
}

/// How a log is written and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFormat {
    /// The size of its blocks: the volume's.
    pub block_size: BlockSize,
    /// Whether block numbers have 64 bits.
    pub wide: bool,
    /// What protects it.
    pub checksum: Checksum,
    /// Whether a commit block may be found whose transaction is not whole.
    pub async_commit: bool,
    uuid: [u8; 16],
    /// The crc32c of the UUID, from which all others start.
    seed: u32,
}

impl LogFormat {
    /// The format of the log with that superblock.
    #[must_use]
    pub fn of(superblock: &JournalSuperblock) -> Self {
        let uuid = superblock.uuid();
        Self {
            block_size: superblock.block_size(),
            wide: superblock.incompat().contains(Incompat::BIT64),
            checksum: superblock.checksum(),
            async_commit: superblock.incompat().contains(Incompat::ASYNC_COMMIT),
            uuid,
            seed: crc32c(!0, &uuid),
        }
    }

    /// Whether descriptor, revoke and commit blocks carry a crc32c.
    const fn sealed(&self) -> bool {
        matches!(self.checksum, Checksum::V2 | Checksum::V3)
    }

    /// Bytes of a tag, without a UUID.
    const fn tag_len(&self) -> usize {
        match (self.checksum, self.wide) {
            (Checksum::V3, _) => 16,
            (Checksum::V2, true) => 14,
            (Checksum::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Bytes of a descriptor or revoke block before its checksum.
    const fn usable(&self) -> usize {
        self.block_size.len() - if self.sealed() { TAIL_LEN } else { 0 }
    }

    /// Bytes of a block number in a revoke block.
    const fn revoke_len(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The crc32c of a logged block, as it stands in the log, for its tag.
    fn data_checksum(&self, sequence: u32, logged: [&[u8]; 2]) -> u32 {
        let crc = crc32c(self.seed, &sequence.to_be_bytes());
        crc32c(crc32c(crc, logged[0]), logged[1])
    }

    /// The crc32c of a block of the log's own whose checksum, at `at`, counts as zero.
    fn own_checksum(&self, block: &[u8], at: usize) -> u32 {
        let crc = crc32c(self.seed, &block[..at]);
        crc32c(crc32c(crc, &[0; TAIL_LEN]), &block[at + TAIL_LEN..])
    }

    /// Whether a block is to be escaped in the log.
    #[must_use]
    pub fn needs_escape(block: &[u8]) -> bool {
        be32(block, 0) == Some(MAGIC)
    }
}

/// The word at a place; `None` beyond the end.
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The half word at a place; `None` beyond the end.
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
