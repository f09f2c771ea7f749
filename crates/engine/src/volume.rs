//! A volume: everything that is shared by the operations on it.
//!
//! [`Volume`] is a cheap handle (clone it, share it between threads); the state behind it holds the caches,
//! the allocator, the groups and the journal. The last handle to go closes the volume; call [`Volume::close`]
//! to learn whether that worked.
//!
//! [`opening`] puts it together, [`in_use`] marks it on the device and closes it, [`durable`] decides when
//! changes are written. Not here: the operations themselves, which are methods of [`Volume`] beside their
//! subject (namespace, file data, attributes and others).

mod mount_state;
pub(crate) mod open;
mod sync;

use crate::background::Background;
use crate::cache::block::{BlockCache, Kind};
use crate::cache::inode::{CachedInode, Home, InodeCache};
use crate::clock;
use crate::commit::Committer;
use crate::delalloc::Delay;
use crate::discard::Discards;
use crate::error::{Error, Result};
use crate::flush_tracker::Flushes;
use crate::fs_errors::Findings;
use crate::groups::{Groups, Source};
use crate::mmp::Guard;
use crate::options::OpenOptions;
use crate::orphan::Orphans;
use crate::volume_journal::VolumeLog;
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
use hectare_units::{Blocks, InodeNr, low32, u64_of, usize_of};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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
    /// Set once by whoever shuts the volume down ([`crate::shutdown`]).
    pub(crate) shut_down: AtomicBool,
    /// Whether the superblock has changed in the running transaction beside its counts.
    pub(crate) superblock_changed: AtomicBool,
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

    /// How space is chosen.
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

    /// Opens a transaction. Nothing may be waited for while it is open.
    #[track_caller]
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
        self.nearest(self.options.fixed_time.unwrap_or_else(clock::coarse_now))
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
