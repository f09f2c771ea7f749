//! The commit: renders typed state into bytes, once, and writes them to the log or their final locations.
//!
//! [`Committer::freeze`] runs with no handle open. It renders inodes into their table blocks, the records of
//! quotas into their files, block bitmaps from the allocator, inode bitmaps and descriptors from the groups,
//! seals every dirty metadata block, and the superblock last. [`Committer::write`] then writes all of it
//! beside new work: to the volume's log ([`crate::stores::volume_journal`]), or straight to the final
//! locations on a volume that has no journal.
//!
//! Rendering inodes is most of that work. If there are many, [`Committer::prepare`] does it before, beside
//! open handles, and the few that were changed since are rendered again.
//!
//! Invariant: a block appears once among the frozen ones, since each kind of metadata has one owner (the
//! block cache, the allocator, the groups, the superblock). Only on a corrupt volume do two structures claim
//! one block, and then nothing of the transaction is written.

use crate::error::{Error, Result};
use crate::state::State;
use crate::stores::volume_journal::VolumeLog;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::time::Timestamp;
use hectare_journal::{Commit, LoggedBlock, write_sorted};
use hectare_units::{BlockNr, GroupNr, TxnId};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Groups whose block bitmaps are kept in memory after a commit, 4 KiB each with blocks of 4 KiB.
const LOADED_GROUPS_MAX: usize = 2048;

/// The least number of dirty inodes to render before handles are kept out: rendering this many takes 30 us.
const PREPARED_INODES_MIN: usize = 64;

/// How often that is repeated at most: while it lasts, other threads dirty more.
const PREPARED_TIMES: u32 = 3;

/// What a commit writes.
pub(crate) struct Frozen {
    blocks: Vec<LoggedBlock>,
    /// Blocks that were freed; only with a log.
    revokes: Vec<BlockNr>,
    /// The superblock, unless there is nothing to write.
    superblock: Option<[u8; hectare_ext4::superblock::SIZE]>,
    /// Errors that it has recorded.
    errors: u32,
    /// When the freeze began, if it is measured.
    began: Option<Instant>,
    /// Keeps cached blocks from eviction until they are written.
    _held: Box<dyn Any + Send>,
}

/// Renders and writes a volume's transactions.
pub(crate) struct Committer {
    state: Arc<State>,
}

impl Committer {
    /// For the transactions of that volume.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

impl Commit for Committer {
    type Frozen = Frozen;
    type Error = Error;

    fn prepare(&self, txn: TxnId) {
        let state = &*self.state;
        for _ in 0..PREPARED_TIMES {
            if state.inodes.dirty_inodes() < PREPARED_INODES_MIN {
                break;
            }
            state.inodes.render_ahead(&state.blocks, &state.sb, txn);
        }
    }

    fn freeze(&self, txn: TxnId) -> Result<Frozen> {
        let state = &*self.state;
        let began = state.options.observer.is_some().then(Instant::now);
        state.inodes.render(&state.blocks, &state.sb, txn);
        if let Some(quotas) = state.quotas() {
            quotas.render(&state.blocks, state.geometry().block_size)?;
        }
        let mut blocks: Vec<LoggedBlock> = Vec::new();
        state.allocator.render_dirty(txn, |group, words, free| {
            blocks.push(state.groups.seal_block_bitmap(group, words, free)?);
            Ok::<(), Error>(())
        })?;
        blocks.extend(state.groups.render()?);
        let cached = state.blocks.freeze()?;
        blocks.extend(cached.iter().map(|block| (block.nr, Arc::clone(&block.bytes))));
        let revokes = state.log.as_ref().map(VolumeLog::take_revokes).unwrap_or_default();
        let found = state.record_findings();
        let (mut superblock, mut errors) = (None, 0);
        let changed = state.superblock_changed.swap(false, Ordering::AcqRel);
        if found || changed || !blocks.is_empty() || !revokes.is_empty() {
            let live = state.refresh_superblock();
            errors = live.error_count();
            let rendered = superblock.insert(live.render(GroupNr::new(0)));
            blocks.extend(state.log.as_ref().map(|log| log.superblock_block(rendered)));
        }
        blocks.sort_unstable_by_key(|(nr, _)| *nr);
        if let Some(pair) = blocks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let what = "two structures claim it";
            return Err(Corrupt::new("a metadata block", Place::Block(pair[0].0), what).into());
        }
        Ok(Frozen { blocks, revokes, superblock, errors, began, _held: Box::new(cached) })
    }

    fn write(&self, frozen: Frozen, _txn: TxnId) -> Result<()> {
        let state = &*self.state;
        state.count_written(frozen.blocks.len() * state.geometry().block_size.len());
        let (flush, began) = (state.flushes.begin(), frozen.began);
        match &state.log {
            Some(log) => frozen.log(log, state.exact_now())?,
            None => frozen.bring_home(state)?,
        }
        // A log that has nothing to write flushes nothing.
        if state.log.is_none() || !frozen.blocks.is_empty() {
            state.flushes.end(flush);
        }
        state.observe_commit(began);
        Ok(())
    }

    fn committed(&self, txn: TxnId) {
        let allocator = &self.state.allocator;
        allocator.committed(txn);
        let excess = allocator.loaded_groups().saturating_sub(LOADED_GROUPS_MAX);
        if excess > 0 {
            allocator.evict(excess);
        }
    }

    fn gathered(&self) -> u32 {
        self.state.gathered()
    }

    fn capacity(&self) -> u32 {
        self.state.log.as_ref().map_or(u32::MAX, VolumeLog::capacity)
    }

    fn aborted(&self, reason: &str) {
        self.state.record_failure(reason);
    }
}

impl Frozen {
    /// Writes the transaction to the log.
    fn log(&self, log: &VolumeLog, now: Timestamp) -> Result<()> {
        let Some(superblock) = &self.superblock else { return Ok(()) };
        log.commit(&self.blocks, &self.revokes, superblock, now)
    }

    /// Writes the blocks to their final locations.
    fn bring_home(&self, state: &State) -> Result<()> {
        write_sorted(&*state.device, state.geometry().block_size, &self.blocks)?;
        if let Some(superblock) = &self.superblock {
            let live = state.live_sb.lock();
            if live.error_count() != self.errors {
                // All changes have ended meanwhile, and the superblock on the device has the reason.
                return Err(Error::Aborted("it was recorded before this commit ended".into()));
            }
            state.device.write_at(SUPERBLOCK_OFFSET, superblock)?;
        }
        // Durable before `committed` gives freed clusters to others, whose data would otherwise be visible
        // through this file's old map after a crash.
        Ok(state.device.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Changes, Creation, OpenOptions, Overwrite, Volume};
    use hectare_device::{Device, MemoryDevice};
    use hectare_ext4::time::Timestamp;
    use hectare_mkfs::FormatOptions;
    use hectare_units::Bytes;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    /// A thread reading an inode holds its data lock, and the host may preempt it there.
    #[test]
    fn a_commit_waits_for_nobody_who_looks_at_an_inode() {
        let device = Arc::new(MemoryDevice::new(Bytes::mib(8)));
        let shared = || Arc::clone(&device) as Arc<dyn Device>;
        let format = FormatOptions::default();
        // Only what is requested here is committed.
        let options = OpenOptions { commit_interval: None, ..OpenOptions::default() };
        let volume = Volume::format(shared(), &format, Overwrite::Refuse, options).unwrap();
        volume.write_file("file", &[1; 8192], Creation::default()).unwrap();
        let file = volume.open_file("file").unwrap();
        // Long ago: the clock of changes may stand still for longer than all that follows takes.
        let before = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };
        volume.change(file.inode(), &Changes { mtime: Some(before), ..Changes::default() }).unwrap();
        volume.sync().unwrap();
        let inode = volume.core().state.inode(file.inode()).unwrap();
        let (looking, looks) = channel();
        let (go_on, told) = channel();
        let reader = Arc::clone(&inode);
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let _held = reader.get();
                looking.send(()).unwrap();
                told.recv_timeout(Duration::from_secs(60))
            });
            looks.recv().unwrap();
            file.write_at(0, &[2; 4096]).unwrap();
            volume.sync().unwrap();
            go_on.send(()).unwrap();
            reader.join().unwrap().expect("the commit waited");
        });
        let on_device = || {
            let seen = Volume::open(shared(), OpenOptions::read_only()).unwrap();
            seen.metadata("file").unwrap().mtime
        };
        let written = on_device();
        assert!(written > before, "{written:?} {before:?}");
        assert!(inode.touched().is_some(), "the lock was held");
        volume.sync().unwrap();
        assert!(inode.touched().is_none());
        assert_eq!((on_device(), volume.metadata("file").unwrap().mtime), (written, written));
    }
}
