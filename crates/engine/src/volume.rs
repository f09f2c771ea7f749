//! A volume: everything that is shared by the operations on it.
//!
//! [`Volume`] is a cheap handle (clone it, share it between threads); the state behind it holds the caches,
//! the allocator, the groups and the journal. The last handle to go closes the volume; call [`Volume::close`]
//! to learn whether that worked.
//!
//! While a volume is open for writing, its superblock on the device says so: that its journal may be needed
//! (`needs_recovery`), or, where there is none, that it was not cleanly unmounted. Closing writes everything,
//! flushes, and takes that back. A journal that is needed is replayed when the volume is opened
//! ([`crate::recover`]). A volume without one that the superblock calls not clean is refused for writing, and
//! so is one that is marked as having errors, by name. Orphans are cleaned up ([`crate::orphan`]).

use crate::background::Background;
use crate::cache::block::{BlockCache, Kind};
use crate::cache::inode::{CachedInode, Home, InodeCache};
use crate::clock;
use crate::commit::Committer;
use crate::delay::Delay;
use crate::discard::Discards;
use crate::error::{Error, Result};
use crate::findings::Findings;
use crate::flushes::Flushes;
use crate::groups::{Groups, SUPERBLOCK_AT, Source, flex};
use crate::log::VolumeLog;
use crate::mmp::Guard;
use crate::options::OpenOptions;
use crate::orphan::Orphans;
use crate::recover::{self, Recovered};
use hectare_alloc::{Allocator, Config, Layout, Preallocation};
use hectare_device::Device;
use hectare_ext4::dir::Format as DirFormat;
use hectare_ext4::error::{Corrupt, Place, Unsupported};
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::{Inode, InodeFlags, Kind as FileKind};
use hectare_ext4::superblock::{self, DataMode, STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_journal::{Aborted, Credits, Handle, Journal, JournalStats, MetadataView};
use hectare_units::{Blocks, Clusters, GroupNr, InodeNr, TxnId, low32, u64_of, usize_of};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of dirty metadata blocks at which the volume's thread is asked to commit: few, since all of them are
/// rendered while no handle can start.
const DIRTY_BYTES_SOME: usize = 4 << 20;
/// Dirty inodes at which it is.
const DIRTY_INODES_SOME: usize = 4096;
/// So many times as much, and an operation commits itself.
const DIRTY_MANY: usize = 8;
/// Bytes waiting to be free below which nobody commits for them.
const PENDING_BYTES_MIN: u64 = 64 << 20;
/// The share of the available space that waiting space may be: a quarter.
const PENDING_SHARE: u64 = 4;

/// What everything on a volume shares. Nothing of it can be reached from outside the crate.
#[doc(hidden)]
pub struct Shared {
    pub(crate) device: Arc<dyn Device>,
    /// As read when the volume was opened; geometry, seed and features that shape the layout are taken from
    /// here.
    pub(crate) sb: Arc<SuperBlock>,
    /// The superblock that is written: counts, state and times change.
    pub(crate) live_sb: Mutex<SuperBlock>,
    pub(crate) dir_format: DirFormat,
    pub(crate) blocks: BlockCache,
    pub(crate) inodes: InodeCache,
    pub(crate) groups: Arc<Groups>,
    pub(crate) allocator: Allocator<Source>,
    pub(crate) prealloc: Preallocation,
    pub(crate) free_inodes: AtomicU32,
    pub(crate) options: OpenOptions,
    pub(crate) data_mode: DataMode,
    pub(crate) read_only: bool,
    pub(crate) kbytes_written: AtomicU64,
    pub(crate) discards: Discards,
    /// The journal in use; only of a volume that has one and is open for writing.
    pub(crate) log: Option<VolumeLog>,
    pub(crate) flushes: Flushes,
    /// What was appended and has no place yet.
    pub(crate) delay: Delay,
    /// What was found to be broken.
    pub(crate) findings: Arc<Findings>,
    /// Whether a failed write of file data is the end of all changes.
    pub(crate) data_errors_abort: bool,
    /// Set once by whoever closes the volume.
    closed: AtomicBool,
    /// Files that have lost their last name and are still open.
    pub(crate) nameless: Mutex<HashMap<InodeNr, Arc<CachedInode>>>,
    /// Inodes that somebody must deal with after a crash.
    pub(crate) orphans: Orphans,
    /// Serialises renames that move a directory, so that none can come to lie under itself.
    pub(crate) rename_lock: Mutex<()>,
    /// The state the superblock had when it was opened, restored on close.
    state_before: u16,
    mmp: Mutex<Option<Guard>>,
    seed: AtomicU64,
}

/// How often space has become free, as [`Volume::seen`] told it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    commit: TxnId,
    discards: u64,
}

/// An ext4 volume in use.
#[derive(Clone)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) journal: Journal<Committer>,
    background: OnceLock<Background>,
}

impl std::ops::Deref for Volume {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.inner.shared
    }
}

impl Volume {
    /// Opens the volume on a device.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Unsupported`] name what keeps the volume from being read, or, unless
    /// opened read-only, from being written; [`Error::ReadOnly`] if the device can't be written.
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<Self> {
        let sb = recover::read_superblock(&device, &options)?;
        let read_only = options.read_only;
        if !read_only {
            if device.is_read_only() {
                return Err(Error::ReadOnly);
            }
            check_writable(&sb)?;
        }
        if let Some(mode) = options.data_mode.filter(|_| !sb.features().compat.contains(Compat::HAS_JOURNAL))
        {
            let what = format!("data={} needs a journal, and the volume has none", mode.name());
            return Err(Error::Unsupported(what));
        }
        // What can't be used is told before anything is written.
        DirFormat::of(&sb)?;
        let mut mmp = crate::mmp::enter(&device, &sb, read_only)?;
        let opened =
            recover::recover(&device, sb, &options).and_then(|recovered| Self::assemble(recovered, options));
        let shared = match opened {
            Ok(shared) => shared,
            Err(error) => {
                if let Some(mmp) = mmp.take() {
                    mmp.leave(&*device)?;
                }
                return Err(error);
            }
        };
        // From here on there is something to take back: a volume that is refused below is closed by dropping
        // it.
        *shared.mmp.lock() = mmp;
        let journal = Journal::new(Committer::new(Arc::clone(&shared)), TxnId::default());
        let volume = Self { inner: Arc::new(Inner { shared, journal, background: OnceLock::new() }) };
        if !read_only {
            if let Err(error) = volume.load_orphans() {
                volume.inner.abandon();
                return Err(error);
            }
            volume.mark_open()?;
            volume.process_orphans()?;
            if let Some(interval) = volume.options.commit_interval {
                let background = Background::start(Arc::downgrade(&volume.inner), interval);
                volume.inner.background.get_or_init(|| background);
            }
        }
        Ok(volume)
    }

    /// The volume on a device that is not durable and nobody else's, in use for replaying what a journal
    /// holds: it has no journal itself, no thread, and is not marked as in use.
    pub(crate) fn for_replay(device: Arc<dyn Device>, sb: SuperBlock, options: &OpenOptions) -> Result<Self> {
        let options =
            OpenOptions { read_only: false, use_reserved_blocks: true, discard: false, ..options.clone() };
        let shared = Self::assemble(Recovered { device, sb, log: None }, options)?;
        let journal = Journal::new(Committer::new(Arc::clone(&shared)), TxnId::default());
        Ok(Self { inner: Arc::new(Inner { shared, journal, background: OnceLock::new() }) })
    }

    /// Writes what was replayed to the device, and lets go of it.
    pub(crate) fn end_replay(self) -> Result<()> {
        let written = self.inner.commit();
        self.inner.abandon();
        written
    }

    fn assemble(recovered: Recovered, options: OpenOptions) -> Result<Arc<Shared>> {
        let Recovered { device, sb, log } = recovered;
        let sb = Arc::new(sb);
        let geometry = sb.geometry();
        // Metadata that is committed and not home yet is read from where it is.
        let metadata = log.as_ref().map_or_else(|| MetadataView::plain(Arc::clone(&device)), VolumeLog::view);
        let reaction = options.errors.unwrap_or_else(|| sb.on_error());
        let findings = Arc::new(Findings::new(reaction, options.fixed_time));
        let groups = Arc::new(Groups::new(metadata.clone(), Arc::clone(&sb), Arc::clone(&findings)));
        if !options.read_only {
            groups.load_all()?;
        }
        let layout = Layout::new(geometry.clusters_per_group, geometry.clusters_count())
            .ok_or_else(|| Corrupt::new("the superblock", Place::Volume, "its groups are impossible"))?;
        let config = Config {
            policy: options.policy,
            tunables: options.tunables,
            block_bytes: geometry.block_size.get(),
            cluster_blocks: geometry.cluster_blocks(),
            flex_groups: flex::flex_groups(geometry),
            discard: options.discard,
        };
        let allocator = Allocator::new(Source::new(Arc::clone(&groups)), layout, config);
        allocator.set_root_reserve(Clusters::new(sb.reserved_blocks().get() >> geometry.cluster_ratio_shift));
        let shared = Arc::new(Shared {
            blocks: BlockCache::new(
                metadata,
                geometry.block_size,
                options.cache_bytes,
                Arc::clone(&findings),
            ),
            findings,
            data_errors_abort: options
                .data_errors_abort
                .unwrap_or_else(|| sb.mount_option("data_err") == Some("abort")),
            inodes: InodeCache::new(options.cache_inodes),
            dir_format: DirFormat::of(&sb)?,
            live_sb: Mutex::new((*sb).clone()),
            free_inodes: AtomicU32::new(groups.free_inodes()),
            read_only: options.read_only,
            kbytes_written: AtomicU64::new(0),
            discards: Discards::default(),
            log,
            flushes: Flushes::default(),
            delay: Delay::new(options.delayed_bytes),
            closed: AtomicBool::new(false),
            nameless: Mutex::default(),
            orphans: Orphans::new(geometry.features.compat.contains(Compat::HAS_JOURNAL)),
            rename_lock: Mutex::default(),
            state_before: sb.state(),
            mmp: Mutex::default(),
            seed: AtomicU64::new(options.seed.unwrap_or_else(arbitrary_seed)),
            device,
            groups,
            allocator,
            prealloc: Preallocation::new(config),
            data_mode: options.data_mode.or(sb.default_data_mode()).unwrap_or_default(),
            options,
            sb,
        });
        Ok(shared)
    }

    /// Writes everything, flushes, and marks the volume clean. Later changes fail; closing again does
    /// nothing. Files without a name that are still open are freed.
    ///
    /// # Errors
    /// The first write that failed; the volume then stays marked as not clean.
    pub fn close(&self) -> Result<()> {
        let placed = if self.read_only { Ok(()) } else { self.end_delay() };
        self.free_nameless()?;
        self.inner.close()?;
        placed
    }

    /// Writes everything changed so far and flushes the device.
    ///
    /// # Errors
    /// The first write that failed, now, or earlier where bytes that had gathered for a file were lost since
    /// the volume was synced last, by whomever; who has the file open is told, too.
    pub fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let placed = self.place_all();
        self.inner.sync()?;
        placed
    }

    /// How many handles and commits there were, and how long commits kept handles out.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.inner.journal.stats()
    }

    /// The superblock as it was when the volume was opened.
    #[must_use]
    pub fn superblock(&self) -> &SuperBlock {
        &self.sb
    }

    /// Makes an inode durable: what was changed of it, of the names that lead to it from where they were
    /// changed with it, and its data. Others' changes in the same transaction come along; later ones don't.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn sync_inode(&self, nr: InodeNr) -> Result<()> {
        let inode = self.inode(nr)?;
        let placed = if inode.delayed().end().is_some() { self.place_waiting(&inode) } else { Ok(()) };
        self.sync_cached(&inode, false)?;
        placed
    }

    /// The same for an inode in memory. With `data_only`, the times that overwriting left may stay behind.
    pub(crate) fn sync_cached(&self, inode: &CachedInode, data_only: bool) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_takes_changes()?;
        let running = self.inner.journal.running();
        let changed = inode.changed_in().unwrap_or(running);
        let touched = !data_only && inode.touched().is_some();
        self.inner.sync_through(if touched { running } else { changed })
    }

    /// The device under the volume.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Opens a transaction. Nothing may be waited for while it is open.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_takes_changes()?;
        self.inner.journal.start(Credits::new(credits)).map_err(aborted)
    }

    /// Refuses changes to a volume that is open for reading only, closed, or has failed. File data goes to
    /// the device without a transaction, so whoever writes it asks first.
    pub(crate) fn check_takes_changes(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.inner.react()?;
        self.inner.journal.check().map_err(aborted)
    }

    /// To be called after an operation, with nothing locked: sees to it that what has gathered is committed,
    /// if it is much.
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

    /// The same after an operation that freed space: commits before what waits to be free is so much that
    /// others would have to leave their places for want of it.
    pub(crate) fn relieve_frees(&self) -> Result<()> {
        let counts = self.allocator.counts();
        let bytes = counts.pending.get().saturating_mul(self.geometry().cluster_bytes());
        if bytes >= PENDING_BYTES_MIN && counts.pending.get() > counts.available.get() / PENDING_SHARE {
            self.inner.commit()?;
        }
        self.relieve()
    }

    /// To be asked before an attempt that may fail for want of space, for [`Self::reclaim`].
    pub(crate) fn seen(&self) -> Seen {
        let discards = self.discards.done.load(Ordering::SeqCst);
        Seen { commit: self.inner.journal.committed(), discards }
    }

    /// Commits, so that what was freed becomes free, and places what has gathered, so that what was claimed
    /// in excess does. Whether there is anything to gain by trying again: something waited, or has become
    /// free since `seen`.
    pub(crate) fn reclaim(&self, seen: Seen) -> Result<bool> {
        let placed = self.place_for_space();
        if self.allocator.counts().pending.is_zero() {
            self.discards.wait();
            return Ok(placed || self.seen() != seen);
        }
        self.inner.commit()?;
        Ok(true)
    }

    /// The inode, read if it is not in memory.
    pub(crate) fn inode(&self, nr: InodeNr) -> Result<Arc<CachedInode>> {
        let inode = self.inodes.load(nr, || {
            let (inode, home) = self.read_slot(nr)?;
            if inode.links == 0 && !(nr.get() < self.sb.first_inode().get() && inode.mode != 0) {
                return Err(Error::NotFound);
            }
            Ok((inode, home))
        })?;
        inode.check_alive()?;
        Ok(inode)
    }

    /// What the slot of an inode holds, an inode without links too, and where it lies.
    pub(crate) fn read_slot(&self, nr: InodeNr) -> Result<(Inode, Home)> {
        let home = self.inode_home(nr)?;
        let (block, slot) = &home;
        let inode = Inode::parse(&block.bytes()[slot.clone()], nr, &self.sb).map_err(|error| {
            let error = Error::from(error);
            // Who makes a number up may meet anything.
            if self.groups.inode_in_use(nr).unwrap_or(false) {
                self.findings.note_at(&error, Some(block.nr()));
            }
            error
        })?;
        Ok((inode, home))
    }

    /// The block of the inode table and the range in it where an inode lives.
    pub(crate) fn inode_home(&self, nr: InodeNr) -> Result<Home> {
        let (group, index) = self.groups.slot(nr)?;
        let table = self.groups.desc(group)?.inode_table;
        let geometry = self.geometry();
        let per_block = geometry.inodes_per_block();
        let block = table + Blocks::new(u64::from(index / per_block));
        let at = usize_of(index % per_block * geometry.inode_size);
        let loaded = if self.groups.slot_never_written(group, index)? {
            self.blocks.load_zeros(block)
        } else {
            self.blocks.load(block, Kind::Plain, Place::Inode(nr))?
        };
        Ok((loaded, at..at + usize_of(geometry.inode_size)))
    }

    /// The moment changes are stamped with.
    pub(crate) fn now(&self) -> Timestamp {
        self.options.fixed_time.unwrap_or_else(clock::coarse_now)
    }

    /// A number no one should rely on: inode generations.
    pub(crate) fn arbitrary(&self) -> u32 {
        // splitmix64: any two steps apart are unrelated
        let mut z = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low32(z ^ (z >> 31))
    }
}

impl Shared {
    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    pub(crate) fn incompat(&self, feature: Incompat) -> bool {
        self.sb.features().incompat.contains(feature)
    }

    /// Notes a feature that a first use brings with it.
    pub(crate) fn bring_feature(&self, feature: RoCompat) {
        let mut live = self.live_sb.lock();
        if !live.features().ro_compat.contains(feature) {
            live.add_ro_compat(feature);
        }
    }

    /// The moment, not rounded.
    pub(crate) fn exact_now(&self) -> Timestamp {
        self.options.fixed_time.unwrap_or_else(Timestamp::now)
    }

    /// Metadata blocks that the running transaction would write now, or a few more.
    pub(crate) fn gathered(&self) -> u32 {
        // Each group has a bitmap, and a descriptor whose block may be dirty for it alone.
        let bitmaps = self.allocator.dirty_groups().saturating_mul(2);
        let cached = low32(u64_of(self.blocks.dirty_blocks() + self.inodes.dirty_inodes()));
        bitmaps.saturating_add(self.groups.dirty_blocks()).saturating_add(cached)
    }

    /// Fills the counts of the superblock that is to be written.
    pub(crate) fn refresh_superblock(&self) -> MutexGuard<'_, SuperBlock> {
        let free = self.allocator.durable_free().get() << self.geometry().cluster_ratio_shift;
        let mut live = self.live_sb.lock();
        live.set_free(Blocks::new(free), self.free_inodes.load(Ordering::Relaxed));
        live.set_write_time(self.exact_now());
        live.add_kbytes_written(self.kbytes_written.swap(0, Ordering::Relaxed));
        live
    }

    /// Says on the device that the volume is in use.
    fn mark_open(&self) -> Result<()> {
        let superblock = {
            let mut live = self.refresh_superblock();
            match self.log {
                Some(_) => live.set_needs_recovery(true),
                None => live.set_state(self.state_before & !STATE_VALID),
            }
            live.render(GroupNr::new(0))
        };
        let first = self.log.as_ref().map(VolumeLog::next);
        self.write_superblock(&superblock)?;
        match (&self.log, first) {
            (Some(log), Some(first)) => log.begin(first),
            _ => Ok(()),
        }
    }

    /// Says on the device that the volume is not in use any more.
    fn mark_closed(&self) -> Result<()> {
        let superblock = {
            self.record_findings();
            let mut live = self.refresh_superblock();
            live.set_needs_recovery(false);
            let errors = live.state() & STATE_ERROR;
            live.set_state(self.state_before | errors);
            live.render(GroupNr::new(0))
        };
        if let Some(log) = &self.log {
            log.checkpoint_all()?;
        }
        self.write_superblock(&superblock)
    }

    /// Writes the superblock to its place, now and durably, while the log is clean, and stays so; first a
    /// copy to the log, for who finds the place torn.
    fn write_superblock(&self, superblock: &[u8; superblock::SIZE]) -> Result<()> {
        if let Some(log) = &self.log {
            log.stage(superblock, self.exact_now())?;
        }
        self.device.write_at(SUPERBLOCK_AT, superblock)?;
        Ok(self.device.flush()?)
    }

    /// Adds to the bytes that the superblock counts as ever written.
    pub(crate) fn count_written(&self, bytes: usize) {
        self.kbytes_written.fetch_add(u64_of(bytes).div_ceil(1024), Ordering::Relaxed);
    }

    /// The error for a file whose form can be read but not yet written.
    pub(crate) fn check_file_writable(&self, inode: &Inode, nr: InodeNr) -> Result<()> {
        let refuse = |what: &str| {
            Err(Error::Unsupported(format!("inode {nr} {what}: such files can be read, but not changed yet")))
        };
        let flags = inode.flags;
        if flags.contains(InodeFlags::INLINE_DATA) {
            return refuse("keeps its data in the inode (inline_data)");
        }
        if flags.contains(InodeFlags::VERITY) {
            return refuse("is sealed by fs-verity");
        }
        if flags.contains(InodeFlags::ENCRYPT) {
            return refuse("is encrypted");
        }
        let mapped = match inode.kind() {
            Some(FileKind::File | FileKind::Directory) => true,
            Some(FileKind::Symlink) => !inode.is_fast_symlink(),
            _ => false,
        };
        if mapped && !flags.contains(InodeFlags::EXTENTS) {
            return refuse("is mapped by indirect blocks (ext2, ext3)");
        }
        Ok(())
    }
}

impl Inner {
    /// Ends all changes if something was found that asks for it.
    fn react(&self) -> Result<()> {
        match self.shared.findings.stop() {
            Some(reason) => Err(aborted(self.journal.abort(reason))),
            None => Ok(()),
        }
    }

    fn commit(&self) -> Result<()> {
        self.react()?;
        self.journal.commit().map_err(aborted)?;
        self.shared.discard_freed();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
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
        // Nobody knows what a failed flush has kept: nothing may build on it.
        self.shared.device.flush().map_err(|error| aborted(self.journal.abort(error)))?;
        flushes.end(flush);
        Ok(())
    }

    /// What the volume's thread does each time.
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

    fn close(&self) -> Result<()> {
        if self.shared.closed.swap(true, Ordering::AcqRel) || self.shared.read_only {
            return Ok(());
        }
        if let Some(background) = self.background.get() {
            background.stop();
        }
        self.sync()?;
        // What the last commit freed is free now.
        self.shared.mark_closed()?;
        if let Some(mmp) = self.shared.mmp.lock().take() {
            mmp.leave(&*self.shared.device)?;
        }
        self.shared.device.flush()?;
        Ok(())
    }
}

impl Inner {
    /// Lets go of a volume without writing to it.
    fn abandon(&self) {
        self.shared.closed.store(true, Ordering::Release);
        if let Some(mmp) = self.shared.mmp.lock().take() {
            // Whoever finds the volume in use waits and sees that it is not.
            let _ = mmp.leave(&*self.shared.device);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Errors can't be told here; whoever wants to hear of them calls `Volume::close`. The volume then
        // stays marked as not clean on the device.
        let _ = self.close();
    }
}

pub(crate) fn aborted(aborted: Aborted) -> Error {
    Error::Aborted(aborted.reason().to_owned())
}

/// Refuses, by name, to write to a volume that is in no state for it. That its journal has to be replayed
/// first is no reason.
pub(crate) fn check_writable(sb: &SuperBlock) -> Result<()> {
    let mut features = *sb.features();
    features.incompat.remove(Incompat::RECOVER);
    features.check_write()?;
    let refuse = |what: &str| Err(Unsupported(format!("{what}: run e2fsck -fy on it before writing")).into());
    if sb.state() & STATE_ERROR != 0 {
        return refuse("the volume is marked as having errors");
    }
    // Without a journal, "not clean" means that an earlier writer was cut off. With one it says nothing.
    if sb.state() & STATE_VALID == 0 && !sb.features().compat.contains(Compat::HAS_JOURNAL) {
        return refuse("the volume was not cleanly closed");
    }
    Ok(())
}

fn arbitrary_seed() -> u64 {
    let now = Timestamp::now();
    now.seconds.cast_unsigned().wrapping_mul(1_000_000_007) ^ u64::from(now.nanoseconds)
}
