//! What all blocks of a log share: the header, the checksums, and how much fits.

use hectare_ext4::checksum::Seed;
use hectare_units::{BlockSize, TxnId};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number that every block of a journal's own starts with (`h_magic`).
pub const MAGIC: u32 = 0xc03b_3998;
/// Bytes of the header that a descriptor, revoke or commit block starts with.
pub const HEADER_LEN: usize = size_of::<RawHeader>();
/// Bytes of the checksum at the end of descriptor and revoke blocks (second and third generation).
pub(super) const TAIL_LEN: usize = 4;
/// Bytes of a UUID behind the first tag of a descriptor.
pub(super) const UUID_LEN: usize = 16;

/// The start of every block of a journal's own.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    h_magic: U32,
    h_blocktype: U32,
    h_sequence: U32,
}

/// What a block of a journal's own is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockType {
    /// Says which blocks of the volume the next log blocks are copies of.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The superblock of a journal without features.
    SuperblockV1,
    /// The superblock as it is now.
    SuperblockV2,
    /// Says of which blocks older copies must not be replayed.
    Revoke,
}

impl BlockType {
    /// Its number on disk (`h_blocktype`).
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        let all = [Self::Descriptor, Self::Commit, Self::SuperblockV1, Self::SuperblockV2, Self::Revoke];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

/// Reads the header of a block: its type and transaction; `None` if it has no magic number or no known type.
#[must_use]
pub fn header(block: &[u8]) -> Option<(BlockType, TxnId)> {
    let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
    if raw.h_magic.get() != MAGIC {
        return None;
    }
    Some((BlockType::from_code(raw.h_blocktype.get())?, TxnId::new(raw.h_sequence.get())))
}

/// The generations of checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// None at all.
    None,
    /// A crc32 over a transaction's descriptors and copies in its commit block.
    V1,
    /// A crc32c in each block, of which tags keep the low 16 bits.
    V2,
    /// A crc32c in each block and each tag.
    V3,
}

impl Checksum {
    /// Whether each block of the journal has its own checksum.
    #[must_use]
    pub const fn covers_blocks(self) -> bool {
        matches!(self, Self::V2 | Self::V3)
    }
}

/// How the blocks of a log are written, as its superblock says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFormat {
    /// The size of a block.
    pub block_size: BlockSize,
    /// Whether block numbers have 64 bits instead of 32.
    pub wide: bool,
    /// The generation of checksums.
    pub checksum: Checksum,
    /// The journal's UUID, from which its checksums start.
    pub uuid: [u8; 16],
    /// Whether commit blocks may reach the disk before what they commit.
    pub async_commit: bool,
}

impl LogFormat {
    /// Where the checksums of descriptors, revokes, commits and copies start.
    pub(super) fn seed(&self) -> Seed {
        Seed::of_uuid(&self.uuid)
    }

    /// Bytes at the end of descriptor and revoke blocks that are no content.
    pub(super) const fn tail_len(&self) -> usize {
        if self.checksum.covers_blocks() { TAIL_LEN } else { 0 }
    }

    /// The part of a descriptor or revoke block before its tail; all of a block of another length.
    pub(super) fn content<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        let end = block.len().saturating_sub(self.tail_len());
        block.get(..end).unwrap_or(block)
    }

    /// An empty block with a header.
    pub(super) fn block(&self, kind: BlockType, sequence: TxnId) -> Vec<u8> {
        let raw = RawHeader {
            h_magic: MAGIC.into(),
            h_blocktype: kind.code().into(),
            h_sequence: sequence.get().into(),
        };
        let mut block = vec![0; self.block_size.len()];
        block[..HEADER_LEN].copy_from_slice(raw.as_bytes());
        block
    }

    /// Writes the checksum at the end of a finished descriptor or revoke block.
    pub(super) fn seal(&self, block: &mut [u8]) {
        if self.checksum.covers_blocks() {
            let tail = self.tail_checksum(block);
            let at = block.len() - TAIL_LEN;
            block[at..].copy_from_slice(&tail.to_be_bytes());
        }
    }

    /// Whether the checksum at the end of a descriptor or revoke block is right; true where there are none.
    #[must_use]
    pub fn verify_tail(&self, block: &[u8]) -> bool {
        if !self.checksum.covers_blocks() {
            return true;
        }
        let found = block.last_chunk::<TAIL_LEN>().map(|tail| u32::from_be_bytes(*tail));
        found == Some(self.tail_checksum(block))
    }

    /// Over the whole block with its tail zero.
    fn tail_checksum(&self, block: &[u8]) -> u32 {
        self.seed().then(self.content(block)).checksum(&[0; TAIL_LEN])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every form a log can have, but for the block size.
    pub(in crate::format) fn formats(block_size: BlockSize) -> impl Iterator<Item = LogFormat> {
        let sums = [Checksum::None, Checksum::V1, Checksum::V2, Checksum::V3];
        let uuid = *b"fedcba9876543210";
        sums.into_iter().flat_map(move |checksum| {
            let format = |wide| LogFormat { block_size, wide, checksum, uuid, async_commit: false };
            [format(false), format(true)]
        })
    }

    #[test]
    fn a_header_says_what_a_block_is() {
        let format = formats(BlockSize::KIB1).next().unwrap();
        for kind in [BlockType::Descriptor, BlockType::Commit, BlockType::Revoke] {
            let block = format.block(kind, TxnId::new(7));
            assert_eq!(header(&block), Some((kind, TxnId::new(7))));
        }
        let mut block = format.block(BlockType::Commit, TxnId::new(7));
        block[7] = 6;
        assert_eq!(header(&block), None);
        assert_eq!(header(&block[..11]), None);
    }
}
