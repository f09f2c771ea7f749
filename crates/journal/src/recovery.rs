//! Recovery: what a log holds that is not home.
//!
//! [`read`] goes through the log from its tail, transaction by transaction, to the last that was committed, and
//! finds for each block of the volume the newest copy that counts: one that was not revoked in its own or a
//! later transaction. Nothing is written and no block is kept; [`Recovery::apply`] then brings the copies home,
//! to the volume or to something laid over it.
//!
//! Where the log ends: at a block that is not the log's own, or of another transaction. The ring holds older
//! transactions behind that, whose numbers don't fit, or, where they do by chance, whose commit is older than
//! the one before. A transaction without its commit block does not count. A commit block that is there and whose
//! transaction is damaged means that the log is broken: then nothing is applied, and the error says what is
//! wrong, since half a recovery would mix two states of the volume.
//!
//! Hazards: all of it comes from a disk that may lie. Every transaction takes blocks of the ring, and no more than
//! the ring has are looked at; block numbers are checked against the volume.
//!
//! What it is not: it knows nothing of ext4. Orphans and fast commits are for who does; that there are fast
//! commits is told ([`Recovery::has_fast_commits`]).

mod map;
mod scan;

pub use map::{LogMap, external};

use crate::format::{JournalSuperblock, LogFormat, SuperblockError};
use crate::home::write_sorted;
use crate::log::LoggedBlock;
use hectare_device::Device;
use hectare_units::{BlockNr, BlockSize, Blocks, TxnId};
use std::collections::BTreeMap;

/// Copies brought home in one go.
const BATCH: usize = 256;

/// Why a log can't be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The superblock of the log is not usable.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// A committed transaction is damaged.
    #[error(
        "transaction {sequence} in block {block} of the log: {reason}; e2fsck -fy drops what can't be replayed"
    )]
    Corrupt {
        /// The transaction.
        sequence: TxnId,
        /// A block of the log.
        block: u32,
        /// What is wrong.
        reason: String,
    },
    /// The device that was named as the journal's is not that.
    #[error("{0}")]
    NotTheJournal(String),
}

/// Where the newest copy of a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LoggedCopy {
    log_block: u32,
    escaped: bool,
}

/// What a log holds.
#[derive(Clone, Debug)]
pub struct Recovery {
    superblock: JournalSuperblock,
    copies: BTreeMap<BlockNr, LoggedCopy>,
    transactions: u32,
    /// The number of the first transaction that is not in the log.
    next: TxnId,
    fast_commits: bool,
}

/// Goes through the log of a volume of `blocks` blocks.
///
/// # Errors
/// What keeps the log from being recovered; see [`RecoveryError`].
pub fn read(
    device: &dyn Device,
    map: &LogMap,
    block_size: BlockSize,
    blocks: Blocks,
) -> Result<Recovery, RecoveryError> {
    if map.run_at(map.superblock()).is_none() {
        return Err(RecoveryError::NotTheJournal(
            "the journal has no blocks: e2fsck -fy makes a new one".into(),
        ));
    }
    let mut first = vec![0; block_size.len()];
    map.read(device, block_size, map.superblock(), &mut first)?;
    let superblock = JournalSuperblock::parse(&first, block_size, map.blocks())?;
    let scan = scan::Scan::new(device, map, &superblock, blocks);
    if superblock.start() == 0 {
        let next = superblock.sequence();
        return Ok(Recovery {
            superblock,
            copies: BTreeMap::new(),
            transactions: 0,
            next,
            fast_commits: false,
        });
    }
    let found = scan.run()?;
    Ok(Recovery {
        copies: found.copies,
        transactions: found.transactions,
        next: found.next,
        fast_commits: found.fast_commits,
        superblock,
    })
}

impl Recovery {
    /// The log's superblock as it was found.
    #[must_use]
    pub const fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// Blocks to bring home.
    #[must_use]
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether there is nothing to bring home.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Transactions in the log that count.
    #[must_use]
    pub const fn transactions(&self) -> u32 {
        self.transactions
    }

    /// Whether the area of fast commits holds some for the transaction that comes after those in the log.
    #[must_use]
    pub const fn has_fast_commits(&self) -> bool {
        self.fast_commits
    }

    /// Writes the copies to their places on `target`, in ascending order, and does not flush.
    ///
    /// # Errors
    /// If the log can't be read or the target not written.
    pub fn apply(&self, device: &dyn Device, map: &LogMap, target: &dyn Device) -> Result<(), RecoveryError> {
        let size = self.superblock.block_size();
        let mut batch: Vec<LoggedBlock> = Vec::with_capacity(BATCH);
        for (nr, copy) in &self.copies {
            let mut bytes = vec![0; size.len()];
            map.read(device, size, copy.log_block, &mut bytes)?;
            if copy.escaped {
                bytes[..4].copy_from_slice(&crate::format::MAGIC.to_be_bytes());
            }
            batch.push((*nr, bytes.into()));
            if batch.len() == BATCH {
                write_sorted(target, size, &batch)?;
                batch.clear();
            }
        }
        Ok(write_sorted(target, size, &batch)?)
    }

    /// Writes a superblock that says that nothing in the log counts any more, and does not flush. What was applied must
    /// be durable.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn mark_clean(&self, device: &dyn Device, map: &LogMap) -> Result<(), RecoveryError> {
        let mut clean = self.superblock.clone();
        clean.set_start(0);
        clean.set_errno(0);
        clean.set_sequence(self.first_new());
        Ok(map.write(device, self.superblock.block_size(), map.superblock(), &clean.render())?)
    }

    /// The number of the first transaction of a new log: beyond all that leftovers in the ring may have by chance, and
    /// beyond that of fast commits.
    fn first_new(&self) -> TxnId {
        self.next.next()
    }

    /// The superblock of a log that begins anew behind this one: with checksums (version 3) or without, with 64-bit block
    /// numbers or without. Its sequence is that of the first transaction.
    #[must_use]
    pub fn fresh_superblock(&self, checksums: bool, wide: bool) -> JournalSuperblock {
        let mut fresh = self.superblock.clone();
        fresh.set_start(0);
        fresh.set_errno(0);
        fresh.set_sequence(self.first_new());
        fresh.set_features(checksums, wide);
        fresh
    }

    /// How the log that was found is written.
    #[must_use]
    pub fn format(&self) -> LogFormat {
        LogFormat::of(&self.superblock)
    }
}

/// A place in a ring, as many blocks later.
fn ahead(ring: (u32, u32), at: u32, by: u64) -> u32 {
    let len = u64::from(ring.1 - ring.0);
    let offset = (u64::from(at - ring.0) + by) % len.max(1);
    ring.0 + hectare_units::low32(offset)
}
