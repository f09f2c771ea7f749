//! The journal's superblock: where the log lies and where recovery starts.
//!
//! It is log block 0 of a journal inside the volume, and lies behind the ext4-like superblock of an external
//! one. [`JournalSuperblock::parse`] is the only way to one that was read, and checks every number that later
//! arithmetic relies on; fields without a use here are written back as they were.
//!
//! Hazards: `s_start` 0 means "clean"; the log then has nothing to replay, and `s_sequence` is the last one
//! used. A version 1 superblock has no fields behind `s_errno`: what lies there must not be trusted.

use super::feature::{JournalCompat, JournalIncompat};
use super::log::{BlockType, Checksum, LogFormat, MAGIC};
use hectare_ext4::checksum::crc32c;
use hectare_ext4::{Corrupt, FormatError, Place, Unsupported};
use hectare_units::{BlockSize, Blocks, LogicalBlock, TxnId, usize_of};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::big_endian::{I32, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a journal superblock.
pub const SUPERBLOCK_LEN: usize = 1024;
/// Volumes that can share an external journal, by the room there is.
pub const USERS_MAX: usize = 48;

/// `s_checksum_type`: crc32c, the only one in use.
pub const CHECKSUM_CRC32C: u8 = 4;
/// The size of the fast-commit area where the superblock says 0.
pub const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// The fewest log blocks beside a fast-commit area; with fewer, there is no such area.
const LOG_BLOCKS_MIN: u32 = 1024;
const WHAT: &str = "journal superblock";

/// The superblock as it lies on disk; names as in the format's documentation, numbers big-endian.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the names are the specification's
pub struct RawSuperblock {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: I32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [[u8; 16]; USERS_MAX],
}

const _: () = {
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_LEN);
    assert!(offset_of!(RawSuperblock, s_blocksize) == 0x0c);
    assert!(offset_of!(RawSuperblock, s_errno) == 0x20);
    assert!(offset_of!(RawSuperblock, s_uuid) == 0x30);
    assert!(offset_of!(RawSuperblock, s_checksum_type) == 0x50);
    assert!(offset_of!(RawSuperblock, s_num_fc_blks) == 0x54);
    assert!(offset_of!(RawSuperblock, s_head) == 0x58);
    assert!(offset_of!(RawSuperblock, s_checksum) == 0xfc);
    assert!(offset_of!(RawSuperblock, s_users) == 0x100);
};

/// A validated journal superblock.
#[derive(Clone, Debug)]
pub struct JournalSuperblock {
    raw: RawSuperblock,
    block_size: BlockSize,
}

impl JournalSuperblock {
    /// The superblock of a fresh journal inside a volume: version 2, clean, without features.
    ///
    /// `blocks` is the length with this block and any fast-commit area; `fast_commit` is how many blocks the
    /// latter has (used once the feature is turned on).
    #[must_use]
    pub fn new(block_size: BlockSize, blocks: u32, fast_commit: u32, uuid: [u8; 16]) -> Self {
        let mut raw = RawSuperblock::new_zeroed();
        raw.h_magic.set(MAGIC);
        raw.h_blocktype.set(BlockType::SuperblockV2.code());
        raw.s_blocksize.set(block_size.get());
        raw.s_maxlen.set(blocks);
        raw.s_first.set(1);
        raw.s_sequence.set(1);
        raw.s_nr_users.set(1);
        raw.s_num_fc_blks.set(fast_commit);
        raw.s_uuid = uuid;
        Self { raw, block_size }
    }

    /// The superblock of a fresh external journal of `blocks` blocks that no volume uses; it lies in block
    /// `at` of its device.
    #[must_use]
    pub fn external(block_size: BlockSize, blocks: u32, at: LogicalBlock, uuid: [u8; 16]) -> Self {
        let mut fresh = Self::new(block_size, blocks, 0, uuid);
        fresh.raw.s_first.set(at.get().saturating_add(1));
        fresh.raw.s_nr_users.set(0);
        fresh
    }

    /// Records the volume that uses an external journal, in place of those that did.
    pub fn set_user(&mut self, volume: [u8; 16]) {
        self.raw.s_users[0] = volume;
        self.raw.s_nr_users.set(1);
    }

    /// Records that no volume uses an external journal.
    pub fn clear_users(&mut self) {
        self.raw.s_users[0] = [0; 16];
        self.raw.s_nr_users.set(0);
    }

    /// Validates the first 1024 bytes of `bytes`.
    ///
    /// # Errors
    /// `Corrupt` names the field that breaks the format; `Unsupported` names the feature that is not known.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let (raw, _) = RawSuperblock::read_from_prefix(bytes)
            .map_err(|_| corrupt("it is shorter than 1024 bytes".into()))?;
        if raw.h_magic.get() != MAGIC {
            return Err(corrupt(format!("its magic number is {:#010x}", raw.h_magic.get())));
        }
        let version_2 = raw.h_blocktype.get() == BlockType::SuperblockV2.code();
        if !version_2 && raw.h_blocktype.get() != BlockType::SuperblockV1.code() {
            return Err(corrupt(format!("its block type is {}", raw.h_blocktype.get())));
        }
        let block_size = BlockSize::from_bytes(raw.s_blocksize.get().into())
            .ok_or_else(|| corrupt(format!("its block size is {}", raw.s_blocksize.get())))?;
        let parsed = Self { raw, block_size };
        parsed.check_features()?;
        parsed.check_checksum()?;
        parsed.check_area()?;
        Ok(parsed)
    }

    fn check_features(&self) -> Result<(), FormatError> {
        self.incompat().check()?;
        let ro_compat = if self.is_v1() { 0 } else { self.raw.s_feature_ro_compat.get() };
        if ro_compat != 0 {
            let text = format!("the journal uses the unknown read-only features {ro_compat:#x}");
            return Err(Unsupported(text).into());
        }
        let generations = [
            self.compat().contains(JournalCompat::CHECKSUM),
            self.incompat().contains(JournalIncompat::CSUM_V2),
            self.incompat().contains(JournalIncompat::CSUM_V3),
        ];
        if generations.into_iter().filter(|used| *used).count() > 1 {
            return Err(corrupt("it claims several generations of checksums at once".into()));
        }
        Ok(())
    }

    fn check_checksum(&self) -> Result<(), FormatError> {
        if !self.checksum().covers_blocks() {
            return Ok(());
        }
        if self.raw.s_checksum_type != CHECKSUM_CRC32C {
            return Err(Unsupported(format!(
                "the journal uses the unknown checksum type {}",
                self.raw.s_checksum_type
            ))
            .into());
        }
        let (found, expected) = (self.raw.s_checksum.get(), checksum_of(&self.raw));
        if found != expected {
            return Err(Corrupt::checksum(WHAT, Place::Volume, found, expected).into());
        }
        Ok(())
    }

    fn check_area(&self) -> Result<(), FormatError> {
        let (first, len, start) = (self.raw.s_first.get(), self.raw.s_maxlen.get(), self.raw.s_start.get());
        if self.incompat().contains(JournalIncompat::FAST_COMMIT) && self.fast_commit_blocks() >= len {
            let fast = self.fast_commit_blocks();
            return Err(corrupt(format!("{fast} of its {len} blocks are for fast commits")));
        }
        let end = self.end().get();
        if first == 0 || first >= end {
            return Err(corrupt(format!("its log goes from block {first} to block {end}")));
        }
        if start != 0 && !(first..end).contains(&start) {
            return Err(corrupt(format!(
                "recovery starts at block {start}, outside the log from {first} to {end}"
            )));
        }
        Ok(())
    }

    /// The bytes to write, with a fresh checksum where the journal has them.
    #[must_use]
    pub fn render(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut raw = self.raw;
        if self.checksum().covers_blocks() {
            raw.s_checksum_type = CHECKSUM_CRC32C;
            raw.s_checksum.set(checksum_of(&raw));
        }
        zerocopy::transmute!(raw)
    }

    /// The record as it lies on disk; its checksum is that of the bytes it was read from.
    #[must_use]
    pub const fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Whether it is of version 1, which has no features.
    #[must_use]
    pub fn is_v1(&self) -> bool {
        self.raw.h_blocktype.get() == BlockType::SuperblockV1.code()
    }

    /// The size of a log block, which is that of the volume's blocks.
    #[must_use]
    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The length of the journal, with its superblock and fast-commit area.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.raw.s_maxlen.get().into())
    }

    /// The first block of the log; at least 1.
    #[must_use]
    pub fn first(&self) -> LogicalBlock {
        LogicalBlock::new(self.raw.s_first.get())
    }

    /// The block after the log, where it wraps to [`first`](Self::first).
    #[must_use]
    pub fn end(&self) -> LogicalBlock {
        let area = self.fast_commit_area();
        LogicalBlock::new(area.map_or(self.raw.s_maxlen.get(), |area| area.start.get() - 1))
    }

    /// The fast-commit area, if there is one. The block between the log and the area is not used by either.
    #[must_use]
    pub fn fast_commit_area(&self) -> Option<Range<LogicalBlock>> {
        if !self.incompat().contains(JournalIncompat::FAST_COMMIT) {
            return None;
        }
        let len = self.raw.s_maxlen.get();
        let log = len.checked_sub(self.fast_commit_blocks()).filter(|log| *log >= LOG_BLOCKS_MIN)?;
        // A log that reaches the end leaves no area.
        (log < len).then(|| LogicalBlock::new(log + 1)..LogicalBlock::new(len))
    }

    /// Blocks set aside for fast commits, whether or not the feature is on; 1 of them is lost.
    #[must_use]
    pub fn fast_commit_blocks(&self) -> u32 {
        match self.raw.s_num_fc_blks.get() {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            n => n,
        }
    }

    /// The transaction that lies at [`start`](Self::start); of a clean journal, the last one used.
    #[must_use]
    pub fn sequence(&self) -> TxnId {
        TxnId::new(self.raw.s_sequence.get())
    }

    /// Where recovery starts, inside the log; `None` if the journal is clean.
    #[must_use]
    pub fn start(&self) -> Option<LogicalBlock> {
        Some(self.raw.s_start.get()).filter(|start| *start != 0).map(LogicalBlock::new)
    }

    /// The error that aborted the journal, a negative `errno` value; 0 for none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.raw.s_errno.get()
    }

    /// The compatible features; none in version 1.
    #[must_use]
    pub fn compat(&self) -> JournalCompat {
        let bits = if self.is_v1() { 0 } else { self.raw.s_feature_compat.get() };
        JournalCompat::from_bits_retain(bits)
    }

    /// The incompatible features; none in version 1.
    #[must_use]
    pub fn incompat(&self) -> JournalIncompat {
        let bits = if self.is_v1() { 0 } else { self.raw.s_feature_incompat.get() };
        JournalIncompat::from_bits_retain(bits)
    }

    /// Which generation of checksums the log has.
    #[must_use]
    pub fn checksum(&self) -> Checksum {
        if self.incompat().contains(JournalIncompat::CSUM_V3) {
            Checksum::V3
        } else if self.incompat().contains(JournalIncompat::CSUM_V2) {
            Checksum::V2
        } else if self.compat().contains(JournalCompat::CHECKSUM) {
            Checksum::V1
        } else {
            Checksum::None
        }
    }

    /// How the blocks of the log are written.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        LogFormat {
            block_size: self.block_size,
            wide: self.incompat().contains(JournalIncompat::BIT64),
            checksum: self.checksum(),
            uuid: self.uuid(),
            async_commit: self.incompat().contains(JournalIncompat::ASYNC_COMMIT),
        }
    }

    /// The journal's UUID; of an internal journal usually all zero or the volume's.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        if self.is_v1() { [0; 16] } else { self.raw.s_uuid }
    }

    /// The UUIDs of the volumes that use an external journal.
    #[must_use]
    pub fn users(&self) -> &[[u8; 16]] {
        let count = if self.is_v1() { 0 } else { usize_of(self.raw.s_nr_users.get()) };
        &self.raw.s_users[..count.min(USERS_MAX)]
    }

    /// Where the next transaction of a clean journal may continue writing; `None` if that is not recorded or
    /// lies outside the log.
    #[must_use]
    pub fn head(&self) -> Option<LogicalBlock> {
        let head = LogicalBlock::new(self.raw.s_head.get());
        (!self.is_v1() && (self.first()..self.end()).contains(&head)).then_some(head)
    }

    /// Says that the log has transactions from `sequence` on, the first of them at `start`.
    pub fn set_tail(&mut self, sequence: TxnId, start: LogicalBlock) {
        self.raw.s_sequence.set(sequence.get());
        self.raw.s_start.set(start.get());
    }

    /// Says that nothing is to be replayed and that the next transaction is the one after `sequence`.
    pub fn set_clean(&mut self, sequence: TxnId) {
        self.raw.s_sequence.set(sequence.get());
        self.raw.s_start.set(0);
    }

    /// Records where a clean journal may continue writing. Without effect in version 1.
    pub fn set_head(&mut self, head: LogicalBlock) {
        if !self.is_v1() {
            self.raw.s_head.set(head.get());
        }
    }

    /// Records the error that aborted the journal, a negative `errno` value; 0 clears it.
    pub fn set_errno(&mut self, errno: i32) {
        self.raw.s_errno.set(errno);
    }

    /// Changes the features; a version 1 superblock becomes one of version 2 with the fields it lacks zero.
    /// The log must be empty, since features change how it reads.
    ///
    /// # Errors
    /// If the features exclude each other, are not known, or leave no room for the log.
    pub fn set_features(
        &mut self,
        compat: JournalCompat,
        incompat: JournalIncompat,
    ) -> Result<(), FormatError> {
        let mut raw = self.raw;
        if self.is_v1() {
            raw = RawSuperblock::new_zeroed();
            let kept = offset_of!(RawSuperblock, s_feature_compat);
            raw.as_mut_bytes()[..kept].copy_from_slice(&self.raw.as_bytes()[..kept]);
            raw.h_blocktype.set(BlockType::SuperblockV2.code());
            raw.s_nr_users.set(1);
        }
        raw.s_feature_compat.set(compat.bits());
        raw.s_feature_incompat.set(incompat.bits());
        let changed = Self { raw, block_size: self.block_size };
        changed.check_features()?;
        *self = Self::parse(&changed.render())?;
        Ok(())
    }
}

fn corrupt(reason: String) -> FormatError {
    Corrupt::new(WHAT, Place::Volume, reason).into()
}

/// Over the whole superblock with its checksum zero, started from all ones.
fn checksum_of(raw: &RawSuperblock) -> u32 {
    let mut raw = *raw;
    raw.s_checksum.set(0);
    crc32c(!0, raw.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain() -> JournalSuperblock {
        JournalSuperblock::new(BlockSize::KIB4, 4096, 64, *b"0123456789abcdef")
    }

    fn broken(change: impl FnOnce(&mut RawSuperblock)) -> String {
        let mut raw = plain().raw;
        change(&mut raw);
        JournalSuperblock::parse(raw.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_was_rendered_parses_and_renders_the_same() {
        for incompat in [JournalIncompat::empty(), JournalIncompat::CSUM_V3 | JournalIncompat::BIT64] {
            let mut sb = plain();
            sb.set_features(JournalCompat::empty(), incompat).unwrap();
            sb.set_tail(TxnId::new(77), LogicalBlock::new(9));
            sb.set_errno(-5);
            let bytes = sb.render();
            let back = JournalSuperblock::parse(&bytes).unwrap();
            assert!(back.render() == bytes);
            assert_eq!((back.sequence(), back.start()), (TxnId::new(77), Some(LogicalBlock::new(9))));
            assert_eq!(back.errno(), -5);
        }
    }

    #[test]
    fn the_fast_commit_area_takes_the_end_of_the_log() {
        let mut sb = plain();
        assert_eq!(sb.end().get(), 4096);
        sb.set_features(JournalCompat::empty(), JournalIncompat::FAST_COMMIT).unwrap();
        assert_eq!(sb.end().get(), 4032);
        assert_eq!(sb.fast_commit_area(), Some(LogicalBlock::new(4033)..LogicalBlock::new(4096)));
        // A log that would become too short keeps all blocks.
        let mut small = JournalSuperblock::new(BlockSize::KIB4, 1030, 64, [0; 16]);
        small.set_features(JournalCompat::empty(), JournalIncompat::FAST_COMMIT).unwrap();
        assert_eq!((small.end().get(), small.fast_commit_area()), (1030, None));
    }

    #[test]
    fn each_broken_field_is_named() {
        assert!(broken(|raw| raw.h_magic.set(1)).contains("magic number"));
        assert!(broken(|raw| raw.h_blocktype.set(5)).contains("block type is 5"));
        assert!(broken(|raw| raw.s_blocksize.set(5000)).contains("block size is 5000"));
        assert!(broken(|raw| raw.s_first.set(0)).contains("from block 0"));
        assert!(broken(|raw| raw.s_first.set(4096)).contains("to block 4096"));
        assert!(broken(|raw| raw.s_start.set(4096)).contains("outside the log"));
        assert!(broken(|raw| raw.s_feature_incompat.set(0x40)).contains("incompatible features 0x40"));
        assert!(broken(|raw| raw.s_feature_ro_compat.set(1)).contains("read-only features 0x1"));
        assert!(broken(|raw| raw.s_feature_incompat.set(0x18)).contains("several generations"));
        assert!(broken(|raw| raw.s_feature_incompat.set(0x10)).contains("checksum type 0"));
        let no_log = broken(|raw| {
            raw.s_feature_incompat.set(0x20);
            raw.s_num_fc_blks.set(4096);
        });
        assert!(no_log.contains("for fast commits"), "{no_log}");
        let short = JournalSuperblock::parse(&[0; 1000]).unwrap_err().to_string();
        assert!(short.contains("shorter"));
    }

    #[test]
    fn a_flipped_bit_shows_where_there_are_checksums() {
        let mut sb = plain();
        sb.set_features(JournalCompat::empty(), JournalIncompat::CSUM_V2).unwrap();
        let bytes = sb.render();
        for at in [0x40, 0x5c, 0xff, 0x100, 1023] {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            let error = JournalSuperblock::parse(&bytes).unwrap_err().to_string();
            assert!(error.contains("checksum"), "{at}: {error}");
        }
    }

    #[test]
    fn version_1_has_no_features_until_it_is_given_some() {
        let mut raw = plain().raw;
        raw.h_blocktype.set(3);
        raw.s_feature_incompat.set(!0);
        let mut sb = JournalSuperblock::parse(raw.as_bytes()).unwrap();
        assert!(sb.incompat().is_empty() && sb.users().is_empty());
        assert!(sb.render() == raw.as_bytes());
        sb.set_features(JournalCompat::empty(), JournalIncompat::REVOKE).unwrap();
        assert!(!sb.is_v1());
        assert_eq!((sb.incompat(), sb.raw().s_uuid), (JournalIncompat::REVOKE, [0; 16]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_render_as_they_were(
            mut bytes: [[u8; 32]; 32],
            fields: [u16; 6],
            version in 3..5u8,
        ) {
            let bytes = bytes.as_flattened_mut();
            bytes[..12].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, version, 0, 0, 0, 0]);
            bytes[12..16].copy_from_slice(&4096u32.to_be_bytes());
            for (at, value) in [0x10, 0x14, 0x1c, 0x28, 0x54, 0x58].into_iter().zip(fields) {
                let value = if at == 0x28 { value & 0x27 } else { value };
                bytes[at..at + 4].copy_from_slice(&u32::from(value).to_be_bytes());
            }
            bytes[0x2c..0x30].fill(0);
            if let Ok(sb) = JournalSuperblock::parse(bytes) {
                prop_assert!(sb.render()[..] == *bytes);
                prop_assert!(sb.first() < sb.end() && u64::from(sb.end().get()) <= sb.blocks().get());
                let _ = (sb.start(), sb.head(), sb.users(), sb.log_format(), sb.fast_commit_area());
            }
        }
    }
}
