//! Making the log's own blocks.

use super::{
    BlockType, COMMIT_CHECKSUM, COMMIT_TIME, Checksum, HEADER_LEN, Header, LogFormat, REVOKE_HEADER_LEN,
    TAIL_LEN, flag, put32,
};
use hectare_units::{BlockNr, TxnId, high32, low16, low32, u64_of};

/// Bytes of a UUID in a descriptor.
const UUID_LEN: usize = 16;

impl LogFormat {
    /// Blocks that one descriptor describes.
    #[must_use]
    pub const fn tags_per_descriptor(&self) -> usize {
        (self.usable() - HEADER_LEN - UUID_LEN) / self.tag_len()
    }

    /// Block numbers that one revoke block holds.
    #[must_use]
    pub const fn revokes_per_block(&self) -> usize {
        (self.usable() - REVOKE_HEADER_LEN) / self.revoke_len()
    }

    /// The descriptor of blocks that follow it in that order: their places, and their bytes as they are to be on the
    /// volume.
    ///
    /// # Panics
    /// If there are more than [`Self::tags_per_descriptor`].
    #[must_use]
    pub fn descriptor(&self, sequence: TxnId, blocks: &[(BlockNr, &[u8])]) -> Vec<u8> {
        let mut descriptor = self.own_block(BlockType::Descriptor, sequence);
        let mut at = HEADER_LEN;
        for (index, (nr, bytes)) in blocks.iter().enumerate() {
            let mut flags = 0;
            let mut logged: [&[u8]; 2] = [&[], bytes];
            if Self::needs_escape(bytes) {
                flags |= flag::ESCAPE;
                logged = [&[0; 4], &bytes[4..]];
            }
            if index > 0 {
                flags |= flag::SAME_UUID;
            }
            if index + 1 == blocks.len() {
                flags |= flag::LAST;
            }
            self.put_tag(&mut descriptor[at..], *nr, flags, sequence.get(), logged);
            at += self.tag_len();
            if index == 0 {
                descriptor[at..at + UUID_LEN].copy_from_slice(&self.uuid);
                at += UUID_LEN;
            }
        }
        self.seal_tail(&mut descriptor);
        descriptor
    }

    fn put_tag(&self, tag: &mut [u8], nr: BlockNr, flags: u32, sequence: u32, logged: [&[u8]; 2]) {
        put32(tag, 0, low32(nr.get()));
        if self.checksum == Checksum::V3 {
            put32(tag, 4, flags);
            put32(tag, 8, high32(nr.get()));
            put32(tag, 12, self.data_checksum(sequence, logged));
            return;
        }
        if self.checksum == Checksum::V2 {
            let half = low16(self.data_checksum(sequence, logged).into());
            tag[4..6].copy_from_slice(&half.to_be_bytes());
        }
        tag[6..8].copy_from_slice(&low16(flags.into()).to_be_bytes());
        if self.wide {
            put32(tag, 8, high32(nr.get()));
        }
    }

    /// A block that revokes others.
    ///
    /// # Panics
    /// If there are more than [`Self::revokes_per_block`].
    #[must_use]
    pub fn revoke(&self, sequence: TxnId, blocks: &[BlockNr]) -> Vec<u8> {
        let mut revoke = self.own_block(BlockType::Revoke, sequence);
        let len = self.revoke_len();
        let end = REVOKE_HEADER_LEN + blocks.len() * len;
        put32(&mut revoke, HEADER_LEN, low32(u64_of(end)));
        for (entry, nr) in revoke[REVOKE_HEADER_LEN..end].chunks_exact_mut(len).zip(blocks) {
            entry.copy_from_slice(&nr.get().to_be_bytes()[8 - len..]);
        }
        self.seal_tail(&mut revoke);
        revoke
    }

    /// The block that commits a transaction, at a time since 1970. For v1 checksums, `crc32` is that of all other
    /// blocks of the transaction.
    #[must_use]
    pub fn commit(&self, sequence: TxnId, seconds: u64, nanoseconds: u32) -> Vec<u8> {
        let mut commit = self.own_block(BlockType::Commit, sequence);
        commit[COMMIT_TIME..COMMIT_TIME + 8].copy_from_slice(&seconds.to_be_bytes());
        put32(&mut commit, COMMIT_TIME + 8, nanoseconds);
        if self.sealed() {
            let crc = self.own_checksum(&commit, COMMIT_CHECKSUM);
            put32(&mut commit, COMMIT_CHECKSUM, crc);
        }
        commit
    }

    fn own_block(&self, kind: BlockType, sequence: TxnId) -> Vec<u8> {
        let mut block = vec![0; self.block_size.len()];
        Header { kind, sequence: sequence.get() }.write(&mut block);
        block
    }

    fn seal_tail(&self, block: &mut [u8]) {
        if self.sealed() {
            let at = block.len() - TAIL_LEN;
            let crc = self.own_checksum(block, at);
            put32(block, at, crc);
        }
    }
}
