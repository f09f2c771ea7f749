//! Commit blocks: the end of a transaction. One that is whole makes the transaction count.
//!
//! Hazards: only the first 60 bytes mean something, but the checksum of the later generations covers the
//! block. Where a write was torn behind the first sector, the rest of the block may hold what was there
//! before: such a block is whole if the checksum over its head and zeros is right. In the first generation a
//! commit block may leave its checksum out by saying that it has no type.

use super::log::{BlockType, Checksum, LogFormat, RawHeader};
use hectare_units::TxnId;
use std::mem::offset_of;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_chksum_type` and `h_chksum_size` of the first generation.
const CRC32: (u8, u8) = (1, 4);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCommit {
    header: RawHeader,
    h_chksum_type: u8,
    h_chksum_size: u8,
    h_padding: [u8; 2],
    h_chksum: [U32; 8],
    h_commit_sec: U64,
    h_commit_nsec: U32,
}

const LEN: usize = size_of::<RawCommit>();
const _: () = {
    assert!(LEN == 60);
    assert!(offset_of!(RawCommit, h_chksum) == 16);
    assert!(offset_of!(RawCommit, h_commit_sec) == 48);
};

/// What a commit block says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitBlock {
    /// When the transaction was committed: seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds, 0 to 999,999,999 if the writer kept to that.
    pub nanoseconds: u32,
    /// Whether its checksum is right, or there is none.
    pub verified: bool,
}

impl LogFormat {
    /// The commit block of a transaction. A journal of the first generation gets one without a checksum.
    #[must_use]
    pub fn commit(&self, sequence: TxnId, seconds: u64, nanoseconds: u32) -> Vec<u8> {
        let mut block = self.block(BlockType::Commit, sequence);
        if let Ok((raw, _)) = RawCommit::mut_from_prefix(&mut block) {
            raw.h_commit_sec.set(seconds);
            raw.h_commit_nsec.set(nanoseconds);
        }
        if self.checksum.covers_blocks() {
            let checksum = self.seed().checksum(&block);
            let at = offset_of!(RawCommit, h_chksum);
            block[at..at + 4].copy_from_slice(&checksum.to_be_bytes());
        }
        block
    }

    /// Reads a commit block. `transaction` is the crc32 (polynomial 0x04c11db7, highest bit first, started
    /// from all ones, not inverted) of the transaction's descriptors and copies, which only the first
    /// generation has a use for. `None` if the block is shorter than a commit block.
    #[must_use]
    pub fn read_commit(&self, block: &[u8], transaction: u32) -> Option<CommitBlock> {
        let (raw, rest) = RawCommit::read_from_prefix(block).ok()?;
        let found = raw.h_chksum[0].get();
        let verified = match self.checksum {
            Checksum::None => true,
            Checksum::V1 => {
                let kind = (raw.h_chksum_type, raw.h_chksum_size);
                (kind == CRC32 && found == transaction) || (kind == (0, 0) && found == 0)
            }
            Checksum::V2 | Checksum::V3 => {
                let mut head = raw;
                head.h_chksum[0].set(0);
                let seed = self.seed().then(head.as_bytes());
                found == seed.checksum(rest) || found == seed.checksum(&vec![0; rest.len()])
            }
        };
        Some(CommitBlock { seconds: raw.h_commit_sec.get(), nanoseconds: raw.h_commit_nsec.get(), verified })
    }
}

/// The crc32 of the first generation: polynomial 0x04c11db7, highest bit first, not inverted. Started from
/// all ones and continued over a transaction's descriptors and copies in the order of the log; revoke blocks
/// don't count.
pub(crate) struct TransactionCrc(crc_fast::Digest);

impl TransactionCrc {
    pub(crate) fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Mpeg2))
    }

    pub(crate) fn update(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    pub(crate) fn get(&self) -> u32 {
        hectare_units::low32(self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::{header, tests::formats};
    use super::*;
    use hectare_units::BlockSize;

    #[test]
    fn a_commit_block_says_what_was_put_in() {
        for format in [BlockSize::KIB1, BlockSize::KIB64].into_iter().flat_map(formats) {
            let block = format.commit(TxnId::new(9), 1 << 33, 999_999_999);
            assert_eq!(header(&block), Some((BlockType::Commit, TxnId::new(9))));
            let commit = format.read_commit(&block, 0x1234_5678).unwrap();
            let expected = CommitBlock { seconds: 1 << 33, nanoseconds: 999_999_999, verified: true };
            assert_eq!(commit, expected);
        }
    }

    #[test]
    fn damage_shows_but_old_bytes_behind_the_first_sector_do_not_matter() {
        for format in formats(BlockSize::KIB4) {
            let block = format.commit(TxnId::new(9), 5, 6);
            let mut flipped = block.clone();
            flipped[55] ^= 1;
            let verified = format.read_commit(&flipped, 0).unwrap().verified;
            assert_eq!(verified, !format.checksum.covers_blocks());
            let mut torn = block;
            torn[512..].fill(0xee);
            assert!(format.read_commit(&torn, 0).unwrap().verified);
            assert!(format.read_commit(&torn[..59], 0).is_none());
        }
    }

    #[test]
    fn the_first_generation_sums_the_transaction() {
        let mut crc = TransactionCrc::new();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.get(), 0x0376_e6e7); // the published check value of this crc
        let format = formats(BlockSize::KIB1).find(|f| f.checksum == Checksum::V1).unwrap();
        let mut block = format.commit(TxnId::new(1), 0, 0);
        (block[12], block[13]) = CRC32;
        block[16..20].copy_from_slice(&0x0376_e6e7_u32.to_be_bytes());
        assert!(format.read_commit(&block, 0x0376_e6e7).unwrap().verified);
        assert!(!format.read_commit(&block, 0x0376_e6e8).unwrap().verified);
    }
}
