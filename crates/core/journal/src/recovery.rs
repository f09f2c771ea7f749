//! Recovery: finds the logged changes that the volume does not have yet.
//!
//! [`read`] scans a journal and builds a [`Recovery`]: for each block of the volume, where its newest
//! committed copy lies in the log. The volume is not touched. [`Recovery::apply`] then writes the copies to
//! their final locations; or a reader lays them over the volume, block by block ([`Recovery::read_block`]).
//!
//! Three steps, as in every implementation of jbd2:
//! - *Scan.* From the superblock's start, transaction after transaction by sequence number, until a block
//!   is not the expected one. Only transactions with a good commit block count.
//! - *Replay.* The newest copy of each block counts, and blocks outside the volume are refused.
//! - *Revoke.* A copy is dropped if its block was revoked in the same transaction or a later one. Only the
//!   newest copies have to be checked: if one is revoked, so are all older ones.
//!
//! Then the checksums of the copies that are left are verified, and the fast commits are read.
//!
//! Invariants: applying is idempotent, since the copies stay in the log; it may be interrupted anywhere and
//! restarted until the clean superblock is written. A `Recovery` holds places, not contents: its memory
//! is bounded by the log's length, which is bounded by the device's.
//!
//! Hazards:
//! - the log is read again when a `Recovery` is used, so it must not be written before;
//! - what lies behind the log's end is left from its earlier turns and looks like transactions; only the
//!   sequence numbers (and, where a checksum is wrong, the commit times) distinguish the old from the new;
//! - a transaction whose checksums are wrong but whose commit block is there means damage, not a crash, and
//!   is an error; with `async_commit` a crash may leave that at the very end, where it is the end.
//!
//! What it is not: it flushes nothing, repairs nothing, applies no fast commits and handles no orphans.

mod apply;
mod error;
mod external;
mod map;
mod reader;
mod replay;
mod scan;

pub use error::RecoveryError;
pub use external::{external_uuid, uuid_text};
pub use map::{LogMap, LogRun};

use crate::format::{FastCommit, FastCommits, JournalSuperblock, SUPERBLOCK_LEN};
use hectare_device::Device;
use hectare_ext4::{FormatError, Unsupported};
use hectare_units::{BlockNr, Blocks, Bytes, LogicalBlock, TxnId, u64_of};
use reader::LogReader;
use std::collections::BTreeMap;

/// The most bytes of fast commits that are kept in memory. The largest area that mke2fs makes has 640 MiB
/// (a 64th of 10,240,000 blocks of 4 KiB).
const FAST_COMMITS_MAX: Bytes = Bytes::gib(1);

/// Where the newest committed copy of a block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedCopy {
    /// The block of the log.
    pub at: LogicalBlock,
    /// Whether its first word is the journal's magic number in truth, and zero in the log.
    pub escaped: bool,
    /// The transaction it belongs to.
    pub txn: TxnId,
    /// Its checksum, from its tag.
    checksum: u32,
}

/// What a journal says that its volume does not have yet.
#[derive(Clone, Debug)]
pub struct Recovery {
    superblock: JournalSuperblock,
    map: LogMap,
    blocks: BTreeMap<BlockNr, LoggedCopy>,
    end: TxnId,
    head: LogicalBlock,
    fast_commits: Vec<FastCommit>,
}

/// Reads a journal whose blocks `map` finds on `device`. `volume` is the number of blocks of the volume that
/// the journal belongs to.
///
/// # Errors
/// If reading fails, the superblock is broken or uses unknown features, a transaction is damaged (the error
/// names it and the log block), or a copy belongs to a block that the volume does not have.
pub fn read(device: &dyn Device, map: &LogMap, volume: Blocks) -> Result<Recovery, RecoveryError> {
    read_log(device, map, volume, None)
}

/// How much of a damaged log is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Damaged {
    /// The transaction before which the log is taken to end.
    pub end: Option<TxnId>,
}

/// Like [`read`], for what is left of a damaged log: copies that are wrong are left out, and so is everything
/// from a transaction on. Fast commits, which come after all transactions, count only if no transaction is left
/// out and they can be read.
///
/// # Errors
/// As [`read`], for what is not left out.
pub fn read_damaged(
    device: &dyn Device,
    map: &LogMap,
    volume: Blocks,
    damaged: Damaged,
) -> Result<Recovery, RecoveryError> {
    read_log(device, map, volume, Some(damaged))
}

fn read_log(
    device: &dyn Device,
    map: &LogMap,
    volume: Blocks,
    damaged: Option<Damaged>,
) -> Result<Recovery, RecoveryError> {
    let end = damaged.and_then(|damaged| damaged.end);
    let reader = LogReader::new(device, map);
    let superblock = reader.superblock()?;
    let head = superblock.head().unwrap_or(superblock.first());
    let clean = Recovery {
        end: superblock.sequence(),
        head,
        map: map.clone(),
        blocks: BTreeMap::new(),
        fast_commits: Vec::new(),
        superblock,
    };
    let Some(start) = clean.superblock.start() else { return Ok(clean) };
    let scanned = scan::scan(&reader, &clean.superblock, start, end)?;
    let blocks = replay::newest_copies(&reader, &clean.superblock, &scanned, volume, damaged.is_some())?;
    let fast_commits = if end.is_some() {
        Vec::new()
    } else {
        let read = read_fast_commits(&reader, &clean.superblock, scanned.end);
        if damaged.is_some() { read.unwrap_or_default() } else { read? }
    };
    Ok(Recovery { blocks, end: scanned.end, head: scanned.head, fast_commits, ..clean })
}

fn read_fast_commits(
    reader: &LogReader<'_>,
    superblock: &JournalSuperblock,
    expected: TxnId,
) -> Result<Vec<FastCommit>, RecoveryError> {
    let mut commits = FastCommits::new(expected);
    let Some(area) = superblock.fast_commit_area() else { return Ok(Vec::new()) };
    let mut block = reader.buffer();
    let most = FAST_COMMITS_MAX.get() >> superblock.block_size().shift();
    for (taken, at) in (area.start.get()..area.end.get()).enumerate() {
        if u64_of(taken) >= most {
            let text = format!("the journal has more than {FAST_COMMITS_MAX} bytes of fast commits");
            return Err(FormatError::from(Unsupported(text)).into());
        }
        reader.read(LogicalBlock::new(at), &mut block)?;
        if !commits.feed(&block).map_err(FormatError::from)? {
            break;
        }
    }
    Ok(commits.finish())
}

impl Recovery {
    /// Whether the journal is not clean: the volume is to be recovered, even if that should change no block.
    #[must_use]
    pub fn needed(&self) -> bool {
        self.superblock.start().is_some()
    }

    /// Whether replaying would change anything: there are logged blocks, or fast commits.
    #[must_use]
    pub fn holds_something(&self) -> bool {
        !self.blocks.is_empty() || !self.fast_commits.is_empty()
    }

    /// The newest committed copy of each block that has one.
    #[must_use]
    pub const fn blocks(&self) -> &BTreeMap<BlockNr, LoggedCopy> {
        &self.blocks
    }

    /// The superblock as it was read.
    #[must_use]
    pub const fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// Where the journal lies.
    #[must_use]
    pub const fn map(&self) -> &LogMap {
        &self.map
    }

    /// The number for the first transaction after recovery: one is left out, so that fast commits made after
    /// the last transaction of the log never seem to be of a new one.
    #[must_use]
    pub fn next_sequence(&self) -> TxnId {
        self.end.next()
    }

    /// The number of the transaction that the fast commits are of, and that none in the log has yet.
    #[must_use]
    pub const fn running_sequence(&self) -> TxnId {
        self.end
    }

    /// The block of the log behind its last committed transaction.
    #[must_use]
    pub const fn head(&self) -> LogicalBlock {
        self.head
    }

    /// The fast commits made after the last transaction of the log, in order, to be applied after it.
    #[must_use]
    pub fn fast_commits(&self) -> &[FastCommit] {
        &self.fast_commits
    }

    /// The error that aborted the journal, a negative `errno` value; 0 for none. Recovery ignores it, but
    /// the volume is to be marked as having errors.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.superblock.errno()
    }

    /// The superblock that says that no transaction is to be replayed, but that fast commits are: for a damaged log
    /// whose copies were put in their places.
    #[must_use]
    pub fn replayed_superblock(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut superblock = self.superblock.clone();
        superblock.set_tail(self.end, self.head);
        superblock.render()
    }

    /// The superblock that says that everything is in its place, to be written at
    /// [`superblock_offset`](Self::superblock_offset) once the volume was flushed. The journal's error is
    /// cleared: the volume must have recorded it by then.
    #[must_use]
    pub fn clean_superblock(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut superblock = self.superblock.clone();
        superblock.set_clean(if self.needed() { self.next_sequence() } else { self.end });
        superblock.set_head(self.head);
        superblock.set_errno(0);
        superblock.render()
    }

    /// Where on the journal's device its superblock lies.
    #[must_use]
    pub fn superblock_offset(&self) -> Bytes {
        self.map.superblock_offset()
    }
}
