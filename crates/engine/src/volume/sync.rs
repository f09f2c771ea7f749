//! Decides when changes become durable: on request, by amount, for lack of space, or by age.
//!
//! Hazard: all of this waits for commits, so never call it with a handle open or a data lock held.
//! [`crate::commit`] makes the commits.

use super::{Inner, Shared, Volume, aborted};
use crate::error::Result;
use crate::stores::inode_cache::CachedInode;
use crate::stores::volume_journal::VolumeLog;
use hectare_units::{InodeNr, TxnId, low32, u64_of};

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

/// How often space has become free, as [`Volume::seen`] returned it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    commit: TxnId,
    discards: u64,
}

impl Volume {
    /// Writes everything changed so far and flushes the device.
    ///
    /// # Errors
    /// The first write that failed, now, or earlier where buffered bytes of a file were lost since the volume
    /// was last synced by any caller; open files report that, too.
    pub fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let placed = self.place_all();
        self.inner.sync()?;
        placed
    }

    /// Makes an inode durable: its changes, those of the names that lead to it where they were changed with
    /// it, and its data. Other inodes' changes in the same transaction come along; later ones don't.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn sync_inode(&self, nr: InodeNr) -> Result<()> {
        let inode = self.inode(nr)?;
        let placed = if inode.delayed().end().is_some() { self.place_waiting(&inode) } else { Ok(()) };
        self.sync_cached(&inode, false)?;
        placed
    }

    /// Like [`Self::sync_inode`], for an inode in memory. With `data_only`, the times of overwrites may be
    /// left out.
    pub(crate) fn sync_cached(&self, inode: &CachedInode, data_only: bool) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_takes_changes()?;
        let running = self.inner.journal.running();
        // In this order: a commit that takes the mark records itself first.
        let touched = !data_only && inode.touched().is_some();
        let changed = inode.changed_in().unwrap_or(running);
        self.inner.sync_through(if touched { running } else { changed })
    }

    /// Called after an operation, with nothing locked: has pending changes committed if they are many.
    pub(crate) fn relieve(&self) -> Result<()> {
        let bytes = self.blocks.dirty_blocks().saturating_mul(self.geometry().block_size.len());
        let inodes = self.inodes.dirty_inodes();
        if bytes < DIRTY_BYTES_SOME && inodes < DIRTY_INODES_SOME {
            return Ok(());
        }
        let many = bytes >= DIRTY_MANY * DIRTY_BYTES_SOME || inodes >= DIRTY_MANY * DIRTY_INODES_SOME;
        match self.inner.background.get() {
            Some(background) if !many => background.ask_for_commit(),
            _ => self.inner.commit()?,
        }
        Ok(())
    }

    /// Like [`Self::relieve`], after an operation that freed space: commits before so much space is pending
    /// that other requests would have to leave their goals for lack of it.
    pub(crate) fn relieve_frees(&self) -> Result<()> {
        let counts = self.allocator.counts();
        let bytes = counts.pending.get().saturating_mul(self.geometry().cluster_bytes());
        if bytes >= PENDING_BYTES_MIN && counts.pending.get() > counts.available.get() / PENDING_SHARE {
            self.inner.commit()?;
        }
        self.relieve()
    }

    /// Called before an attempt that may fail for lack of space, for [`Self::reclaim`].
    pub(crate) fn seen(&self) -> Seen {
        let discards = self.discards.done();
        Seen { commit: self.inner.journal.committed(), discards }
    }

    /// Commits, so that freed space becomes free, and places buffered bytes, which returns excess claims.
    /// Returns whether a retry may succeed: something was pending, or has become free since `seen`.
    pub(crate) fn reclaim(&self, seen: Seen) -> Result<bool> {
        let placed = self.place_for_space();
        if self.allocator.counts().pending.is_zero() {
            self.discards.wait();
            return Ok(placed || self.seen() != seen);
        }
        self.inner.commit()?;
        Ok(true)
    }
}

impl Shared {
    /// Metadata blocks that the running transaction would write now, or a few more.
    pub(crate) fn gathered(&self) -> u32 {
        // Each group has a bitmap, and a descriptor whose block may be dirty for it alone.
        let bitmaps = self.allocator.dirty_groups().saturating_mul(2);
        let cached = low32(u64_of(self.blocks.dirty_blocks() + self.inodes.dirty_inodes()));
        let revokes = self.log.as_ref().map_or(0, VolumeLog::gathered_revokes);
        bitmaps.saturating_add(self.groups.dirty_blocks()).saturating_add(cached).saturating_add(revokes)
    }
}

impl Inner {
    /// Ends all changes if corruption was found that requires it.
    pub(super) fn react(&self) -> Result<()> {
        match self.shared.findings.stop() {
            Some(reason) => Err(aborted(self.journal.abort(reason))),
            None => Ok(()),
        }
    }

    pub(crate) fn commit(&self) -> Result<()> {
        self.react()?;
        self.journal.commit().map_err(aborted)?;
        self.shared.discard_freed();
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.sync_through(self.journal.running())
    }

    /// Makes everything up to a transaction durable, and all file data written so far.
    fn sync_through(&self, txn: TxnId) -> Result<()> {
        self.react()?;
        let flushes = &self.shared.flushes;
        let before = flushes.now();
        self.journal.commit_through(txn).map_err(aborted)?;
        self.shared.discard_freed();
        if flushes.since(before) {
            return Ok(());
        }
        let flush = flushes.begin();
        // It is unknown what a failed flush has kept: nothing may build on it.
        self.shared.device.flush().map_err(|error| aborted(self.journal.abort(error)))?;
        flushes.end(flush);
        Ok(())
    }

    /// One round of the volume's thread.
    pub(crate) fn work(&self) -> Result<()> {
        if self.shared.gathered() > 0 || self.shared.findings.is_waiting() {
            self.commit()?;
        }
        match &self.shared.log {
            Some(log) if log.wants_checkpoint() => {
                log.checkpoint().map_err(|error| aborted(self.journal.abort(error)))
            }
            _ => Ok(()),
        }
    }
}
