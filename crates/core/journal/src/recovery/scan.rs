//! The first pass: finds the transactions in the log.
//!
//! The scan follows the log by sequence number and stops at the first block that is not the expected one:
//! that is where writing stopped. A transaction counts once its commit block is found and, with everything
//! it commits, is whole.
//!
//! A wrong checksum means one of three things. The block is left from an earlier turn of a log whose sequence
//! numbers wrapped: then its commit is older than the last one. Or the commit block overtook what it commits,
//! as `async_commit` lets it: then no further transaction follows. Or the log is damaged.
//!
//! With `async_commit`, copies are verified here, as they show whether the transaction is whole; else only
//! those that are replayed are, later.

use super::RecoveryError;
use super::reader::{LogReader, Ring};
use crate::format::{BlockType, Checksum, CommitBlock, JournalSuperblock, LogFormat, TransactionCrc, header};
use hectare_units::{LogicalBlock, TxnId};
use std::borrow::Cow;

/// A block of a transaction that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogBlock {
    pub(super) at: LogicalBlock,
    pub(super) txn: TxnId,
    /// A descriptor; else a revoke block.
    pub(super) is_descriptor: bool,
}

/// What the log holds.
#[derive(Debug)]
pub(super) struct Scanned {
    /// Descriptor and revoke blocks of the transactions that count, in order.
    pub(super) found: Vec<LogBlock>,
    /// The transaction after the last that counts.
    pub(super) end: TxnId,
    /// The log block after it.
    pub(super) head: LogicalBlock,
}

/// The first thing that is wrong with a transaction.
#[derive(Clone, Debug)]
struct Fault {
    txn: TxnId,
    at: LogicalBlock,
    reason: &'static str,
}

impl From<Fault> for RecoveryError {
    fn from(fault: Fault) -> Self {
        Self::Damaged { txn: fault.txn, at: fault.at, reason: Cow::Borrowed(fault.reason) }
    }
}

/// Follows the log from `start`.
pub(super) fn scan(
    reader: &LogReader<'_>,
    superblock: &JournalSuperblock,
    start: LogicalBlock,
    end: Option<TxnId>,
) -> Result<Scanned, RecoveryError> {
    let mut scan = Scan::new(reader, superblock, start);
    while Some(scan.txn) != end && scan.step()? {}
    Ok(scan.scanned)
}

struct Scan<'a> {
    reader: &'a LogReader<'a>,
    format: LogFormat,
    ring: Ring,
    block: Vec<u8>,
    /// The transaction whose blocks are expected.
    txn: TxnId,
    /// Its blocks so far.
    open: Vec<LogBlock>,
    /// What is wrong with it so far.
    fault: Option<Fault>,
    /// Its checksum so far (first generation).
    crc: TransactionCrc,
    /// When the transaction before it was committed.
    committed_at: u64,
    /// The transaction where an `async_commit` log ends, unless it turns out to continue.
    torn: Option<Fault>,
    scanned: Scanned,
}

impl<'a> Scan<'a> {
    fn new(reader: &'a LogReader<'a>, superblock: &JournalSuperblock, start: LogicalBlock) -> Self {
        let txn = superblock.sequence();
        Self {
            reader,
            format: superblock.log_format(),
            ring: Ring::from(superblock, start),
            block: reader.buffer(),
            txn,
            open: Vec::new(),
            fault: None,
            crc: TransactionCrc::new(),
            committed_at: 0,
            torn: None,
            scanned: Scanned { found: Vec::new(), end: txn, head: start },
        }
    }

    /// Takes the next block, and returns whether the log continues.
    fn step(&mut self) -> Result<bool, RecoveryError> {
        let Some(at) = self.ring.step() else { return Ok(false) };
        self.reader.read(at, &mut self.block)?;
        match header(&self.block) {
            Some((kind, txn)) if txn == self.txn => match kind {
                BlockType::Descriptor => self.descriptor(at),
                BlockType::Revoke => {
                    self.check_tail(at);
                    self.open.push(LogBlock { at, txn, is_descriptor: false });
                    Ok(true)
                }
                BlockType::Commit => self.commit(at),
                BlockType::SuperblockV1 | BlockType::SuperblockV2 => Ok(false),
            },
            _ => Ok(false),
        }
    }

    fn blame(&mut self, at: LogicalBlock, reason: &'static str) {
        self.fault.get_or_insert(Fault { txn: self.txn, at, reason });
    }

    fn check_tail(&mut self, at: LogicalBlock) {
        if !self.format.verify_tail(&self.block) {
            self.blame(at, "the block's checksum is wrong");
        }
    }

    fn descriptor(&mut self, at: LogicalBlock) -> Result<bool, RecoveryError> {
        self.check_tail(at);
        let checksums: Vec<u32> = self.format.tags(&self.block).map(|tag| tag.checksum).collect();
        let Some(copies) = self.ring.steps(checksums.len()) else { return Ok(false) };
        self.open.push(LogBlock { at, txn: self.txn, is_descriptor: true });
        match self.format.checksum {
            Checksum::V1 => self.sum_up(&copies)?,
            Checksum::V2 | Checksum::V3 if self.format.async_commit => self.verify(&copies, &checksums)?,
            _ => {}
        }
        Ok(true)
    }

    /// Adds a descriptor and its copies to the transaction's checksum.
    fn sum_up(&mut self, copies: &[LogicalBlock]) -> Result<(), RecoveryError> {
        let Self { crc, block, reader, .. } = self;
        crc.update(block);
        // The copies wrap at most once: each part is in ascending order.
        for part in copies.chunk_by(|a, b| a < b) {
            reader.read_each(part, |_, copy| {
                crc.update(copy);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn verify(&mut self, copies: &[LogicalBlock], checksums: &[u32]) -> Result<(), RecoveryError> {
        let (format, txn) = (self.format, self.txn);
        let mut wrong = None;
        let mut checksums = checksums.iter();
        for part in copies.chunk_by(|a, b| a < b) {
            self.reader.read_each(part, |i, copy| {
                let checksum = checksums.next().copied().unwrap_or_default();
                if !format.verify_copy(checksum, txn, copy) {
                    wrong = wrong.or(Some(part[i]));
                }
                Ok(())
            })?;
        }
        if let Some(at) = wrong {
            self.blame(at, "the copy's checksum is wrong");
        }
        Ok(())
    }

    fn commit(&mut self, at: LogicalBlock) -> Result<bool, RecoveryError> {
        let crc = std::mem::replace(&mut self.crc, TransactionCrc::new()).get();
        let Some(commit) = self.format.read_commit(&self.block, crc) else { return Ok(false) };
        if !commit.verified {
            self.blame(at, "the commit block's checksum is wrong");
        }
        let open = std::mem::take(&mut self.open);
        match self.fault.take() {
            None => self.good_commit(open)?,
            Some(fault) => {
                if !self.bad_commit(fault, commit)? {
                    return Ok(false);
                }
            }
        }
        self.committed_at = commit.seconds;
        self.txn = self.txn.next();
        Ok(true)
    }

    fn good_commit(&mut self, open: Vec<LogBlock>) -> Result<(), RecoveryError> {
        if let Some(torn) = self.torn.take() {
            return Err(torn.into()); // a later transaction is whole, so this one had been as well
        }
        self.scanned.found.extend(open);
        self.scanned.end = self.txn.next();
        self.scanned.head = self.ring.position();
        Ok(())
    }

    /// A commit block of a transaction that is not whole; whether to look on.
    fn bad_commit(&mut self, fault: Fault, commit: CommitBlock) -> Result<bool, RecoveryError> {
        if commit.seconds < self.committed_at {
            return Ok(false); // left from an earlier turn
        }
        if !self.format.async_commit {
            return Err(fault.into());
        }
        self.torn.get_or_insert(fault);
        Ok(true)
    }
}
