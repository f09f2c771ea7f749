//! The way through a log, transaction by transaction.

use super::{LogMap, LoggedCopy, RecoveryError, ahead};
use crate::format::{BlockType, Checksum, JournalSuperblock, LogFormat, Tag, kind_of};
use crc_fast::{CrcAlgorithm, Digest};
use hectare_device::Device;
use hectare_units::{BlockNr, Blocks, TxnId, low32};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// What was found.
pub(super) struct Found {
    pub(super) copies: BTreeMap<BlockNr, LoggedCopy>,
    pub(super) transactions: u32,
    pub(super) next: TxnId,
    pub(super) fast_commits: bool,
}

/// A log that is gone through.
pub(super) struct Scan<'a> {
    device: &'a dyn Device,
    map: &'a LogMap,
    superblock: &'a JournalSuperblock,
    format: LogFormat,
    ring: (u32, u32),
    /// Blocks of the volume.
    limit: Blocks,
}

/// One transaction, as far as it was read.
#[derive(Default)]
struct Transaction {
    /// Its blocks: where they belong, and where they are.
    blocks: Vec<(Tag, u32)>,
    revokes: Vec<BlockNr>,
    /// Blocks of the ring it takes.
    len: u64,
    /// The first thing that is wrong with it, and where; only if it was committed does that matter.
    wrong: Option<(u32, String)>,
}

/// How a transaction ended.
enum End {
    /// It was committed, at that time.
    Committed(Option<Duration>),
    /// It was not: the log ends before it.
    Open,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        device: &'a dyn Device,
        map: &'a LogMap,
        superblock: &'a JournalSuperblock,
        limit: Blocks,
    ) -> Self {
        let (format, ring) = (LogFormat::of(superblock), superblock.ring());
        Self { device, map, superblock, format, ring, limit }
    }

    /// Goes through all committed transactions.
    pub(super) fn run(&self) -> Result<Found, RecoveryError> {
        let mut next = self.superblock.sequence();
        let mut at = self.superblock.start();
        let mut left = u64::from(self.ring.1 - self.ring.0);
        let mut newest: BTreeMap<BlockNr, (LoggedCopy, TxnId)> = BTreeMap::new();
        let mut revoked: HashMap<BlockNr, TxnId> = HashMap::new();
        let (mut transactions, mut last) = (0, Duration::ZERO);
        while left > 0 {
            let (transaction, end) = self.transaction(at, next, left)?;
            let End::Committed(time) = end else { break };
            // Older than the one before: a leftover whose number fits by chance.
            let time = time.unwrap_or(last);
            if time < last {
                break;
            }
            if let Some((block, reason)) = transaction.wrong {
                if self.format.async_commit {
                    break;
                }
                return Err(RecoveryError::Corrupt { sequence: next, block, reason });
            }
            last = time;
            for (tag, log_block) in transaction.blocks {
                newest.insert(tag.block, (LoggedCopy { log_block, escaped: tag.escaped }, next));
            }
            revoked.extend(transaction.revokes.into_iter().map(|block| (block, next)));
            at = ahead(self.ring, at, transaction.len);
            left -= transaction.len;
            next = next.next();
            transactions += 1;
        }
        newest
            .retain(|block, (_, logged)| revoked.get(block).is_none_or(|revoked| logged.is_after(*revoked)));
        let copies = newest.into_iter().map(|(block, (copy, _))| (block, copy)).collect();
        Ok(Found { copies, transactions, next, fast_commits: self.has_fast_commits(next)? })
    }

    /// Reads one transaction of at most `left` blocks.
    fn transaction(
        &self,
        start: u32,
        sequence: TxnId,
        left: u64,
    ) -> Result<(Transaction, End), RecoveryError> {
        let mut transaction = Transaction::default();
        let mut block = vec![0; self.format.block_size.len()];
        // MSB first, from all ones, not inverted.
        let mut crc = Digest::new(CrcAlgorithm::Crc32Mpeg2);
        while transaction.len < left {
            let at = ahead(self.ring, start, transaction.len);
            self.map.read(self.device, self.format.block_size, at, &mut block)?;
            transaction.len += 1;
            match kind_of(&block, sequence.get()) {
                None => return Ok((transaction, End::Open)),
                Some(BlockType::Descriptor) => {
                    crc.update(&block);
                    if !self.format.tail_is_right(&block) {
                        transaction.note(at, "the checksum of a descriptor is wrong");
                    }
                    if !self.described(&mut transaction, &block, start, left, sequence, &mut crc)? {
                        return Ok((transaction, End::Open));
                    }
                }
                Some(BlockType::Revoke) => self.revoke(&mut transaction, &block, at),
                Some(BlockType::Commit) => {
                    if !self.format.commit_is_right(&block) {
                        transaction.note(at, "the checksum of its commit block is wrong");
                    }
                    let of_all = (self.format.checksum == Checksum::V1)
                        .then(|| self.format.transaction_checksum(&block))
                        .flatten();
                    if of_all.is_some_and(|of_all| of_all != low32(crc.finalize())) {
                        transaction.note(at, "its checksum is wrong");
                    }
                    let time = self.format.commit_time(&block);
                    return Ok((transaction, End::Committed(time)));
                }
            }
        }
        Ok((transaction, End::Open))
    }

    /// Goes over the blocks that a descriptor describes; whether all of them fit the ring.
    fn described(
        &self,
        transaction: &mut Transaction,
        descriptor: &[u8],
        start: u32,
        left: u64,
        sequence: TxnId,
        crc: &mut Digest,
    ) -> Result<bool, RecoveryError> {
        let mut logged = vec![0; self.format.block_size.len()];
        for tag in self.format.tags(descriptor) {
            if transaction.len >= left {
                return Ok(false);
            }
            let at = ahead(self.ring, start, transaction.len);
            transaction.len += 1;
            if tag.block.get() >= self.limit.get() {
                transaction.note(
                    at,
                    format!("it has a copy of block {}, which the volume does not have", tag.block),
                );
            }
            if self.format.checksum != Checksum::None {
                self.map.read(self.device, self.format.block_size, at, &mut logged)?;
                crc.update(&logged);
                if !self.format.data_is_right(sequence.get(), &tag, &logged) {
                    transaction.note(at, format!("the checksum of the copy of block {} is wrong", tag.block));
                }
            }
            transaction.blocks.push((tag, at));
        }
        Ok(true)
    }

    fn revoke(&self, transaction: &mut Transaction, block: &[u8], at: u32) {
        if !self.format.tail_is_right(block) {
            transaction.note(at, "the checksum of a revoke block is wrong");
        }
        match self.format.revokes(block) {
            Some(revokes) => transaction.revokes.extend(revokes),
            None => transaction.note(at, "the length of a revoke block is impossible"),
        }
    }

    /// Whether the area of fast commits begins with one that belongs to a transaction: its first record (little-endian
    /// kind 9, length, features, transaction) says so.
    fn has_fast_commits(&self, sequence: TxnId) -> Result<bool, RecoveryError> {
        if self.superblock.fast_commit_blocks() == 0 {
            return Ok(false);
        }
        let mut block = vec![0; self.format.block_size.len()];
        self.map.read(self.device, self.format.block_size, self.ring.1, &mut block)?;
        let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let transaction = u32::from_le_bytes([block[8], block[9], block[10], block[11]]);
        Ok(half(0) == 9 && half(2) >= 8 && transaction == sequence.get())
    }
}

impl Transaction {
    fn note(&mut self, block: u32, what: impl Into<String>) {
        self.wrong.get_or_insert_with(|| (block, what.into()));
    }
}
