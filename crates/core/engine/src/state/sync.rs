//! Decides when changes become durable: on request, by amount, for lack of space, or by age.
//!
//! Hazard: all of this waits for commits, so never call it with a handle open or a data lock held.
//! [`crate::state::commit`] makes the commits.

use crate::error::{Error, Result};
use crate::options::Synchronous;
use crate::state::{Core, aborted};
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::inode::InodeFlags;
use hectare_journal::Aborted;
use hectare_units::TxnId;
use std::sync::Arc;

/// Bytes of dirty metadata blocks at which the volume's thread is asked to commit: few, since all of them are
/// rendered while no handle can start.
const DIRTY_BYTES_SOME: usize = 4 << 20;

/// The same limit for dirty inodes.
const DIRTY_INODES_SOME: usize = 4096;

/// At this multiple, an operation commits itself.
const DIRTY_MANY: usize = 8;

/// Pending bytes below which nothing commits to free them.
const PENDING_BYTES_MIN: u64 = 64 << 20;

/// The share of the available space that pending space may be: a quarter.
const PENDING_SHARE: u64 = 4;

/// How often space has become free, as [`crate::state::Core::seen`] returned it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    commit: TxnId,
    discards: u64,
}

impl Core {
    /// Makes an inode durable if it has to be after every change (`SYNC`). Called with nothing locked.
    pub(crate) fn sync_if_asked(&self, inode: &Arc<CachedInode>) -> Result<()> {
        let asked = self.state.syncs_changes(inode.get().flags);
        if asked { self.sync_cached(inode, false) } else { Ok(()) }
    }

    /// Makes names durable where they have to be after every change (`SYNC`, `DIRSYNC`). Called with nothing
    /// locked.
    pub(crate) fn sync_names_if_asked(&self, dirs: &[&Arc<CachedInode>]) -> Result<()> {
        let of_all = self.state.options.synchronous >= Synchronous::Names;
        let asks = |dir: &&&Arc<CachedInode>| {
            of_all || dir.get().flags.intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC)
        };
        dirs.iter().filter(asks).try_for_each(|dir| self.sync_cached(dir, false))
    }

    /// Like [`crate::Volume::sync_inode`], for an inode in memory. With `data_only`, the times of overwrites
    /// may be left out.
    pub(crate) fn sync_cached(&self, inode: &Arc<CachedInode>, data_only: bool) -> Result<()> {
        if self.state.read_only {
            return Ok(());
        }
        self.check_takes_changes()?;
        let running = self.journal.running();
        // In this order: a commit that takes the mark records itself first.
        let touched = !data_only && inode.touched().is_some();
        let changed = inode.changed_in().unwrap_or(running);
        let txn = if touched { running } else { changed };
        self.flushed(|| self.journal.commit_through(txn))
    }

    /// Stamps a file as written to now, without a handle; the time waits for the next commit. Commits if the
    /// transaction has no room for the inode. Returns whether it waits since now. Called under the operation
    /// lock, with nothing else locked.
    pub(crate) fn touch(&self, inode: &Arc<CachedInode>) -> Result<bool> {
        let Some(owed) = inode.touch(self.state.now(), &self.state.inodes) else { return Ok(false) };
        self.journal.settle(owed).map_err(aborted)?;
        Ok(true)
    }

    /// Called after an operation, with nothing locked: has pending changes committed if they are many.
    pub(crate) fn relieve(&self) -> Result<()> {
        let bytes = self.state.blocks.dirty_blocks().saturating_mul(self.state.geometry().block_size.len());
        let inodes = self.state.inodes.dirty_inodes();
        if bytes < DIRTY_BYTES_SOME && inodes < DIRTY_INODES_SOME {
            return Ok(());
        }
        let many = bytes >= DIRTY_MANY * DIRTY_BYTES_SOME || inodes >= DIRTY_MANY * DIRTY_INODES_SOME;
        match self.background.get() {
            Some(background) if !many => background.ask_for_commit(),
            _ => self.commit()?,
        }
        Ok(())
    }

    /// Like [`crate::state::Core::relieve`], after an operation that freed space: commits before so much
    /// space is pending that other requests would have to leave their goals for lack of it.
    pub(crate) fn relieve_frees(&self) -> Result<()> {
        let counts = self.state.allocator.counts();
        let bytes = counts.pending.get().saturating_mul(self.state.geometry().cluster_bytes());
        if bytes >= PENDING_BYTES_MIN && counts.pending.get() > counts.available.get() / PENDING_SHARE {
            self.commit()?;
        }
        self.relieve()
    }

    /// Called before an attempt that may fail for lack of space, for [`crate::data::reclaim::reclaim`].
    pub(crate) fn seen(&self) -> Seen {
        let discards = self.state.discards.done();
        Seen { commit: self.journal.committed(), discards }
    }

    /// Whether an operation may have failed for want of space: where groups can't be loaded, what is wrong with one
    /// of them is the reason that is given.
    pub(crate) fn may_lack_space(&self, error: &Error) -> bool {
        match error {
            Error::NoSpace => true,
            Error::Corrupt(_) | Error::Device(_) => self.state.allocator.has_set_aside(),
            _ => false,
        }
    }

    /// Commits everything changed so far, and discards what was freed.
    pub(crate) fn commit(&self) -> Result<()> {
        self.react()?;
        self.journal.commit().map_err(aborted)?;
        self.state.discard_freed();
        Ok(())
    }

    /// Makes everything changed so far durable, and all file data written so far.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let txn = self.journal.running();
        self.flushed(|| self.journal.commit_through(txn))
    }

    /// Commits, and makes all file data written so far durable.
    #[track_caller]
    fn flushed(&self, commit: impl FnOnce() -> std::result::Result<(), Aborted>) -> Result<()> {
        self.react()?;
        let flushes = &self.state.flushes;
        let before = flushes.now();
        commit().map_err(aborted)?;
        self.state.discard_freed();
        if flushes.since(before) {
            return Ok(());
        }
        let flush = flushes.begin();
        // It is unknown what a failed flush has kept: nothing may build on it.
        self.state.device.flush().map_err(|error| aborted(self.journal.abort(error)))?;
        flushes.end(flush);
        Ok(())
    }

    /// One round of the volume's thread.
    pub(crate) fn work(&self) -> Result<()> {
        if self.state.gathered() > 0 || self.state.findings.is_waiting() {
            self.commit()?;
        }
        match &self.state.log {
            Some(log) if log.wants_checkpoint() => {
                log.checkpoint().map_err(|error| aborted(self.journal.abort(error)))
            }
            _ => Ok(()),
        }
    }
}
