//! The log: where transactions are written before their blocks are checkpointed.
//!
//! A log is a ring of blocks on the volume (or on a device of its own). A transaction is a run of them: its
//! revoke records, then descriptors each followed by the blocks it describes, and a commit block that makes
//! it count. Everything but the commit block is flushed before the commit block is written, so that a commit
//! block is never found without what it commits; with the same flush, file data that was written before the
//! transaction was frozen is durable before metadata that names it. The commit block is flushed in turn.
//!
//! The oldest transaction that may still be needed is the *tail*. Its place stands in the log's superblock,
//! which is where a recovery begins. Moving the tail makes room; a caller that moves it must know that
//! the blocks before it are in place and flushed ([`crate::checkpoint`]).
//!
//! Hazards and invariants:
//! - the tail on the device is never ahead of what is checkpointed, and never behind what was overwritten:
//!   the superblock is flushed before the room is used;
//! - sequence numbers of transactions in the log follow each other without a gap, so a transaction without
//!   blocks is not written, and takes no number;
//! - a transaction revokes no block that it logs: a record also covers copies in its own transaction;
//! - a block that begins with the log's magic number is escaped, else a recovery would take it for the log's
//!   own;
//! - where the volume has the feature `fast_commit`, the ring ends before the area that the kernel cuts off for
//!   fast commits at its next mount ([`Log::ending_before`]). The log's superblock does not say so, since then
//!   e2fsck (1.47) ends its replay at the turn; so no transaction lies behind the turn while one before it is
//!   needed. And the head is always before the area: the kernel (6.4 and newer) continues there, and one behind
//!   the end of its ring never meets it.
//!
//! What it is not: it knows no handles and no threads ([`crate::Journal`]), and does not read a log
//! ([`crate::recovery`]).

use crate::format::{JournalSuperblock, LogFormat, needs_escape};
use crate::recovery::LogMap;
use hectare_device::Device;
use hectare_units::{BlockNr, BlockSize, Bytes, LogicalBlock, TxnId, usize_of};
use std::borrow::Cow;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of one vectored write.
const RUN_MAX: usize = 1024;

/// A block of metadata as it is to be on the volume.
pub type LoggedBlock = (BlockNr, Arc<[u8]>);

/// Why a transaction can't be logged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// A transaction has more blocks than the log.
    #[error("a transaction of {need} blocks does not fit a log of {have}")]
    TooLarge {
        /// Blocks it needs.
        need: u32,
        /// Blocks of the log.
        have: u32,
    },
}

/// Where a transaction begins in the log, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// Its sequence number.
    pub sequence: TxnId,
    /// Its first block in the log.
    pub start: u32,
    /// Blocks it takes.
    pub len: u32,
}

/// A log that is being written.
pub struct Log {
    device: Arc<dyn Device>,
    /// The volume's device, if the log lies on another one.
    volume: Option<Arc<dyn Device>>,
    map: LogMap,
    format: LogFormat,
    superblock: JournalSuperblock,
    block_size: BlockSize,
    /// The ring: from its first block to before its end, where readers turn.
    first: u32,
    end: u32,
    /// A block before the end that no transaction may reach, if there is one.
    limit: Option<u32>,
    /// Where the first transaction begins.
    start: u32,
    /// Whether a recovery begins there.
    begun: bool,
    /// The next block to be written.
    head: u32,
    /// Blocks from the tail to the head.
    used: u32,
    /// The number of the next transaction.
    next: TxnId,
}

impl Log {
    /// A log that is clean: nothing in it is needed. It continues where the one before ended, if that is
    /// recorded, so that old transactions are overwritten as late as possible: they are what removed files
    /// are brought back from. `superblock` says the features to be used; `next` is the number of the first
    /// transaction. Nothing is written before [`begin`](Self::begin). `volume` is the
    /// volume's device if the log lies on another one.
    #[must_use]
    pub fn new(
        device: Arc<dyn Device>,
        map: LogMap,
        superblock: JournalSuperblock,
        next: TxnId,
        volume: Option<Arc<dyn Device>>,
    ) -> Self {
        let (first, end) = (superblock.first().get(), superblock.end().get());
        // What a log that is not clean says of its head is older than its transactions.
        let head = superblock.head().filter(|_| superblock.start().is_none());
        let start = head.map_or(first, LogicalBlock::get);
        Self {
            device,
            volume,
            map,
            format: superblock.log_format(),
            block_size: superblock.block_size(),
            first,
            end,
            limit: None,
            start,
            begun: false,
            head: start,
            used: 0,
            next,
            superblock,
        }
    }

    /// The same log, of which the blocks from `limit` on are not used. To be called before
    /// [`begin`](Self::begin).
    #[must_use]
    pub fn ending_before(mut self, limit: LogicalBlock) -> Self {
        let limit = limit.get();
        if (self.first + 1..self.end).contains(&limit) {
            self.limit = Some(limit);
            if self.head >= limit {
                (self.start, self.head) = (self.first, self.first);
            }
        }
        self
    }

    /// Records on the device that a recovery is to begin where the first transaction was written, and
    /// flushes. To be called once.
    ///
    /// # Errors
    /// If the superblock can't be written or flushed.
    pub fn begin(&mut self, first: TxnId) -> Result<(), LogError> {
        self.begun = true;
        self.superblock.set_tail(first, LogicalBlock::new(self.start));
        self.write_superblock()?;
        Ok(self.device.flush()?)
    }

    /// Blocks of the ring.
    #[must_use]
    pub fn len(&self) -> u32 {
        // The head stays before the limit.
        self.limit.map_or(self.end, |limit| limit - 1) - self.first
    }

    /// Whether no transaction is in the log.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Blocks nothing needs.
    #[must_use]
    pub fn free(&self) -> u32 {
        match self.limit {
            Some(limit) if self.used > 0 => limit - 1 - self.head,
            _ => self.len() - self.used,
        }
    }

    /// Blocks that may stay in use for there to be room for `need` more.
    #[must_use]
    pub fn kept_beside(&self, need: u32) -> u32 {
        // A log with a limit turns only when it is empty.
        if self.limit.is_some() { 0 } else { self.len().saturating_sub(need) }
    }

    /// Blocks that a transaction takes.
    #[must_use]
    pub fn needed(&self, blocks: usize, revokes: usize) -> u32 {
        let descriptors = blocks.div_ceil(self.format.tags_per_descriptor());
        let revokes = revokes.div_ceil(self.format.revokes_per_block());
        u32::try_from(blocks + descriptors + revokes + 1).unwrap_or(u32::MAX)
    }

    /// Revoked blocks that one block of the log lists.
    #[must_use]
    pub fn revokes_per_block(&self) -> usize {
        self.format.revokes_per_block()
    }

    /// Writes a transaction and returns when it is durable. `blocks` are in ascending order, and none of them
    /// is revoked. `time` is since 1970; a recovery takes a transaction that is older than the one before it
    /// for a leftover.
    ///
    /// # Errors
    /// [`LogError::TooLarge`] if there is not that much room, before anything is written; a write or flush
    /// that failed.
    pub fn append(
        &mut self,
        blocks: &[LoggedBlock],
        revokes: &[BlockNr],
        time: Duration,
    ) -> Result<Logged, LogError> {
        debug_assert!(blocks.is_sorted_by_key(|(nr, _)| *nr), "blocks out of order");
        let logged = |nr: &BlockNr| blocks.binary_search_by_key(nr, |(logged, _)| *logged).is_ok();
        debug_assert!(!revokes.iter().any(logged), "a transaction revokes a block that it logs");
        let need = self.needed(blocks.len(), revokes.len());
        if need > self.free() {
            return Err(LogError::TooLarge { need, have: self.free() });
        }
        if self.limit.is_some_and(|limit| need > limit - 1 - self.head) {
            self.turn()?;
        }
        let logged = Logged { sequence: self.next, start: self.head, len: need };
        let mut body = self.body(blocks, revokes);
        // Cleared before: of the commit block only the first sector holds anything, so it arrives whole or
        // not at all.
        body.push(Cow::Owned(vec![0; self.block_size.len()]));
        self.write(&body)?;
        let (commit_at, _) = self.place(self.ahead(logged.start, need - 1));
        if let Some(volume) = &self.volume {
            volume.flush()?;
        }
        self.device.flush()?;
        let commit = self.format.commit(self.next, time.as_secs(), time.subsec_nanos());
        self.device.write_durable(commit_at, &[IoSlice::new(&commit)])?;
        self.used += need;
        self.next = self.next.next();
        Ok(logged)
    }

    /// Goes back to the first block of the ring. Nothing is in the log.
    fn turn(&mut self) -> Result<(), LogError> {
        debug_assert!(self.is_empty(), "a log with a limit turns with {} blocks in use", self.used);
        (self.start, self.head) = (self.first, self.first);
        if !self.begun {
            return Ok(());
        }
        self.superblock.set_tail(self.next, LogicalBlock::new(self.head));
        self.write_superblock()?;
        Ok(self.device.flush()?)
    }

    /// Everything of a transaction before its commit block.
    fn body<'a>(&self, blocks: &'a [LoggedBlock], revokes: &[BlockNr]) -> Vec<Cow<'a, [u8]>> {
        let sequence = self.next;
        let mut body = Vec::with_capacity(blocks.len() + 16);
        for part in revokes.chunks(self.format.revokes_per_block()) {
            body.push(Cow::Owned(self.format.revoke(sequence, part)));
        }
        for part in blocks.chunks(self.format.tags_per_descriptor()) {
            let described: Vec<(BlockNr, &[u8])> = part.iter().map(|(nr, bytes)| (*nr, &**bytes)).collect();
            body.push(Cow::Owned(self.format.descriptor(sequence, &described)));
            body.extend(part.iter().map(|(_, bytes)| escaped(bytes)));
        }
        body
    }

    /// Writes blocks at the head, which moves behind them.
    fn write(&mut self, blocks: &[Cow<'_, [u8]>]) -> Result<(), LogError> {
        let mut rest = blocks;
        while !rest.is_empty() {
            let most = usize_of(self.end - self.head).min(rest.len()).min(RUN_MAX);
            let (at, run) = self.place(self.head);
            let (now, after) = rest.split_at(most.min(usize_of(run)));
            let parts: Vec<IoSlice<'_>> = now.iter().map(|block| IoSlice::new(block)).collect();
            self.device.write_all_at(at, &parts)?;
            self.step(now.len());
            rest = after;
        }
        Ok(())
    }

    /// Moves the head over blocks that don't go beyond the end of the ring.
    fn step(&mut self, blocks: usize) {
        self.head += u32::try_from(blocks).unwrap_or(u32::MAX);
        if self.head == self.end {
            self.head = self.first;
        }
    }

    /// The block of the ring that is `by` blocks after another.
    fn ahead(&self, block: u32, by: u32) -> u32 {
        self.first + (block - self.first + by) % self.len()
    }

    /// Where a block of the log lies on the device, and how many follow it there.
    fn place(&self, block: u32) -> (Bytes, u32) {
        let (nr, run) =
            self.map.locate(LogicalBlock::new(block)).expect("the map was found to cover the log");
        (nr.offset(self.block_size), run)
    }

    /// Moves the tail to a transaction, or behind the last one if there is none to keep, and flushes. What
    /// lies before it must be checkpointed and flushed.
    ///
    /// # Errors
    /// If the superblock can't be written or flushed.
    pub fn move_tail(&mut self, to: Option<Logged>) -> Result<(), LogError> {
        let (sequence, start) = to.map_or((self.next, self.head), |to| (to.sequence, to.start));
        let ring = self.len();
        let used = match to {
            None => 0,
            // A log that is full begins where it ends.
            Some(_) if self.limit.is_some() => self.head - start,
            Some(_) if start == self.head => ring,
            Some(_) => (self.head + ring - start) % ring,
        };
        self.superblock.set_tail(sequence, LogicalBlock::new(start));
        self.write_superblock()?;
        self.device.flush()?;
        self.used = used;
        Ok(())
    }

    /// The number of the next transaction.
    #[must_use]
    pub const fn next(&self) -> TxnId {
        self.next
    }

    /// Marks the log as clean: a recovery finds nothing to do, but where the last transaction ended.
    /// Everything must be checkpointed and flushed. Flushes.
    ///
    /// # Errors
    /// If the superblock can't be written or flushed.
    pub fn finish(&mut self) -> Result<(), LogError> {
        self.superblock.set_clean(self.next);
        self.superblock.set_head(LogicalBlock::new(self.head));
        self.write_superblock()?;
        Ok(self.device.flush()?)
    }

    /// Notes in the log that the volume failed (an `errno` value), for its recovery. Flushes.
    ///
    /// # Errors
    /// If the superblock can't be written or flushed.
    pub fn record_error(&mut self, errno: i32) -> Result<(), LogError> {
        self.superblock.set_errno(errno.saturating_neg());
        self.write_superblock()?;
        Ok(self.device.flush()?)
    }

    fn write_superblock(&self) -> Result<(), LogError> {
        Ok(self.device.write_at(self.map.superblock_offset(), &self.superblock.render())?)
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a log of {} blocks, {} used, next is {}", self.len(), self.used, self.next)
    }
}

/// A block as it stands in the log: a first word that is the log's magic number is zero there.
fn escaped(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !needs_escape(bytes) {
        return Cow::Borrowed(bytes);
    }
    let mut copy = bytes.to_vec();
    copy[..4].fill(0);
    Cow::Owned(copy)
}
