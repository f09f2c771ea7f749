//! What a volume holds: its stores ([`State`]), and with the journal what operations work on ([`Core`]).
//!
//! Operations are functions on a [`Core`] in the directories above this floor (`space`, `data`, `attributes`,
//! `names`); those that change nothing and need no journal take a [`State`]. Here is what they all share:
//! transactions and their commits, finding inodes, time stamps, and what is done when the device or the
//! metadata fails.
//!
//! Invariant: nothing here knows files' content, names or attributes beyond where they lie.

pub(crate) mod attributes;
pub(crate) mod background;
pub(crate) mod commit;
mod discard;
mod failures;
mod inodes;
mod quotas;
pub(crate) mod sync;
mod transactions;
pub(crate) mod unwinding;

use crate::clock;
use crate::error::{Error, Result};
use crate::observer::Observed;
use crate::options::{OpenOptions, Synchronous};
use crate::state::background::Background;
use crate::state::commit::Committer;
use crate::stores::block_cache::BlockCache;
use crate::stores::delay::Delay;
use crate::stores::discards::Discards;
use crate::stores::flush_tracker::Flushes;
use crate::stores::fs_errors::Findings;
use crate::stores::groups::{Groups, Source};
use crate::stores::inode_cache::{CachedInode, InodeCache};
use crate::stores::mmp::Guard;
use crate::stores::orphans::{Orphans, Records};
use crate::stores::value_index::ValueIndex;
use crate::stores::volume_journal::VolumeLog;
use hectare_alloc::{Allocator, Preallocation};
use hectare_device::Device;
use hectare_ext4::dir::Format as DirFormat;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::{Inode, InodeFlags, Kind as FileKind};
use hectare_ext4::map::MapKind;
use hectare_ext4::superblock::{DataMode, SuperBlock};
use hectare_ext4::time::{SECONDS_MAX, SECONDS_MAX_NARROW, SECONDS_MIN, Timestamp};
use hectare_journal::{Aborted, Handle, Journal};
use hectare_units::{BlockNr, Blocks, InodeNr, low32, random, u64_of};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Bytes of inodes that have one word for a time.
const NARROW_INODE: u32 = 128;

/// The stores of a volume, and what was found when it was opened.
pub(crate) struct State {
    pub(crate) device: Arc<dyn Device>,
    /// As read when the volume was opened; source of the geometry, the seed and the features that shape the
    /// layout.
    pub(crate) sb: Arc<SuperBlock>,
    /// The superblock that is written: counts, state and times change.
    pub(crate) live_sb: Mutex<SuperBlock>,
    pub(crate) dir_format: DirFormat,
    pub(crate) blocks: BlockCache,
    pub(crate) inodes: InodeCache,
    pub(crate) groups: Arc<Groups>,
    pub(crate) allocator: Allocator<Source>,
    pub(crate) prealloc: Preallocation,
    pub(crate) options: OpenOptions,
    pub(crate) data_mode: DataMode,
    pub(crate) read_only: bool,
    pub(crate) kbytes_written: AtomicU64,
    pub(crate) discards: Discards,
    /// The journal in use; only if the volume has one and is open for writing.
    pub(crate) log: Option<VolumeLog>,
    pub(crate) flushes: Flushes,
    /// What was appended and is not allocated yet.
    pub(crate) delay: Delay,
    /// The metadata corruption found.
    pub(crate) findings: Arc<Findings>,
    /// Whether a failed write of file data ends all changes.
    pub(crate) data_errors_abort: bool,
    /// Set once, by a shutdown ([`crate::open::shutdown`]).
    pub(crate) shut_down: AtomicBool,
    /// Whether the superblock has changed in the running transaction beside its counts.
    pub(crate) superblock_changed: AtomicBool,
    /// Set once, by closing the volume.
    pub(crate) closed: AtomicBool,
    /// Files that have lost their last name and are still open.
    pub(crate) nameless: Mutex<HashMap<InodeNr, Arc<CachedInode>>>,
    /// Inodes that recovery has to free or truncate.
    pub(crate) orphans: Orphans,
    /// Attribute values in inodes of their own.
    pub(crate) values: Mutex<ValueIndex>,
    /// Serializes renames that move a directory, so that none can come to lie under itself.
    pub(crate) rename_lock: Mutex<()>,
    /// The state the superblock had when it was opened, restored on close.
    pub(crate) state_before: u16,
    pub(crate) mmp: Mutex<Option<Guard>>,
    /// Source of arbitrary numbers.
    pub(crate) seed: AtomicU64,
}

/// What operations on a volume work on: its stores, and the journal that changes them together.
pub(crate) struct Core {
    pub(crate) state: Arc<State>,
    pub(crate) journal: Journal<Committer>,
    /// The volume's thread, unless it has none.
    pub(crate) background: OnceLock<Background>,
}

impl State {
    /// Whether content and attributes of an inode with these flags are to be durable after every change.
    pub(crate) fn syncs_changes(&self, flags: InodeFlags) -> bool {
        self.options.synchronous == Synchronous::All || flags.contains(InodeFlags::SYNC)
    }

    /// Whether the content of an inode goes through the journal.
    pub(crate) fn journals_data(&self, inode: &Inode) -> bool {
        self.log.is_some()
            && inode.kind() == Some(FileKind::File)
            && (self.data_mode == DataMode::Journal || inode.flags.contains(InodeFlags::JOURNAL_DATA))
    }

    /// Marks content and inode as changed now.
    pub(crate) fn stamp(&self, data: &mut Inode) {
        let now = self.now();
        data.mtime = now;
        data.ctime = now;
        data.version = data.version.wrapping_add(1);
    }

    /// Requests space from the allocator, timed for the observer, if there is one.
    pub(crate) fn reserving<T>(&self, ask: impl FnOnce() -> T) -> T {
        let Some(Observed(observer)) = &self.options.observer else { return ask() };
        let began = Instant::now();
        let answer = ask();
        observer.reserved(began.elapsed());
        answer
    }

    /// A transaction whose freeze began at `began` is durable.
    pub(crate) fn observe_commit(&self, began: Option<Instant>) {
        if let (Some(began), Some(Observed(observer))) = (began, &self.options.observer) {
            observer.committed(began.elapsed());
        }
    }

    /// Drops a metadata block that is freed, here and from the log: it must not be checkpointed any more once
    /// others can get its place.
    pub(crate) fn forget_metadata(&self, nr: BlockNr) {
        self.blocks.forget(nr);
        if let Some(log) = &self.log {
            log.revoke(nr);
        }
    }

    /// Drops blocks of journalled data that are freed. There may be very many, of which the log has few: only
    /// those are revoked.
    pub(crate) fn forget_data(&self, first: BlockNr, len: u32) {
        let Some(log) = &self.log else { return };
        for nr in (0..u64::from(len)).map(|step| first + Blocks::new(step)) {
            // In this order: what no commit is writing any more is known to be in the log.
            if self.blocks.forget(nr) || log.is_logged(nr) {
                log.revoke(nr);
            }
        }
    }

    /// The nearest time that inodes of this volume can hold: what is returned now is what will be read. As
    /// with the kernel, the first and the last second have no fractions.
    pub(crate) fn nearest(&self, time: Timestamp) -> Timestamp {
        let is_narrow = self.geometry().inode_size == NARROW_INODE;
        let last = if is_narrow { SECONDS_MAX_NARROW } else { SECONDS_MAX };
        let is_whole = is_narrow || time.seconds <= SECONDS_MIN || time.seconds >= last;
        if is_whole { Timestamp::from_seconds(time.seconds.clamp(SECONDS_MIN, last)) } else { time }
    }

    /// The time that changes are stamped with.
    pub(crate) fn now(&self) -> Timestamp {
        self.nearest(self.options.fixed_time.unwrap_or_else(clock::coarse_now))
    }

    /// An arbitrary number, for inode generations.
    pub(crate) fn arbitrary(&self) -> u32 {
        low32(random::mixed(self.seed.fetch_add(random::STEP, Ordering::Relaxed)))
    }

    /// The geometry of the volume.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    /// How new files of the volume are mapped.
    pub(crate) fn map_of_new(&self) -> MapKind {
        if self.incompat(Incompat::EXTENTS) { MapKind::Extents } else { MapKind::Blocks }
    }

    /// Whether the volume has an incompatible feature.
    pub(crate) fn incompat(&self, feature: Incompat) -> bool {
        self.sb.features().incompat.contains(feature)
    }

    /// Sets a feature that its first use requires.
    pub(crate) fn bring_feature(&self, feature: RoCompat) {
        let mut live = self.live_sb.lock();
        if !live.features().ro_compat.contains(feature) {
            live.add_ro_compat(feature);
            self.note_superblock_changed();
        }
    }

    /// Sets the feature that says that there are extended attributes.
    pub(crate) fn bring_attributes(&self) {
        let mut live = self.live_sb.lock();
        if !live.features().compat.contains(Compat::EXT_ATTR) {
            live.add_compat(Compat::EXT_ATTR);
            self.note_superblock_changed();
        }
    }

    /// The superblock has changed in the running transaction beside its counts.
    fn note_superblock_changed(&self) {
        self.superblock_changed.store(true, Ordering::Relaxed);
    }

    /// Records an inode as an orphan, if it is not recorded yet ([`Orphans::add`]).
    pub(crate) fn add_orphan(&self, handle: &mut Handle<'_>, inode: &Arc<CachedInode>) {
        self.orphans.add(&self.orphan_records(), handle, inode);
    }

    /// Removes an inode from the orphans, if it was recorded ([`Orphans::remove`]).
    pub(crate) fn remove_orphan(&self, handle: &mut Handle<'_>, nr: InodeNr) {
        self.orphans.remove(&self.orphan_records(), handle, nr);
    }

    fn orphan_records(&self) -> Records<'_> {
        Records { live_sb: &self.live_sb, blocks: &self.blocks, inodes: &self.inodes }
    }

    /// The current time, not rounded.
    pub(crate) fn exact_now(&self) -> Timestamp {
        self.options.now()
    }

    /// Fills the counts of the superblock that is to be written.
    pub(crate) fn refresh_superblock(&self) -> MutexGuard<'_, SuperBlock> {
        let free = self.allocator.durable_free().get() << self.geometry().cluster_ratio_shift;
        let mut live = self.live_sb.lock();
        live.set_free(Blocks::new(free), self.groups.free_inodes());
        live.set_write_time(self.exact_now());
        live.add_kbytes_written(self.kbytes_written.swap(0, Ordering::Relaxed));
        live
    }

    /// Adds to the bytes that the superblock counts as ever written.
    pub(crate) fn count_written(&self, bytes: usize) {
        self.kbytes_written.fetch_add(u64_of(bytes).div_ceil(1024), Ordering::Relaxed);
    }

    /// The error for a file that can't be changed, for its form or for lack of a key.
    pub(crate) fn check_file_writable(&self, inode: &Inode, nr: InodeNr) -> Result<()> {
        if inode.flags.contains(InodeFlags::ENCRYPT) {
            let what = format!("inode {nr} is encrypted: it can't be changed without the key, only removed");
            return Err(Error::Unsupported(what));
        }
        self.check_form_writable(inode)
    }

    /// The error for a file whose form can be read but not written.
    pub(crate) fn check_form_writable(&self, inode: &Inode) -> Result<()> {
        if inode.flags.contains(InodeFlags::VERITY) {
            return Err(Error::NotPermitted("it is sealed by fs-verity: its content never changes again"));
        }
        Ok(())
    }

    /// Metadata blocks that the running transaction would write now, or a few more.
    pub(crate) fn gathered(&self) -> u32 {
        // Each group has a bitmap, and a descriptor whose block may be dirty for it alone.
        let bitmaps = self.allocator.dirty_groups().saturating_mul(2);
        let cached = low32(u64_of(self.blocks.dirty_blocks() + self.inodes.dirty_inodes()));
        let revokes = self.log.as_ref().map_or(0, VolumeLog::gathered_revokes);
        let quotas = self.quotas().map_or(0, |quotas| quotas.dirty_blocks());
        bitmaps
            .saturating_add(self.groups.dirty_blocks())
            .saturating_add(cached + quotas)
            .saturating_add(revokes)
    }
}

/// The error of an operation after all changes have ended.
pub(crate) fn aborted(aborted: Aborted) -> Error {
    Error::Aborted(aborted.reason().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::assemble::tests::{planned, unformatted};

    #[test]
    fn times_are_those_that_inodes_can_hold() {
        let state = unformatted(OpenOptions::default()).state;
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(state.nearest(time(5, 7)), time(5, 7));
        assert_eq!(state.nearest(time(SECONDS_MAX, 7)), time(SECONDS_MAX, 0));
        assert_eq!(state.nearest(time(SECONDS_MAX + 9, 7)), time(SECONDS_MAX, 0));
        assert_eq!(state.nearest(time(i64::MIN, 7)), time(SECONDS_MIN, 0));
    }

    #[test]
    fn files_of_a_form_that_cannot_be_written_are_refused_by_name() {
        let state = unformatted(OpenOptions::default()).state;
        let (nr, sb) = (InodeNr::new(12), planned());
        let check = |flags| {
            let mut inode = Inode::new(0o100_644, Timestamp::from_seconds(1), 1, &sb);
            inode.flags = flags;
            state.check_file_writable(&inode, nr).map_err(|error| error.to_string())
        };
        assert_eq!((check(InodeFlags::EXTENTS), check(InodeFlags::empty())), (Ok(()), Ok(())));
        let refused =
            check(InodeFlags::EXTENTS | InodeFlags::ENCRYPT).expect_err("that form can't be written");
        assert!(refused.contains("inode 12 ") && refused.contains("encrypted"), "{refused}");
        let sealed = check(InodeFlags::EXTENTS | InodeFlags::VERITY).expect_err("it never changes");
        assert!(sealed.contains("fs-verity"), "{sealed}");
    }
}
