//! The options of opening a volume.

use crate::observer::Observed;
use hectare_alloc::{Policy, Recording, Tunables};
use hectare_device::{Clock, Device};
use hectare_ext4::quota::Kind as QuotaKind;
use hectare_ext4::superblock::{DataMode, OnError, Tolerances};
use hectare_ext4::time::Timestamp;
use hectare_units::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The device of a journal that does not lie on its volume.
#[derive(Clone)]
pub struct JournalDevice(pub Arc<dyn Device>);

impl std::fmt::Debug for JournalDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Which changes are durable when they return, besides those of inodes with the flags `SYNC` or `DIRSYNC`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Synchronous {
    /// None.
    #[default]
    Flagged,
    /// Those of names (the kernel's `dirsync`).
    Names,
    /// All: of names, content and attributes (`sync`). Times that only an access or an overwrite changes
    /// may wait.
    All,
}

/// Options of [`crate::Volume::open`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Open for reading only; nothing is written, not even the state.
    pub read_only: bool,
    /// Don't replay the journal, only for reading: the volume is used as its blocks are.
    pub no_replay: bool,
    /// Read the volume from the superblock at this byte of the device, only for reading. A group descriptor
    /// that is not usable is then taken from the backups.
    pub superblock_at: Option<Bytes>,
    /// What is tolerated of a damaged volume, only for reading.
    pub tolerances: Tolerances,
    /// Bytes of metadata blocks to keep in memory (a goal, not a bound while more are in use). Default 64
    /// MiB.
    pub cache_bytes: usize,
    /// Inodes to keep in memory (a goal likewise). Default 65,536.
    pub cache_inodes: usize,
    /// Whether the blocks reserved for root may be taken. Default: false.
    pub use_reserved_blocks: bool,
    /// Whether some clusters are reserved so that freeing never lacks one (`s_resv_clusters` of the kernel).
    /// Default: true; false makes the last cluster available, to lay out a whole volume on purpose.
    pub keep_clusters: bool,
    /// Write even to a volume that is marked as having errors, after its log is replayed. Default: false; true is
    /// for a repair, which mends what is wrong afterwards.
    pub with_errors: bool,
    /// The time that changes are stamped with, instead of the clock's (reproducible images).
    pub fixed_time: Option<Timestamp>,
    /// The seed of inode generations and other arbitrary choices, where they should be repeatable. What the
    /// volume has seen before (its count of written bytes) is mixed in, so that a volume that is opened several
    /// times with the same seed does not repeat its generations.
    pub seed: Option<u64>,
    /// How space is chosen for what is written. Default: [`Policy::HYBRID`].
    pub policy: Policy,
    /// The tunables of the search for space.
    pub tunables: Tunables,
    /// How much is recorded about requests for space, for
    /// [`Volume::explanation`](crate::Volume::explanation). Default: nothing.
    pub record: Option<Recording>,
    /// Whether freed space is discarded on the device once its transaction has committed. Default: false.
    pub discard: bool,
    /// How old a change may get before it is committed, by a thread of the volume's own. `None`: no thread;
    /// changes are committed by a sync, or when many are pending. Default: 5 seconds.
    pub commit_interval: Option<Duration>,
    /// The journal of a volume that keeps it elsewhere (`journal_dev`).
    pub journal: Option<JournalDevice>,
    /// What the journal guarantees for file data. `None`: what the superblock specifies
    /// (`s_default_mount_opts`), else [`DataMode::Ordered`]. A volume without a journal has no mode, and is
    /// refused if one is given here.
    ///
    /// - [`Journal`](DataMode::Journal): data of regular files goes through the log with the metadata that
    ///   names it, in the order it was written, without buffering. After a crash a file is as it was after
    ///   one of the last operations. Files with the flag (`chattr +j`) have this in every mode.
    /// - [`Ordered`](DataMode::Ordered): data is written before the transaction that names it.
    /// - [`Writeback`](DataMode::Writeback): the same as ordered. It requires less, but there is nothing to
    ///   leave out: data is written before the transaction anyway, and the flush before the commit block is
    ///   needed for the log, or, where that lies on another device, for targets of symbolic links.
    pub data_mode: Option<DataMode>,
    /// The most bytes of small appends to buffer in memory, over all files. 0: every write is placed at once.
    /// Default: 64 MiB.
    pub delayed_bytes: usize,
    /// The reaction to metadata corruption, instead of the volume's own
    /// ([`Volume::errors_behaviour`](crate::Volume::errors_behaviour) documents the values).
    pub errors: Option<OnError>,
    /// Whether a failed write of file data ends all changes (`data_err=abort`), instead of the volume's mount
    /// options. Unless either requires it, it does not.
    pub data_errors_abort: Option<bool>,
    /// Whether opening for writing waits, for 22 seconds or more, to see whether a volume with multiple-mount
    /// protection (`mmp`) that was not closed is still in use; without it such a volume is refused at once.
    pub mmp_wait: bool,
    /// How long opening such a volume for writing waits although it was closed, so that of two hosts that open
    /// it at the same moment one is refused. Zero, the default, is as the kernel does it: both have it then,
    /// until the first of them looks for its mark again some seconds later. A second suits servers.
    pub mmp_settle: Duration,
    /// The clock of the waits of that protection, and of the renewal of its mark.
    pub clock: Clock,
    /// Whether reads of files that fs-verity seals are verified; a block that is not as it was sealed is
    /// [`Error::Corrupt`](crate::Error::Corrupt).
    pub verify: bool,
    /// Which changes are durable when they return.
    pub synchronous: Synchronous,
    /// Whether every overwrite of existing bytes starts a handle, as in ext4 before its direct overwrites did
    /// without: to measure what that costs. Default: false.
    pub overwrite_handles: bool,
    /// The kinds of quotas whose limits are enforced, on volumes that have them, for operations on behalf of
    /// users ([`on_behalf`](crate::on_behalf)). Default: all. What is used is counted in any case.
    pub quota_limits: Vec<QuotaKind>,
    /// Whether what is used is counted anew, by reading all inodes. Default: only if changes were made without
    /// counting.
    pub recount_quotas: bool,
    /// The observer of how long allocations and commits took. Default: none.
    pub observer: Option<Observed>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_replay: false,
            superblock_at: None,
            tolerances: Tolerances::default(),
            cache_bytes: 64 << 20,
            cache_inodes: 65_536,
            use_reserved_blocks: false,
            keep_clusters: true,
            with_errors: false,
            fixed_time: None,
            seed: None,
            policy: Policy::default(),
            tunables: Tunables::default(),
            record: None,
            discard: false,
            commit_interval: Some(Duration::from_secs(5)),
            journal: None,
            data_mode: None,
            delayed_bytes: 64 << 20,
            errors: None,
            data_errors_abort: None,
            mmp_wait: true,
            mmp_settle: Duration::ZERO,
            clock: Clock::default(),
            verify: false,
            synchronous: Synchronous::default(),
            overwrite_handles: false,
            quota_limits: QuotaKind::ALL.to_vec(),
            recount_quotas: false,
            observer: None,
        }
    }
}

impl OpenOptions {
    /// The time for what is written: the fixed one, else the clock's.
    pub(crate) fn now(&self) -> Timestamp {
        self.fixed_time.unwrap_or_else(Timestamp::now)
    }

    /// Options for reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}
