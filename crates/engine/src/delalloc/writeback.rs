//! Placing what has gathered, and who asks for it.

use super::Buffer;
use crate::cache::inode::CachedInode;
use crate::error::{Error, Result};
use crate::file::{LARGE_FILE, Source};
use crate::space::{Room, cluster_sectors};
use crate::unwinding::Unwinding;
use crate::volume::Volume;
use hectare_alloc::{Request, Reservation};
use hectare_journal::Handle;
use hectare_units::{BlockNr, Clusters, GroupNr, InodeNr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

impl Volume {
    /// Gives what has gathered for a file its place, before something looks at or changes the file's map. The
    /// caller holds the operation lock exclusively.
    ///
    /// # Errors
    /// The first write that failed; what could not be written is lost. Whoever syncs or closes the file, or
    /// syncs the volume, is told as well.
    pub(crate) fn place_locked(&self, inode: &Arc<CachedInode>) -> Result<()> {
        if inode.delayed().end().is_none() {
            return Ok(());
        }
        let Some(buffer) = self.take_buffer(inode) else { return Ok(()) };
        let _lost = Unwinding::watch(self, "a panic lost bytes that had gathered for a file");
        let result = self.write_buffer(inode, &buffer);
        if let Err(error) = &result {
            log::error!(inode = inode.nr().get(), error:%; "bytes that had gathered for a file are lost");
            inode.delayed().state().failed.note(error);
            self.delay.failed.lock().get_or_insert_with(|| error.clone());
        }
        self.settle_buffer(inode, &buffer);
        result
    }

    /// The same before the size becomes `size`: what would be cut off is dropped.
    pub(crate) fn place_before_resize(&self, inode: &Arc<CachedInode>, size: u64) -> Result<()> {
        if size <= inode.get().size {
            self.drop_delayed(inode);
        }
        self.place_locked(inode)
    }

    /// Drops what has gathered for a file. The caller holds the operation lock exclusively.
    pub(crate) fn drop_delayed(&self, inode: &Arc<CachedInode>) {
        if let Some(buffer) = self.take_buffer(inode) {
            self.settle_buffer(inode, &buffer);
        }
    }

    /// Takes the bytes of a file; their claim stays with the inode for whoever finds no other space.
    fn take_buffer(&self, inode: &CachedInode) -> Option<Buffer> {
        inode.delayed().state().buffer.take()
    }

    /// Nothing has gathered for the file any more.
    fn settle_buffer(&self, inode: &Arc<CachedInode>, buffer: &Buffer) {
        // The size is in the inode by now.
        inode.delayed().end.store(0, Ordering::Release);
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

    /// Keeps of a file's claim what is needed for the bytes from `at` to `end`.
    pub(crate) fn spend_claim(&self, inode: &CachedInode, at: u64, end: u64) {
        let first = at / self.geometry().cluster_bytes();
        let left = Clusters::new(end.div_ceil(self.geometry().cluster_bytes()).saturating_sub(first));
        if let Some(claim) = &mut inode.delayed().state().claim {
            claim.shrink_to(self.with_nodes(left));
        }
    }

    /// Space out of the claim of a file whose bytes are being placed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if it has none.
    pub(crate) fn claimed_space(&self, nr: InodeNr, request: &Request) -> Result<Reservation> {
        let inode = self.inodes.find(nr).ok_or(Error::NoSpace)?;
        let mut state = inode.delayed().state();
        let claim = state.claim.as_mut().ok_or(Error::NoSpace)?;
        Ok(self.allocator.reserve_claimed(claim, request)?)
    }

    /// A block for a node of a file's tree, used at once, near `goal`; with the sectors it counts for. Such
    /// blocks are what some clusters are kept for; a file whose bytes are being placed gets one out of its
    /// claim if there is no other.
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

/// Who has bytes placed.
impl Volume {
    /// Places what has gathered for a file, and tells what went wrong with it that somebody who has the file
    /// open, and remembers `heard`, was not told yet: what a sync of the file does first. Called with nothing
    /// locked.
    ///
    /// # Errors
    /// The first write that failed, now or earlier.
    pub(crate) fn flush_delayed(&self, inode: &Arc<CachedInode>, heard: &AtomicU64) -> Result<()> {
        if inode.delayed().end().is_some() {
            // A failure is noted, and told below.
            let _ = self.place_waiting(inode);
        }
        inode.delayed().tell(heard).map_or(Ok(()), Err)
    }

    /// Places what has gathered for all files: what a sync of the volume does first. Called with nothing
    /// locked.
    ///
    /// # Errors
    /// The first write that failed, now, or earlier since this was last asked. The files tell of theirs, too.
    pub(crate) fn place_all(&self) -> Result<()> {
        let mut result = Ok(());
        for inode in self.delay.all_files() {
            let placed = self.place_waiting(&inode);
            result = result.and(placed);
        }
        let earlier = self.delay.failed.lock().take();
        earlier.map_or(result, Err)
    }

    /// Places what has gathered for all files, and lets nothing gather from now on. Files without a name lose
    /// it: they are about to be freed.
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

    /// Gives small appends their place that have gathered for at least `age`. The volume's thread does so
    /// every now and then. What goes wrong is told to whoever syncs or closes the file.
    pub fn place_aged(&self, age: Duration) {
        let aged =
            |inode: &Arc<CachedInode>| inode.delayed().since().is_some_and(|since| since.elapsed() >= age);
        for inode in self.delay.all_files().filter(aged) {
            let _ = self.place_waiting(&inode);
        }
    }

    /// Places as much as it takes to come well under the budget, if it is exceeded. Called with nothing
    /// locked.
    pub(crate) fn relieve_delayed(&self) {
        let over = |budget| self.delay.bytes.load(Ordering::Relaxed) > budget;
        if !over(self.delay.budget) {
            return;
        }
        let _relieving = self.delay.relieving.lock();
        if !over(self.delay.budget) {
            return;
        }
        // The largest first: what is placed early is a piece of its own.
        let mut files: Vec<_> = self.delay.all_files().map(|inode| (inode.delayed().len(), inode)).collect();
        files.sort_unstable_by_key(|(len, _)| std::cmp::Reverse(*len));
        for (_, inode) in files {
            if !over(self.delay.budget / 4 * 3) {
                return;
            }
            let _ = self.place_waiting(&inode);
        }
    }

    /// Places what has gathered for others, since that gives back what was claimed in excess; whether there
    /// was any. Those who are at work are left alone: the caller may hold operation locks.
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

    /// Places what has gathered for a file that nobody has open any more, or drops it with a file that has no
    /// name and that nobody holds. What goes wrong, the next sync of the volume tells.
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
