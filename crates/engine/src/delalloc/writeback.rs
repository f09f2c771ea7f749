//! Writeback: places buffered bytes, for syncs and closes, for age and for want of memory or space.

use crate::error::{Error, Result};
use crate::file::{LARGE_FILE, Source};
use crate::space::{Room, cluster_sectors};
use crate::stores::appended::Buffer;
use crate::stores::inode_cache::CachedInode;
use crate::unwinding::Unwinding;
use crate::volume::Volume;
use hectare_alloc::{Request, Reservation};
use hectare_journal::Handle;
use hectare_units::{BlockNr, Clusters, GroupNr, InodeNr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

impl Volume {
    /// Places a file's buffered bytes, before its map is read or changed. The caller holds the operation lock
    /// exclusively.
    ///
    /// # Errors
    /// The first write that failed; what could not be written is lost. The next fsync or close of the file,
    /// and the next sync of the volume, report it as well.
    pub(crate) fn place_locked(&self, inode: &Arc<CachedInode>) -> Result<()> {
        if inode.delayed().end().is_none() {
            return Ok(());
        }
        let Some(buffer) = self.take_buffer(inode) else { return Ok(()) };
        let _lost = Unwinding::watch(self, "a panic lost buffered bytes of a file");
        let result = self.write_buffer(inode, &buffer);
        if let Err(error) = &result {
            log::error!(inode = inode.nr().get(), error:%; "buffered bytes of a file are lost");
            inode.delayed().state().failed.note(error);
            self.delay.failed.lock().get_or_insert_with(|| error.clone());
        }
        self.settle_buffer(inode, &buffer);
        result
    }

    /// Like [`Self::place_locked`], before the size becomes `size`: drops what would be truncated.
    pub(crate) fn place_before_resize(&self, inode: &Arc<CachedInode>, size: u64) -> Result<()> {
        if size <= inode.get().size {
            self.drop_delayed(inode);
        }
        self.place_locked(inode)
    }

    /// Drops a file's buffered bytes. The caller holds the operation lock exclusively.
    pub(crate) fn drop_delayed(&self, inode: &Arc<CachedInode>) {
        if let Some(buffer) = self.take_buffer(inode) {
            self.settle_buffer(inode, &buffer);
        }
    }

    /// Takes the bytes of a file; their claim stays with the inode, for allocations that find no other space.
    fn take_buffer(&self, inode: &CachedInode) -> Option<Buffer> {
        inode.delayed().state().buffer.take()
    }

    /// Ends buffering for the file.
    fn settle_buffer(&self, inode: &Arc<CachedInode>, buffer: &Buffer) {
        // The size is in the inode by now.
        inode.delayed().set_end(0);
        let claim = inode.delayed().state().claim.take();
        drop(claim);
        self.delay.unregister(inode);
        self.delay.bytes.fetch_sub(buffer.charged, Ordering::Relaxed);
        self.delay.promised.fetch_sub(buffer.clusters.get(), Ordering::Relaxed);
    }

    fn write_buffer(&self, inode: &Arc<CachedInode>, buffer: &Buffer) -> Result<()> {
        self.check_takes_changes()?;
        if inode.is_freed() {
            return Ok(());
        }
        if buffer.end() >= LARGE_FILE {
            self.bring_feature(hectare_ext4::feature::RoCompat::LARGE_FILE);
        }
        let done = self.write_pieces(inode, buffer.start, &buffer.bytes, Source::Gathered)?;
        if done == buffer.bytes.len() { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Keeps of a file's claim what the bytes from `at` to `end` need.
    pub(crate) fn spend_claim(&self, inode: &CachedInode, at: u64, end: u64) {
        let first = at / self.geometry().cluster_bytes();
        let left = Clusters::new(end.div_ceil(self.geometry().cluster_bytes()).saturating_sub(first));
        if let Some(claim) = &mut inode.delayed().state().claim {
            claim.shrink_to(self.with_nodes(left));
        }
    }

    /// Allocates out of the claim of a file whose bytes are being placed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if it has none.
    pub(crate) fn claimed_space(&self, nr: InodeNr, request: &Request) -> Result<Reservation> {
        let inode = self.inodes.find(nr).ok_or(Error::NoSpace)?;
        let mut state = inode.delayed().state();
        let claim = state.claim.as_mut().ok_or(Error::NoSpace)?;
        Ok(self.allocator.reserve_claimed(claim, request)?)
    }

    /// Allocates a block for a node of a file's tree, used at once, near `goal`; returns it with the sectors
    /// it counts for. Some clusters are reserved for such blocks; a file whose bytes are being placed gets
    /// one out of its claim if there is no other.
    pub(crate) fn allocate_node(
        &self,
        handle: &mut Handle<'_>,
        nr: InodeNr,
        goal: BlockNr,
    ) -> Result<(BlockNr, u64)> {
        match self.allocate_metadata(handle, goal, Room::Kept) {
            Err(Error::NoSpace) => {
                let geometry = self.geometry();
                let first = geometry.first_block(GroupNr::new(0));
                let goal = if geometry.group_of(goal).is_some() { goal } else { first };
                let request = Request::new(geometry.cluster_of(goal), Clusters::ONE);
                let run = self.claimed_space(nr, &request)?.publish(handle);
                Ok((geometry.cluster_start(run.start), cluster_sectors(self, run.len)))
            }
            allocated => allocated,
        }
    }
}

/// The callers of writeback.
impl Volume {
    /// Places a file's buffered bytes, and returns the writeback error not yet reported to the open file that
    /// keeps `heard`: the first step of an fsync. Called with nothing locked.
    ///
    /// # Errors
    /// The first write that failed, now or earlier.
    pub(crate) fn flush_delayed(&self, inode: &Arc<CachedInode>, heard: &AtomicU64) -> Result<()> {
        if inode.delayed().end().is_some() {
            // An error is recorded, and returned below.
            let _ = self.place_waiting(inode);
        }
        inode.delayed().tell(heard).map_or(Ok(()), Err)
    }

    /// Places the buffered bytes of all files: the first step of a sync of the volume. Called with nothing
    /// locked.
    ///
    /// # Errors
    /// The first write that failed, now or since the last call. It is reported to the open files, too.
    pub(crate) fn place_all(&self) -> Result<()> {
        let mut result = Ok(());
        for inode in self.delay.all_files() {
            let placed = self.place_waiting(&inode);
            result = result.and(placed);
        }
        let earlier = self.delay.failed.lock().take();
        earlier.map_or(result, Err)
    }

    /// Places the buffered bytes of all files, and ends buffering. Files without a name lose theirs: they are
    /// about to be freed.
    ///
    /// # Errors
    /// As [`Self::place_all`].
    pub(crate) fn end_delay(&self) -> Result<()> {
        self.delay.closing.store(true, Ordering::SeqCst);
        for inode in self.delay.all_files() {
            let _operation = inode.lock().write();
            if inode.get().links == 0 {
                self.drop_delayed(&inode);
            }
        }
        self.place_all()
    }

    /// Places small appends that have been buffered for at least `age`. The volume's thread calls it
    /// periodically. Errors are reported by fsync or close of the file.
    pub fn place_aged(&self, age: Duration) {
        let aged =
            |inode: &Arc<CachedInode>| inode.delayed().since().is_some_and(|since| since.elapsed() >= age);
        for inode in self.delay.all_files().filter(aged) {
            let _ = self.place_waiting(&inode);
        }
    }

    /// Places enough to come well under the budget, if it is exceeded. Called with nothing locked.
    pub(crate) fn relieve_delayed(&self) {
        let over = |budget| self.delay.bytes.load(Ordering::Relaxed) > budget;
        if !over(self.delay.budget) {
            return;
        }
        let _relieving = self.delay.relieving.lock();
        if !over(self.delay.budget) {
            return;
        }
        // The largest first: what is placed early becomes an extent of its own.
        let mut files: Vec<_> = self.delay.all_files().map(|inode| (inode.delayed().len(), inode)).collect();
        files.sort_unstable_by_key(|(len, _)| std::cmp::Reverse(*len));
        for (_, inode) in files {
            if !over(self.delay.budget / 4 * 3) {
                return;
            }
            let _ = self.place_waiting(&inode);
        }
    }

    /// Places the buffered bytes of other files, which returns excess claims; reports whether there were any.
    /// Files whose operation lock is held are skipped: the caller may hold operation locks.
    pub(crate) fn place_for_space(&self) -> bool {
        let mut placed = false;
        for inode in self.delay.all_files() {
            if let Some(_operation) = inode.lock().try_write() {
                let _ = self.place_locked(&inode);
                placed = true;
            }
        }
        placed
    }

    /// Places the buffered bytes of a file that is not open any more, or drops them if the file has neither a
    /// name nor a user. The next sync of the volume reports errors.
    pub(crate) fn place_last(&self, inode: &Arc<CachedInode>) {
        if inode.delayed().end().is_none() {
            return;
        }
        let _operation = inode.lock().write();
        if inode.get().links == 0 && !inode.is_in_use() {
            self.drop_delayed(inode);
        } else {
            let _ = self.place_locked(inode);
        }
    }

    /// As [`Self::place_locked`], with nothing locked.
    pub(crate) fn place_waiting(&self, inode: &Arc<CachedInode>) -> Result<()> {
        let _operation = inode.lock().write();
        self.place_locked(inode)
    }
}
