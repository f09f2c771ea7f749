//! The checkpoint: holds committed blocks that are in the log and not yet in their final locations.
//!
//! [`Pending`] holds the newest committed bytes of each such block. Until they are checkpointed, the device
//! has old bytes there, so metadata is read through a [`MetadataView`], which returns the pending bytes
//! instead; caches may drop what they like. A *checkpoint* writes blocks to their final locations, flushes,
//! and lets the log's tail move; the order is what makes it safe.
//!
//! Hazards and invariants:
//! - a block that is logged again belongs to the newer transaction from then on, and no longer holds up the
//!   older one: if the newer one is durable, so is what the older one said of the block;
//! - a freed block must never be checkpointed once its place may be reused: the commit that frees it removes
//!   it ([`Pending::revoke`]) and waits for a checkpoint that is just writing it;
//! - a transaction leaves the log only after all blocks it holds up are in place *and flushed*.
//!
//! What it is not: a cache. It holds what it must and nothing else.

use crate::log::{Log, LogError, Logged, LoggedBlock};
use crate::sync::{AtomicUsize, Mutex, Ordering, RwLock};
use hectare_device::{Device, Result as DeviceResult};
use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, TxnId, index_of, u64_of};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

/// Blocks checkpointed in one go, between which commits may pass.
const BATCH: usize = 256;

struct Entry {
    bytes: Arc<[u8]>,
    /// The newest transaction that logged the block.
    sequence: TxnId,
}

/// A transaction in the log, and how many blocks are pending for it.
struct LoggedTransaction {
    logged: Logged,
    blocks: usize,
}

/// The blocks that wait for a checkpoint.
pub struct Pending {
    device: Arc<dyn Device>,
    block_size: BlockSize,
    blocks: RwLock<HashMap<BlockNr, Entry>>,
    /// As many as `blocks` has; read without its lock.
    count: AtomicUsize,
    /// The newest transaction in the log that has each block; checkpointed or not, a recovery would write it.
    logged: Mutex<BTreeMap<BlockNr, TxnId>>,
    /// In the order of the log.
    transactions: Mutex<VecDeque<LoggedTransaction>>,
    /// Held while a batch is checkpointed.
    writing: Mutex<()>,
    /// Held by a checkpoint as a whole.
    checkpoint: Mutex<()>,
}

impl Pending {
    /// Nothing pending on a device.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, block_size: BlockSize) -> Self {
        Self {
            device,
            block_size,
            blocks: RwLock::default(),
            count: AtomicUsize::new(0),
            logged: Mutex::default(),
            transactions: Mutex::default(),
            writing: Mutex::default(),
            checkpoint: Mutex::default(),
        }
    }

    /// Blocks pending.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether everything is in its final location.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pending blocks are looked up before the device is read, so that one checkpointed meanwhile is seen
    /// in one of the two places. `buf` is not empty.
    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> DeviceResult<()> {
        let size = self.block_size;
        let first = at.get() >> size.shift();
        let last = (at.get().saturating_add(u64_of(buf.len()) - 1)) >> size.shift();
        let found: Vec<(u64, Arc<[u8]>)> = {
            let pending = self.blocks.read();
            let one = |nr| pending.get(&BlockNr::new(nr)).map(|entry| (nr, Arc::clone(&entry.bytes)));
            (first..=last).filter_map(one).collect()
        };
        if u64_of(found.len()) < last - first + 1 {
            self.device.read_at(at, buf)?;
        }
        found.iter().for_each(|(nr, bytes)| lay_over(buf, at, BlockNr::new(*nr), bytes));
        Ok(())
    }

    /// Whether the log may hold a copy of a block that a recovery would write to its final location.
    #[must_use]
    pub fn is_logged(&self, nr: BlockNr) -> bool {
        self.logged.lock().contains_key(&nr)
    }

    /// Logs a transaction and takes over its blocks, and revokes and drops those it freed. Room is made
    /// first if there is not enough. `blocks` are in ascending order.
    ///
    /// A block may be both, freed and then used and logged again: a cluster of several blocks stays with its
    /// file when some of them are freed. Only this copy of it counts then, and it must not be revoked: a
    /// recovery would pass over it as over the older ones.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Self::checkpoint`].
    pub fn commit(
        &self,
        log: &Mutex<Log>,
        blocks: &[LoggedBlock],
        freed: &[BlockNr],
        time: Duration,
    ) -> Result<(), LogError> {
        let revokes: &[BlockNr] = &not_logged(freed, blocks);
        let (keep, room) = {
            let log = log.lock();
            let need = log.needed(blocks.len(), revokes.len());
            (log.kept_beside(need), log.free() >= need)
        };
        if !room {
            self.checkpoint(log, keep)?;
        }
        // Locked until the blocks are taken over: a checkpoint that finds nothing pending moves the tail
        // behind everything.
        let mut log = log.lock();
        let logged = log.append(blocks, revokes, time)?;
        {
            let mut copies = self.logged.lock();
            for nr in revokes {
                copies.remove(nr);
            }
            copies.extend(blocks.iter().map(|(nr, _)| (*nr, logged.sequence)));
        }
        self.revoke(revokes);
        self.add(logged, blocks);
        Ok(())
    }

    fn add(&self, logged: Logged, blocks: &[LoggedBlock]) {
        let mut pending = self.blocks.write();
        let mut transactions = self.transactions.lock();
        for (nr, bytes) in blocks {
            let entry = Entry { bytes: Arc::clone(bytes), sequence: logged.sequence };
            if let Some(older) = pending.insert(*nr, entry) {
                let_go(&mut transactions, older.sequence);
            }
        }
        transactions.push_back(LoggedTransaction { logged, blocks: blocks.len() });
        self.count.store(pending.len(), Ordering::Relaxed);
    }

    /// Removes blocks that were freed; returns when none of them is being checkpointed.
    fn revoke(&self, revokes: &[BlockNr]) {
        if self.is_empty() || revokes.is_empty() {
            return;
        }
        let _not_writing = self.writing.lock();
        let mut pending = self.blocks.write();
        let mut transactions = self.transactions.lock();
        for nr in revokes {
            if let Some(entry) = pending.remove(nr) {
                let_go(&mut transactions, entry.sequence);
            }
        }
        self.count.store(pending.len(), Ordering::Relaxed);
    }

    /// Checkpoints the blocks that hold up the oldest transactions, so that at most `keep` log blocks stay in
    /// use, flushes, and moves the log's tail. Others may add meanwhile.
    ///
    /// # Errors
    /// The first write or flush that failed; the log then still has everything.
    pub fn checkpoint(&self, log: &Mutex<Log>, keep: u32) -> Result<(), LogError> {
        let _one_at_a_time = self.checkpoint.lock();
        if let Some(last) = self.last_to_go(keep) {
            let batch = self.held_up_to(last);
            for part in batch.chunks(BATCH) {
                self.write_home(part)?;
            }
            if !batch.is_empty() {
                self.device.flush()?;
            }
            self.settle(&batch);
        }
        let gone = self.drop_finished();
        if gone {
            // The tail is read with the log locked, so that no older one is written after a newer one.
            let mut log = log.lock();
            let oldest = self.transactions.lock().front().map(|held| held.logged);
            log.move_tail(oldest)?;
            let first = oldest.map_or(log.next(), |oldest| oldest.sequence);
            self.logged.lock().retain(|_, sequence| !first.is_after(*sequence));
        }
        Ok(())
    }

    /// The newest transaction that must leave the log if no more than `keep` blocks of it are to be in use.
    fn last_to_go(&self, keep: u32) -> Option<TxnId> {
        let transactions = self.transactions.lock();
        let mut used: u32 = transactions.iter().map(|held| held.logged.len).sum();
        let mut last = None;
        for held in &*transactions {
            if used <= keep {
                break;
            }
            used -= held.logged.len;
            last = Some(held.logged.sequence);
        }
        last
    }

    /// The blocks pending for transactions up to one, in the order of the device.
    fn held_up_to(&self, last: TxnId) -> Vec<(BlockNr, TxnId)> {
        let pending = self.blocks.read();
        let mut batch: Vec<_> = pending
            .iter()
            .filter(|(_, entry)| !entry.sequence.is_after(last))
            .map(|(nr, entry)| (*nr, entry.sequence))
            .collect();
        batch.sort_unstable_by_key(|(nr, _)| *nr);
        batch
    }

    /// Checkpoints blocks that are still pending for the same transaction.
    fn write_home(&self, part: &[(BlockNr, TxnId)]) -> Result<(), LogError> {
        let _writing = self.writing.lock();
        let blocks: Vec<LoggedBlock> = {
            let pending = self.blocks.read();
            let same = |(nr, sequence): &(BlockNr, TxnId)| {
                let entry = pending.get(nr).filter(|entry| entry.sequence == *sequence)?;
                Some((*nr, Arc::clone(&entry.bytes)))
            };
            part.iter().filter_map(same).collect()
        };
        Ok(write_sorted(&*self.device, self.block_size, &blocks)?)
    }

    /// Removes the blocks that are now in their final locations.
    fn settle(&self, batch: &[(BlockNr, TxnId)]) {
        let mut pending = self.blocks.write();
        let mut transactions = self.transactions.lock();
        for (nr, sequence) in batch {
            if pending.get(nr).is_some_and(|entry| entry.sequence == *sequence) {
                pending.remove(nr);
                let_go(&mut transactions, *sequence);
            }
        }
        self.count.store(pending.len(), Ordering::Relaxed);
    }

    /// Forgets the oldest transactions that nothing is pending for; whether there were any.
    fn drop_finished(&self) -> bool {
        let mut transactions = self.transactions.lock();
        let before = transactions.len();
        while transactions.front().is_some_and(|held| held.blocks == 0) {
            transactions.pop_front();
        }
        transactions.len() < before
    }
}

/// The blocks among those that a transaction freed that it does not log.
fn not_logged(freed: &[BlockNr], blocks: &[LoggedBlock]) -> Vec<BlockNr> {
    let is_logged = |nr: &BlockNr| blocks.binary_search_by_key(nr, |(logged, _)| *logged).is_ok();
    freed.iter().filter(|nr| !is_logged(nr)).copied().collect()
}

/// One block less holds up a transaction.
fn let_go(transactions: &mut VecDeque<LoggedTransaction>, sequence: TxnId) {
    let Some(oldest) = transactions.front() else { return };
    // They follow each other without a gap.
    let index = sequence.get().wrapping_sub(oldest.logged.sequence.get());
    if let Some(held) = transactions.get_mut(hectare_units::usize_of(index)) {
        held.blocks = held.blocks.saturating_sub(1);
    }
}

/// Writes blocks to their places, neighbours together. They are in ascending order.
///
/// # Errors
/// The first write that failed.
pub fn write_sorted(device: &dyn Device, size: BlockSize, blocks: &[LoggedBlock]) -> DeviceResult<()> {
    let mut rest = blocks;
    while let Some((first, _)) = rest.first() {
        let (run, after) = rest.split_at(run_length(rest));
        let parts: Vec<IoSlice<'_>> = run.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
        device.write_all_at(first.offset(size), &parts)?;
        rest = after;
    }
    Ok(())
}

/// How many of the first blocks lie next to each other.
fn run_length(blocks: &[LoggedBlock]) -> usize {
    let follows = |pair: &[LoggedBlock]| pair[1].0.checked_since(pair[0].0) == Some(Blocks::new(1));
    1 + blocks.windows(2).take(BATCH - 1).take_while(|pair| follows(pair)).count()
}

/// Puts a block's bytes over what was read from byte `at` of a device, as far as they touch.
pub fn lay_over(read: &mut [u8], at: Bytes, nr: BlockNr, block: &[u8]) {
    let start = nr.get().saturating_mul(u64_of(block.len()));
    let skip = index_of(at.get().saturating_sub(start)).min(block.len());
    let into = index_of(start.saturating_sub(at.get())).min(read.len());
    let len = (block.len() - skip).min(read.len() - into);
    read[into..into + len].copy_from_slice(&block[skip..skip + len]);
}

/// The metadata of a volume as it will be after a full checkpoint: pending blocks shown in their places.
#[derive(Clone)]
pub struct MetadataView {
    device: Arc<dyn Device>,
    /// None where there is no journal, and every committed block is in place.
    pending: Option<Arc<Pending>>,
}

impl MetadataView {
    /// The content of a device for which nothing is ever pending.
    #[must_use]
    pub const fn plain(device: Arc<dyn Device>) -> Self {
        Self { device, pending: None }
    }

    /// The content of the device that blocks are pending for, with those in their places.
    #[must_use]
    pub fn with_pending(pending: Arc<Pending>) -> Self {
        Self { device: Arc::clone(&pending.device), pending: Some(pending) }
    }

    /// Fills `buf` from byte `at` of the device on.
    ///
    /// # Errors
    /// If the device below fails, or the range lies outside it.
    pub fn read_at(&self, at: Bytes, buf: &mut [u8]) -> DeviceResult<()> {
        match &self.pending {
            Some(pending) if !pending.is_empty() && !buf.is_empty() => pending.read_at(at, buf),
            _ => self.device.read_at(at, buf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_laid_over_what_was_read_of_it() {
        // Block 2 of four bytes is bytes 8 to 12 of the device.
        let laid = |at: u64, len: usize| {
            let mut read = vec![0; len];
            lay_over(&mut read, Bytes::new(at), BlockNr::new(2), &[1, 2, 3, 4]);
            read
        };
        assert_eq!(laid(6, 8), [0, 0, 1, 2, 3, 4, 0, 0]);
        assert_eq!(laid(9, 2), [2, 3]);
        assert_eq!(laid(10, 4), [3, 4, 0, 0]);
        assert_eq!(laid(4, 5), [0, 0, 0, 0, 1]);
        assert_eq!((laid(0, 8), laid(12, 3), laid(50, 2)), (vec![0; 8], vec![0; 3], vec![0; 2]));
    }
}
