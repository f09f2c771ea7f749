//! The inode cache and its two locks per inode.
//!
//! An inode in use is one [`CachedInode`], however many paths, handles and threads use it. It has two locks:
//!
//! - the *operation* lock ([`CachedInode::lock`]) is taken first, outside any transaction, and held for a
//!   whole operation: exclusive to change names in a directory or the map of a file, shared to read. Two of
//!   them are taken parent before child, else lower number first;
//! - the *data* lock is inside the transaction and held for moments: [`CachedInode::get`] reads the typed
//!   inode, [`CachedInode::edit`] changes it, which needs a [`Handle`] and puts the inode on the dirty list.
//!
//! Whatever changes an inode does so through [`InodeEdit`], which keeps the quotas right.
//!
//! Dirty inodes are rendered into their inode-table block once per commit ([`InodeCache::render`]). An inode
//! may also be *touched* without a handle ([`CachedInode::touch`]), which changes its times and nothing else:
//! it is rendered like a dirty one.
//!
//! Invariants: an inode on the dirty list is held by it, so it is never evicted; the block of the inode table
//! an inode lives in stays in memory as long as the inode, so that rendering needs no I/O. An inode number
//! that is freed stays, marked as freed, until its table block says so too (else it could be read back alive)
//! or the number is given out again; holders of the old `CachedInode` see [`CachedInode::is_freed`]. An
//! inode is read under its shard's loading lock, so that there is never a second copy of one that is changed
//! meanwhile.

use crate::error::{Error, Result};
use crate::stores::appended::Delayed;
use crate::stores::block_cache::{Block, BlockCache};
use crate::stores::lazytime::Mark;
use crate::stores::quotas::{Counted, Quotas};
use crate::stores::ranked_lock::{Held, RankedLock};
use crate::stores::runs::Runs;
use crate::stores::shard::Cached;
use crate::stores::sharded::{DirtyList, Sharded};
use crate::stores::writers::Writers;
use hectare_alloc::Window;
use hectare_ext4::inode::Inode;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_journal::lock_order::LockRank;
use hectare_journal::{Handle, Owed};
use hectare_units::{Clusters, InodeNr, TxnId};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// The block of the inode table and the range in it where an inode lives.
pub(crate) type Home = (Arc<Block>, Range<usize>);

/// An inode in memory.
#[repr(align(64))] // its locks are taken by one thread, those of its neighbours by others
pub(crate) struct CachedInode {
    nr: InodeNr,
    operation: RankedLock<()>,
    data: RankedLock<Inode>,
    dirty: AtomicBool,
    freed: AtomicBool,
    recent: AtomicBool,
    /// The last transaction that changed it, as a number; 0 if that is not known.
    changed_in: AtomicU32,
    /// Whether it may get its first name, having been made without.
    linkable: AtomicBool,
    /// Whether it is a directory whose map was found to be bounded.
    bounded: AtomicBool,
    /// Whether it is known to have no file capabilities.
    harmless: AtomicBool,
    /// Open files; an inode without links lives as long as it has any.
    opens: AtomicU32,
    /// Whether its last opener has closed it. A hint: concurrent opens and closes may leave either value.
    left: AtomicBool,
    /// Users without an open file; it lives as long as it has any.
    holds: AtomicU32,
    /// Space kept for what the file will write next; most inodes are never written to.
    window: OnceLock<Arc<Window>>,
    /// When the content was last overwritten, until the inode has that time.
    touched: Mark,
    /// Where the content lies, remembered.
    runs: Runs,
    /// The writers that overwrite the content.
    writers: Writers,
    /// What was appended and is not allocated yet.
    delayed: Delayed,
    table_block: Arc<Block>,
    slot: Range<usize>,
}

impl CachedInode {
    pub(crate) fn nr(&self) -> InodeNr {
        self.nr
    }

    /// Whether the map of this directory was found to be bounded. What we change keeps it so.
    pub(crate) fn is_bounded(&self) -> bool {
        self.bounded.load(Ordering::Relaxed)
    }

    /// Remembers that the map of this directory is bounded.
    pub(crate) fn set_bounded(&self) {
        self.bounded.store(true, Ordering::Relaxed);
    }

    /// Whether this inode was found to have no file capabilities, and got no attribute since.
    pub(crate) fn is_harmless(&self) -> bool {
        self.harmless.load(Ordering::Acquire)
    }

    /// Remembers whether this inode has no file capabilities. The caller holds the operation lock.
    pub(crate) fn set_harmless(&self, harmless: bool) {
        self.harmless.store(harmless, Ordering::Release);
    }

    /// The operation lock.
    pub(crate) fn lock(&self) -> &RankedLock<()> {
        &self.operation
    }

    /// The inode as it is.
    #[track_caller]
    pub(crate) fn get(&self) -> Held<RwLockReadGuard<'_, Inode>> {
        self.data.read()
    }

    /// The inode, to be changed inside a transaction.
    #[track_caller]
    pub(crate) fn edit<'a>(
        self: &'a Arc<Self>,
        handle: &mut Handle<'_>,
        cache: &InodeCache,
    ) -> InodeEdit<'a> {
        let mut data = self.data.write();
        // Under the lock: a rendering that came before it has taken the inode off the list.
        if cache.list(self) {
            handle.dirtied("an inode");
        }
        self.changed_in.store(handle.txn().get(), Ordering::Release);
        self.touched.bring_into(&mut data);
        self.runs.forget();
        let quotas = cache.quotas().filter(|quotas| quotas.counts(self.nr));
        let charge = quotas.map(|quotas| (Arc::clone(quotas), Counted::of(&data)));
        InodeEdit { nr: self.nr, data, charge }
    }

    /// Stamps the inode as overwritten at `now`, without a transaction: visible at once, on the device with
    /// the next commit. Returns what the transaction has no credit for, if the inode waits for that since now.
    /// The caller holds the operation lock, and the inode is not freed.
    pub(crate) fn touch(self: &Arc<Self>, now: Timestamp, cache: &InodeCache) -> Option<Owed> {
        // In this order: once listed, the mark is there for the commit that takes the list.
        (self.touched.set(now) && cache.list(self)).then(Owed::one)
    }

    /// Moves the time of the last overwrite, if one is pending, into the inode for the commit of `txn`.
    fn bring_touched(&self, data: &mut Inode, txn: TxnId) {
        if self.touched.get().is_some() {
            // In this order: a reader that finds no mark any more finds the transaction that took it.
            self.changed_in.store(txn.get(), Ordering::Release);
            self.touched.bring_into(data);
        }
    }

    /// When the content was last overwritten, if the inode does not have that time yet. Called under the data
    /// lock.
    pub(crate) fn touched(&self) -> Option<Timestamp> {
        self.touched.get()
    }

    /// Where the content lies, as far as that is remembered.
    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The writers that overwrite the content.
    pub(crate) fn writers(&self) -> &Writers {
        &self.writers
    }

    /// The last transaction that changed it; `None` if that was before it came into memory.
    pub(crate) fn changed_in(&self) -> Option<TxnId> {
        Some(self.changed_in.load(Ordering::Acquire)).filter(|txn| *txn != 0).map(TxnId::new)
    }

    /// What was appended and is not allocated yet.
    pub(crate) fn delayed(&self) -> &Delayed {
        &self.delayed
    }

    /// Sets whether the inode is freed: true before its number is released, false again if that fails.
    pub(crate) fn set_freed(&self, freed: bool) {
        self.freed.store(freed, Ordering::Release);
    }

    /// Whether the inode was freed.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Returns an error for an inode that was freed, perhaps while the caller waited for its lock.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.is_freed() { Err(Error::NotFound) } else { Ok(()) }
    }

    /// Sets whether the inode, which has no name, may get one. The caller holds the operation lock, or is the
    /// only one to know the inode.
    pub(crate) fn set_linkable(&self, linkable: bool) {
        self.linkable.store(linkable, Ordering::Release);
    }

    /// Whether the inode, which has no name, may get one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.linkable.load(Ordering::Acquire)
    }

    /// Space kept for what the file will write next.
    pub(crate) fn window(&self) -> &Arc<Window> {
        self.window.get_or_init(Arc::default)
    }

    /// Returns the preallocated space of the file; how much that was.
    pub(crate) fn discard_window(&self) -> Clusters {
        self.window.get().map_or(Clusters::ZERO, |window| window.discard())
    }

    /// Counts an open file.
    pub(crate) fn opened(&self) {
        self.opens.fetch_add(1, Ordering::AcqRel);
        self.left.store(false, Ordering::Relaxed);
    }

    /// Uncounts an open file; returns how many are left.
    pub(crate) fn closed(&self) -> u32 {
        let open = self.opens.fetch_sub(1, Ordering::AcqRel) - 1;
        self.left.store(open == 0, Ordering::Relaxed);
        open
    }

    /// Whether the file was open and is not any more.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Counts a user without an open file.
    pub(crate) fn held(&self) {
        self.holds.fetch_add(1, Ordering::AcqRel);
    }

    /// Uncounts such a user; returns how many are left.
    pub(crate) fn let_go(&self) -> u32 {
        self.holds.fetch_sub(1, Ordering::AcqRel) - 1
    }

    /// Whether it is open or otherwise in use.
    pub(crate) fn is_in_use(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0 || self.holds.load(Ordering::Acquire) > 0
    }
}

/// An inode that is being changed. When this is dropped, what it counts for in the quotas follows.
pub(crate) struct InodeEdit<'a> {
    nr: InodeNr,
    data: Held<RwLockWriteGuard<'a, Inode>>,
    /// What it counted for before.
    charge: Option<(Arc<Quotas>, Counted)>,
}

impl Deref for InodeEdit<'_> {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        &self.data
    }
}

impl DerefMut for InodeEdit<'_> {
    fn deref_mut(&mut self) -> &mut Inode {
        &mut self.data
    }
}

impl Drop for InodeEdit<'_> {
    fn drop(&mut self) {
        if let Some((quotas, before)) = &self.charge {
            quotas.moved(self.nr, before, &Counted::of(&self.data));
        }
    }
}

impl Cached for CachedInode {
    fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    fn take_recent(&self) -> bool {
        self.recent.swap(false, Ordering::Relaxed)
    }
}

/// The cache.
pub(crate) struct InodeCache {
    held: Sharded<InodeNr, CachedInode>,
    dirty: DirtyList<CachedInode>,
    /// What the inodes count for, where the volume counts that.
    quotas: OnceLock<Arc<Quotas>>,
}

impl InodeCache {
    /// An empty cache that tries to hold no more than `max` inodes.
    pub(crate) fn new(max: usize) -> Self {
        Self { held: Sharded::new(max), dirty: DirtyList::default(), quotas: OnceLock::new() }
    }

    /// What changes of inodes are counted in, if they are.
    pub(crate) fn quotas(&self) -> Option<&Arc<Quotas>> {
        self.quotas.get()
    }

    /// Has every change of an inode counted from now on.
    pub(crate) fn count_in(&self, quotas: Arc<Quotas>) {
        self.quotas.get_or_init(|| quotas);
    }

    /// Inodes in memory; the shards are counted one after the other.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Puts an inode on the dirty list; returns whether it was not there yet.
    fn list(&self, inode: &Arc<CachedInode>) -> bool {
        let first = !inode.dirty.swap(true, Ordering::AcqRel);
        if first {
            self.dirty.push(inode);
        }
        first
    }

    /// The inode, if it is in memory.
    pub(crate) fn find(&self, nr: InodeNr) -> Option<Arc<CachedInode>> {
        let inode = self.held.find(nr)?;
        inode.recent.store(true, Ordering::Relaxed);
        Some(inode)
    }

    /// The inode, read with `read` if it is not in memory.
    pub(crate) fn load(
        &self,
        nr: InodeNr,
        read: impl FnOnce() -> Result<(Inode, Home)>,
    ) -> Result<Arc<CachedInode>> {
        let inode = self.held.load(nr, || {
            let (inode, home) = read()?;
            Ok::<_, Error>(new_entry(nr, inode, home))
        })?;
        inode.recent.store(true, Ordering::Relaxed);
        Ok(inode)
    }

    /// Adds an inode that was just made.
    pub(crate) fn insert_new(&self, nr: InodeNr, inode: Inode, home: Home) -> Arc<CachedInode> {
        let entry = new_entry(nr, inode, home);
        self.held.replace(nr, Arc::clone(&entry));
        entry
    }

    /// Inodes that wait for the next commit.
    pub(crate) fn dirty_inodes(&self) -> usize {
        self.dirty.count()
    }

    /// Renders dirty inodes into their inode-table blocks, beside open handles, so that [`Self::render`]
    /// finds few. For the committing thread. Inodes whose data lock is held (possibly by a preempted thread)
    /// stay on the list, in front.
    pub(crate) fn render_ahead(&self, blocks: &BlockCache, sb: &SuperBlock, txn: TxnId) {
        let dirty = self.dirty.take();
        let mut busy = Vec::new();
        for inode in dirty {
            // A freed inode is not skipped: its number may belong by now to another one, later on the list.
            let data = if inode.is_freed() { Some(inode.data.write()) } else { inode.data.try_write() };
            let Some(mut data) = data else {
                busy.push(Arc::clone(&inode));
                continue;
            };
            inode.dirty.swap(false, Ordering::AcqRel);
            inode.bring_touched(&mut data, txn);
            self.render_one(&inode, &data, blocks, sb);
        }
        self.dirty.put_back(busy);
    }

    /// Renders every dirty inode into its inode-table block. For the committing thread, with no handle open.
    /// Threads may touch and read inodes meanwhile, and may be preempted while they do: none is waited for.
    /// The order of the list is kept: a number that was freed and given out again in one transaction is
    /// rendered twice, the new one last.
    pub(crate) fn render(&self, blocks: &BlockCache, sb: &SuperBlock, txn: TxnId) {
        let dirty = self.dirty.take();
        for inode in dirty {
            // First: a thread that touches the inode from here on lists it anew.
            inode.dirty.swap(false, Ordering::AcqRel);
            if inode.touched.get().is_some() {
                if let Some(mut data) = inode.data.try_write() {
                    inode.bring_touched(&mut data, txn);
                } else {
                    // Its time is written now, and brought in by the next commit.
                    self.list(&inode);
                }
            }
            let data = inode.data.read();
            if inode.touched.get().is_some() {
                let mut stamped = data.clone();
                inode.touched.show_in(&mut stamped);
                self.render_one(&inode, &stamped, blocks, sb);
            } else {
                self.render_one(&inode, &data, blocks, sb);
            }
        }
    }

    fn render_one(&self, inode: &CachedInode, data: &Inode, blocks: &BlockCache, sb: &SuperBlock) {
        blocks.render(&inode.table_block, |bytes| {
            data.render(&mut bytes[inode.slot.clone()], inode.nr, sb);
        });
        // Last, so that the inode or its block is counted at any moment.
        self.dirty.uncount();
    }
}

fn new_entry(nr: InodeNr, inode: Inode, (table_block, slot): Home) -> Arc<CachedInode> {
    Arc::new(CachedInode {
        nr,
        operation: RankedLock::new(LockRank::Operation, ()),
        data: RankedLock::new(LockRank::InodeData, inode),
        dirty: AtomicBool::new(false),
        freed: AtomicBool::new(false),
        recent: AtomicBool::new(true),
        changed_in: AtomicU32::new(0),
        linkable: AtomicBool::new(false),
        bounded: AtomicBool::new(false),
        harmless: AtomicBool::new(false),
        opens: AtomicU32::new(0),
        left: AtomicBool::new(false),
        holds: AtomicU32::new(0),
        window: OnceLock::new(),
        touched: Mark::default(),
        runs: Runs::default(),
        writers: Writers::default(),
        delayed: Delayed::default(),
        table_block,
        slot,
    })
}
