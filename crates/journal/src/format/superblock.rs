//! The log's superblock: how large it is, what it uses, and where a recovery begins.

use super::{Checksum, MAGIC, be32, put32};
use bitflags::bitflags;
use hectare_ext4::checksum::crc32c;
use hectare_units::{BlockSize, TxnId, low32};

bitflags! {
    /// Features that a reader must know.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Incompat: u32 {
        /// There may be revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const BIT64 = 0x2;
        /// A commit block may be on disk before its transaction is.
        const ASYNC_COMMIT = 0x4;
        /// Checksums v2.
        const CSUM_V2 = 0x8;
        /// Checksums v3.
        const CSUM_V3 = 0x10;
        /// The end of the log is an area of fast commits.
        const FAST_COMMIT = 0x20;
    }
}

/// The compatible feature: checksums v1.
const COMPAT_CHECKSUM: u32 = 0x1;
/// Bytes of the superblock; the rest of its block means nothing.
const SIZE: usize = 1024;
/// The number that stands for crc32c.
const CRC32C: u8 = 4;
/// Blocks of the area of fast commits where the superblock says 0.
const FAST_COMMIT_BLOCKS: u32 = 256;

/// Where fields are.
mod at {
    pub(super) const TYPE: usize = 0x04;
    pub(super) const BLOCK_SIZE: usize = 0x0c;
    pub(super) const MAX_LEN: usize = 0x10;
    pub(super) const FIRST: usize = 0x14;
    pub(super) const SEQUENCE: usize = 0x18;
    pub(super) const START: usize = 0x1c;
    pub(super) const ERRNO: usize = 0x20;
    pub(super) const COMPAT: usize = 0x24;
    pub(super) const INCOMPAT: usize = 0x28;
    pub(super) const RO_COMPAT: usize = 0x2c;
    pub(super) const UUID: usize = 0x30;
    pub(super) const CHECKSUM_TYPE: usize = 0x50;
    pub(super) const FAST_COMMIT_BLOCKS: usize = 0x54;
    pub(super) const HEAD: usize = 0x58;
    pub(super) const CHECKSUM: usize = 0xfc;
}

/// Why a log can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// It is not a log's superblock, or it contradicts itself.
    #[error("{0}")]
    Corrupt(String),
    /// It uses something that is not known here.
    #[error("the log uses features that are not known (incompat {incompat:#x}, ro_compat {ro_compat:#x})")]
    Unsupported {
        /// Unknown bits.
        incompat: u32,
        /// Unknown bits.
        ro_compat: u32,
    },
}

/// The superblock of a log, read and found to make sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSuperblock {
    bytes: Box<[u8; SIZE]>,
    block_size: BlockSize,
}

impl JournalSuperblock {
    /// Reads the superblock of a log that has `blocks` blocks of `block_size`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8], block_size: BlockSize, blocks: u64) -> Result<Self, SuperblockError> {
        let corrupt = |what: String| Err(SuperblockError::Corrupt(what));
        let Some(bytes) = bytes.first_chunk::<SIZE>() else {
            return corrupt(format!("{} bytes are too few for a log's superblock", bytes.len()));
        };
        let this = Self { bytes: Box::new(*bytes), block_size };
        if this.get(0) != MAGIC {
            return corrupt(format!("there is no log: it begins with {:#010x}", this.get(0)));
        }
        let version = match this.get(at::TYPE) {
            3 => 1,
            4 => 2,
            other => return corrupt(format!("its superblock is of type {other}")),
        };
        if this.get(at::BLOCK_SIZE) != block_size.get() {
            return corrupt(format!(
                "its blocks have {} bytes, the volume's {block_size}",
                this.get(at::BLOCK_SIZE)
            ));
        }
        if version == 2 {
            this.check_features()?;
        } else if this.get(at::COMPAT) | this.get(at::INCOMPAT) | this.get(at::RO_COMPAT) != 0 {
            return corrupt("a superblock of version 1 has features".into());
        }
        let (first, end) = (this.first(), this.get(at::MAX_LEN));
        if u64::from(end) > blocks {
            return corrupt(format!("it says that the log has {end} blocks, but there are {blocks}"));
        }
        if first == 0 || this.fast_commit_blocks() >= end || this.ring().1 <= first.saturating_add(1) {
            return corrupt(format!("its ring goes from block {first} to {}", this.ring().1));
        }
        if this.start() != 0 && !(first..this.ring().1).contains(&this.start()) {
            return corrupt(format!("a recovery would begin at block {}, outside the ring", this.start()));
        }
        Ok(this)
    }

    fn check_features(&self) -> Result<(), SuperblockError> {
        let incompat = self.get(at::INCOMPAT) & !Incompat::all().bits();
        let ro_compat = self.get(at::RO_COMPAT);
        if incompat | ro_compat != 0 {
            return Err(SuperblockError::Unsupported { incompat, ro_compat });
        }
        let kinds = [
            self.get(at::COMPAT) & COMPAT_CHECKSUM != 0,
            self.incompat().contains(Incompat::CSUM_V2),
            self.incompat().contains(Incompat::CSUM_V3),
        ];
        if kinds.into_iter().filter(|kind| *kind).count() > 1 {
            return Err(SuperblockError::Corrupt("it has checksums of two kinds".into()));
        }
        if kinds[1] || kinds[2] {
            if self.bytes[at::CHECKSUM_TYPE] != CRC32C {
                let what = format!("its checksums are of type {}, not crc32c", self.bytes[at::CHECKSUM_TYPE]);
                return Err(SuperblockError::Corrupt(what));
            }
            if self.get(at::CHECKSUM) != self.crc() {
                return Err(SuperblockError::Corrupt("the checksum of its superblock is wrong".into()));
            }
        }
        Ok(())
    }

    fn get(&self, at: usize) -> u32 {
        be32(&*self.bytes, at).expect("fields lie inside the superblock")
    }

    fn set(&mut self, at: usize, value: u32) {
        put32(&mut *self.bytes, at, value);
    }

    fn crc(&self) -> u32 {
        let crc = crc32c(!0, &self.bytes[..at::CHECKSUM]);
        crc32c(crc32c(crc, &[0; 4]), &self.bytes[at::CHECKSUM + 4..])
    }

    /// The size of its blocks.
    #[must_use]
    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn first(&self) -> u32 {
        self.get(at::FIRST)
    }

    /// All blocks of the log, its superblock's and fast commits included.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.get(at::MAX_LEN)
    }

    /// Blocks at the end that are for fast commits.
    #[must_use]
    pub fn fast_commit_blocks(&self) -> u32 {
        match (self.incompat().contains(Incompat::FAST_COMMIT), self.get(at::FAST_COMMIT_BLOCKS)) {
            (false, _) => 0,
            (true, 0) => FAST_COMMIT_BLOCKS,
            (true, blocks) => blocks,
        }
    }

    /// The blocks that transactions are written to: the first, and the one after the last.
    #[must_use]
    pub fn ring(&self) -> (u32, u32) {
        (self.first(), self.get(at::MAX_LEN).saturating_sub(self.fast_commit_blocks()))
    }

    /// The number of the first transaction that is expected at [`start`](Self::start).
    #[must_use]
    pub fn sequence(&self) -> TxnId {
        TxnId::new(self.get(at::SEQUENCE))
    }

    /// Sets the number of the first transaction that is expected.
    pub fn set_sequence(&mut self, sequence: TxnId) {
        self.set(at::SEQUENCE, sequence.get());
    }

    /// The block where a recovery begins; 0 if none is needed.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.get(at::START)
    }

    /// Sets the block where a recovery begins.
    pub fn set_start(&mut self, start: u32) {
        self.set(at::START, start);
    }

    /// Notes the block after the last that was used, for a log that is clean.
    pub fn set_head(&mut self, head: u32) {
        self.set(at::HEAD, head);
    }

    /// The error that the volume failed with (an `errno` value); 0 if none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        // The kernel stores its negative numbers.
        self.get(at::ERRNO).cast_signed().saturating_abs()
    }

    /// Notes the error that the volume failed with; 0 for none.
    pub fn set_errno(&mut self, errno: i32) {
        self.set(at::ERRNO, errno.saturating_neg().cast_unsigned());
    }

    /// What a reader must know.
    #[must_use]
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_truncate(self.get(at::INCOMPAT))
    }

    /// What protects the log.
    #[must_use]
    pub fn checksum(&self) -> Checksum {
        let incompat = self.incompat();
        if incompat.contains(Incompat::CSUM_V3) {
            Checksum::V3
        } else if incompat.contains(Incompat::CSUM_V2) {
            Checksum::V2
        } else if self.get(at::COMPAT) & COMPAT_CHECKSUM != 0 {
            Checksum::V1
        } else {
            Checksum::None
        }
    }

    /// Sets what a clean log is written with from now on: checksums of version 3 or none, 64-bit block numbers or not,
    /// revoke blocks always. The area of fast commits stays.
    pub fn set_features(&mut self, checksums: bool, wide: bool) {
        let mut incompat = Incompat::REVOKE | (self.incompat() & Incompat::FAST_COMMIT);
        incompat.set(Incompat::CSUM_V3, checksums);
        incompat.set(Incompat::BIT64, wide);
        self.set(at::TYPE, 4);
        self.set(at::COMPAT, self.get(at::COMPAT) & !COMPAT_CHECKSUM);
        self.set(at::INCOMPAT, incompat.bits());
        self.bytes[at::CHECKSUM_TYPE] = if checksums { CRC32C } else { 0 };
    }

    /// The UUID that checksums start from: the volume's, or that of the device the log has for itself.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.bytes[at::UUID..at::UUID + 16]);
        uuid
    }

    /// The bytes to write, checksum included.
    #[must_use]
    pub fn render(&self) -> [u8; SIZE] {
        let mut sealed = self.clone();
        let crc = match self.checksum() {
            Checksum::V2 | Checksum::V3 => sealed.crc(),
            Checksum::None | Checksum::V1 => 0,
        };
        sealed.set(at::CHECKSUM, crc);
        *sealed.bytes
    }

    /// The superblock of a log that was never used: it has `blocks` blocks, of which the last `fast_commit` are for fast
    /// commits.
    #[must_use]
    pub fn fresh(block_size: BlockSize, blocks: u64, fast_commit: u32, uuid: &[u8; 16]) -> Self {
        let mut this = Self { bytes: Box::new([0; SIZE]), block_size };
        this.set(0, MAGIC);
        this.set(at::TYPE, 4);
        this.set(at::BLOCK_SIZE, block_size.get());
        this.set(at::MAX_LEN, low32(blocks));
        this.set(at::FIRST, 1);
        this.set(at::SEQUENCE, 1);
        this.set(0x40, 1); // users
        this.set(at::FAST_COMMIT_BLOCKS, fast_commit);
        this.bytes[at::UUID..at::UUID + 16].copy_from_slice(uuid);
        this
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> JournalSuperblock {
        JournalSuperblock::fresh(BlockSize::KIB1, 1024, 0, &[7; 16])
    }

    fn parse(bytes: &[u8]) -> Result<JournalSuperblock, SuperblockError> {
        JournalSuperblock::parse(bytes, BlockSize::KIB1, 1024)
    }

    #[test]
    fn what_is_rendered_is_read_back() {
        let mut superblock = fresh();
        superblock.set_features(true, true);
        superblock.set_sequence(TxnId::new(77));
        superblock.set_start(5);
        superblock.set_errno(5);
        let read = parse(&superblock.render()).unwrap();
        assert_eq!((read.sequence().get(), read.start(), read.errno()), (77, 5, 5));
        assert_eq!((read.checksum(), read.ring()), (Checksum::V3, (1, 1024)));
        assert_eq!(read.render(), superblock.render());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let broken = |at: usize, value: u32| {
            let mut bytes = fresh().render();
            put32(&mut bytes, at, value);
            parse(&bytes).unwrap_err().to_string()
        };
        assert!(broken(0, 1).contains("no log"));
        assert!(broken(at::TYPE, 9).contains("type 9"));
        assert!(broken(at::BLOCK_SIZE, 4096).contains("4096"));
        assert!(broken(at::MAX_LEN, 1025).contains("1025"));
        assert!(broken(at::FIRST, 0).contains("ring"));
        assert!(broken(at::FIRST, 1024).contains("ring"));
        assert!(broken(at::START, 1024).contains("1024"));
        assert!(broken(at::INCOMPAT, 0x40).contains("0x40"));
        assert!(broken(at::INCOMPAT, 0x18).contains("two kinds"));
        assert!(broken(at::INCOMPAT, 0x10).contains("type 0"));
        let mut sealed = fresh();
        sealed.set_features(true, false);
        let mut bytes = sealed.render();
        bytes[at::UUID] ^= 1;
        assert!(parse(&bytes).unwrap_err().to_string().contains("checksum"));
        assert!(parse(&bytes[..1023]).is_err());
    }
}
