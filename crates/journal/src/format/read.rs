//! Reading the log's own blocks. Nothing is taken on trust: a block that is not what it should be is told, by
//! `None`.

use super::{
    BlockType, COMMIT_CHECKSUM, COMMIT_TIME, Checksum, HEADER_LEN, Header, LogFormat, REVOKE_HEADER_LEN,
    TAIL_LEN, be16, be32, flag,
};
use hectare_units::{BlockNr, join32, low16, usize_of};
use std::time::Duration;

/// A block that a descriptor describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Its place on the volume.
    pub block: BlockNr,
    /// Whether its first word is the magic number, and zero in the log.
    pub escaped: bool,
    checksum: u32,
}

/// The tags of a descriptor.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    format: LogFormat,
    descriptor: &'a [u8],
    at: usize,
    ended: bool,
}

/// The block numbers of a revoke block.
#[derive(Clone, Debug)]
pub struct Revokes<'a> {
    entries: std::slice::ChunksExact<'a, u8>,
}

impl LogFormat {
    /// Whether the checksum at the end of a descriptor or revoke block is right, where it has one.
    #[must_use]
    pub fn tail_is_right(&self, block: &[u8]) -> bool {
        if !self.sealed() {
            return true;
        }
        let Some(at) = block.len().checked_sub(TAIL_LEN) else { return false };
        be32(block, at) == Some(self.own_checksum(block, at))
    }

    /// The tags of a descriptor.
    #[must_use]
    pub fn tags<'a>(&self, descriptor: &'a [u8]) -> Tags<'a> {
        Tags { format: *self, descriptor, at: HEADER_LEN, ended: false }
    }

    /// The block numbers of a revoke block; `None` if their length makes no sense.
    #[must_use]
    pub fn revokes<'a>(&self, block: &'a [u8]) -> Option<Revokes<'a>> {
        let end = usize_of(be32(block, HEADER_LEN)?);
        if end > self.usable() {
            return None;
        }
        Some(Revokes { entries: block.get(REVOKE_HEADER_LEN..end)?.chunks_exact(self.revoke_len()) })
    }

    /// Whether a block as it stands in the log is what its tag says.
    #[must_use]
    pub fn data_is_right(&self, sequence: u32, tag: &Tag, logged: &[u8]) -> bool {
        let checksum = || self.data_checksum(sequence, [logged, &[]]);
        match self.checksum {
            Checksum::V3 => tag.checksum == checksum(),
            Checksum::V2 => tag.checksum == u32::from(low16(checksum().into())),
            Checksum::None | Checksum::V1 => true,
        }
    }

    /// Whether the checksum of a commit block is right, where it has one of its own.
    #[must_use]
    pub fn commit_is_right(&self, block: &[u8]) -> bool {
        !self.sealed() || be32(block, COMMIT_CHECKSUM) == Some(self.own_checksum(block, COMMIT_CHECKSUM))
    }

    /// The time of a commit block, since 1970.
    #[must_use]
    pub fn commit_time(&self, block: &[u8]) -> Option<Duration> {
        let seconds = join32(be32(block, COMMIT_TIME + 4)?, be32(block, COMMIT_TIME)?);
        Duration::from_secs(seconds).checked_add(Duration::from_nanos(be32(block, COMMIT_TIME + 8)?.into()))
    }

    /// The crc32 (v1) that a commit block has of its transaction: `None` if it carries none.
    #[must_use]
    pub fn transaction_checksum(&self, block: &[u8]) -> Option<u32> {
        let kind = (*block.get(12)?, *block.get(13)?);
        // Type 1 is crc32, of 4 bytes; older kernels left all of it zero.
        (kind == (1, 4)).then(|| be32(block, COMMIT_CHECKSUM)).flatten()
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let format = &self.format;
        let end = self.at.checked_add(format.tag_len())?;
        if self.ended || end > format.usable() {
            return None;
        }
        let tag = self.descriptor.get(self.at..end)?;
        let low = be32(tag, 0)?;
        let (flags, high, checksum) = match format.checksum {
            Checksum::V3 => (be32(tag, 4)?, be32(tag, 8)?, be32(tag, 12)?),
            _ => (be16(tag, 6)?.into(), if format.wide { be32(tag, 8)? } else { 0 }, be16(tag, 4)?.into()),
        };
        let high = if format.wide { high } else { 0 };
        self.at = end + if flags & flag::SAME_UUID == 0 { 16 } else { 0 };
        self.ended = flags & flag::LAST != 0;
        Some(Tag { block: BlockNr::new(join32(low, high)), escaped: flags & flag::ESCAPE != 0, checksum })
    }
}

impl Iterator for Revokes<'_> {
    type Item = BlockNr;

    fn next(&mut self) -> Option<BlockNr> {
        let entry = self.entries.next()?;
        Some(BlockNr::new(entry.iter().fold(0, |nr, byte| nr << 8 | u64::from(*byte))))
    }
}

/// What kind of block it is, if it is one of the log's own and of that transaction.
#[must_use]
pub(crate) fn kind_of(block: &[u8], sequence: u32) -> Option<BlockType> {
    Header::parse(block).filter(|header| header.sequence == sequence).map(|header| header.kind)
}

#[cfg(test)]
mod tests {
    use super::super::JournalSuperblock;
    use super::*;
    use hectare_units::{BlockSize, TxnId};

    fn formats() -> Vec<LogFormat> {
        let size = BlockSize::KIB1;
        let mut formats = Vec::new();
        for wide in [false, true] {
            let mut superblock = JournalSuperblock::fresh(size, 1024, 0, &[3; 16]);
            superblock.set_features(true, wide);
            let v3 = LogFormat::of(&superblock);
            formats.extend(
                [Checksum::None, Checksum::V1, Checksum::V2, Checksum::V3]
                    .map(|checksum| LogFormat { checksum, ..v3 }),
            );
        }
        formats
    }

    #[test]
    fn descriptors_are_read_as_they_were_written() {
        for format in formats() {
            let plain = vec![1; 1024];
            let mut magic = vec![2; 1024];
            magic[..4].copy_from_slice(&super::super::MAGIC.to_be_bytes());
            let high = if format.wide { 5 << 32 } else { 0 };
            let most = format.tags_per_descriptor();
            let blocks: Vec<(BlockNr, &[u8])> = (0..most as u64)
                .map(|n| (BlockNr::new(high + n), if n % 3 == 1 { &magic[..] } else { &plain[..] }))
                .collect();
            for count in [1, 2, most] {
                let descriptor = format.descriptor(TxnId::new(9), &blocks[..count]);
                assert_eq!(kind_of(&descriptor, 9), Some(BlockType::Descriptor));
                assert!(format.tail_is_right(&descriptor));
                let tags: Vec<Tag> = format.tags(&descriptor).collect();
                assert_eq!(tags.len(), count, "{format:?}");
                for (tag, (nr, bytes)) in tags.iter().zip(&blocks) {
                    let mut logged = bytes.to_vec();
                    assert_eq!((tag.block, tag.escaped), (*nr, bytes[0] != 1));
                    if tag.escaped {
                        logged[..4].fill(0);
                    }
                    assert!(format.data_is_right(9, tag, &logged));
                    logged[500] ^= 1;
                    assert_ne!(format.data_is_right(9, tag, &logged), format.sealed());
                }
            }
        }
    }

    #[test]
    fn revoke_and_commit_blocks_are_read_as_they_were_written() {
        for format in formats() {
            let blocks: Vec<BlockNr> = (0..format.revokes_per_block() as u64).map(BlockNr::new).collect();
            let mut revoke = format.revoke(TxnId::new(4), &blocks);
            assert!(format.tail_is_right(&revoke));
            assert!(format.revokes(&revoke).unwrap().eq(blocks.iter().copied()));
            revoke[20] ^= 1;
            assert_ne!(format.tail_is_right(&revoke), format.sealed());
            revoke[12] = 1;
            assert!(format.revokes(&revoke).is_none());
            let mut commit = format.commit(TxnId::new(4), 7, 8);
            assert_eq!(kind_of(&commit, 4), Some(BlockType::Commit));
            assert_eq!(kind_of(&commit, 5), None);
            assert!(format.commit_is_right(&commit));
            assert_eq!(format.commit_time(&commit), Some(Duration::new(7, 8)));
            commit[50] ^= 1;
            assert_ne!(format.commit_is_right(&commit), format.sealed());
        }
    }
}
