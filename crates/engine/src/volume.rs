//! A volume: the state that all operations on it share.
//!
//! [`Volume`] is a cheap handle (clone it, share it between threads); the state behind it holds the caches,
//! the allocator, the groups and the journal. Dropping the last handle closes the volume; [`Volume::close`]
//! reports whether that worked.
//!
//! [`open`] puts it together, [`mount_state`] marks it on the device and closes it, [`sync`] decides when
//! changes are written. Not here: the operations themselves, which are methods of [`Volume`] beside their
//! subject (namespace, file data, attributes and others).

mod discard;
mod failures;
mod mount_state;
pub(crate) mod open;
mod sync;

use crate::background::Background;
use crate::clock;
use crate::commit::Committer;
use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::stores::block_cache::{BlockCache, Kind};
use crate::stores::delay::Delay;
use crate::stores::discards::Discards;
use crate::stores::flush_tracker::Flushes;
use crate::stores::fs_errors::Findings;
use crate::stores::groups::{Groups, Source};
use crate::stores::inode_cache::{CachedInode, Home, InodeCache};
use crate::stores::mmp::Guard;
use crate::stores::orphans::{Orphans, Records};
use crate::stores::volume_journal::VolumeLog;
use hectare_alloc::{Allocator, Policy, Preallocation};
use hectare_device::Device;
use hectare_ext4::dir::Format as DirFormat;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::{Inode, InodeFlags, Kind as FileKind};
use hectare_ext4::superblock::{DataMode, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_journal::{Aborted, Credits, Handle, Journal, JournalStats};
use hectare_units::{Blocks, InodeNr, low32, random, u64_of, usize_of};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The state shared by everything on a volume. It can't be reached from outside the crate.
#[doc(hidden)]
pub struct Shared {
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
    /// Set once, by a shutdown ([`crate::shutdown`]).
    pub(crate) shut_down: AtomicBool,
    /// Whether the superblock has changed in the running transaction beside its counts.
    pub(crate) superblock_changed: AtomicBool,
    /// Set once, by closing the volume.
    closed: AtomicBool,
    /// Files that have lost their last name and are still open.
    pub(crate) nameless: Mutex<HashMap<InodeNr, Arc<CachedInode>>>,
    /// Inodes that recovery has to free or truncate.
    pub(crate) orphans: Orphans,
    /// Serializes renames that move a directory, so that none can come to lie under itself.
    pub(crate) rename_lock: Mutex<()>,
    /// The state the superblock had when it was opened, restored on close.
    state_before: u16,
    mmp: Mutex<Option<Guard>>,
    seed: AtomicU64,
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
    /// The number of handles and commits, and how long commits kept handles out.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.inner.journal.stats()
    }

    /// The superblock as it was when the volume was opened.
    #[must_use]
    pub fn superblock(&self) -> &SuperBlock {
        &self.sb
    }

    /// The policy of allocation.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.options.policy
    }

    /// Whether the volume is open for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The device under the volume.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Opens a transaction. Don't wait for anything while it is open.
    #[track_caller]
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_takes_changes()?;
        self.inner.journal.start(Credits::new(credits)).map_err(aborted)
    }

    /// Returns an error if the volume is open for reading only, closed, or has failed. File data goes to the
    /// device without a transaction, so writers of it call this first.
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

    /// The content of an inode's slot, also of an inode without links, and its location.
    pub(crate) fn read_slot(&self, nr: InodeNr) -> Result<(Inode, Home)> {
        let home = self.inode_home(nr)?;
        let (block, slot) = &home;
        let inode = Inode::parse(&block.bytes()[slot.clone()], nr, &self.sb).map_err(|error| {
            let error = Error::from(error);
            // A made-up number may lead to any content.
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

    /// The time that changes are stamped with.
    pub(crate) fn now(&self) -> Timestamp {
        self.nearest(self.options.fixed_time.unwrap_or_else(clock::coarse_now))
    }

    /// An arbitrary number, for inode generations.
    pub(crate) fn arbitrary(&self) -> u32 {
        low32(random::mixed(self.seed.fetch_add(random::STEP, Ordering::Relaxed)))
    }
}

impl Shared {
    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    pub(crate) fn incompat(&self, feature: Incompat) -> bool {
        self.sb.features().incompat.contains(feature)
    }

    /// Sets a feature that its first use requires.
    pub(crate) fn bring_feature(&self, feature: RoCompat) {
        let mut live = self.live_sb.lock();
        if !live.features().ro_compat.contains(feature) {
            live.add_ro_compat(feature);
        }
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
        self.options.fixed_time.unwrap_or_else(Timestamp::now)
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

pub(crate) fn aborted(aborted: Aborted) -> Error {
    Error::Aborted(aborted.reason().to_owned())
}
