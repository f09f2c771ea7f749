//! How a volume is opened.

use crate::observer::Observed;
use hectare_alloc::{Policy, Recording, Tunables};
use hectare_device::Device;
use hectare_ext4::superblock::{DataMode, OnError};
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

/// Which changes are durable when they return, beside those of inodes that are flagged so (`SYNC`,
/// `DIRSYNC`).
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
    /// Leave what the journal holds alone, which only who reads can: the volume is as its blocks are.
    pub no_replay: bool,
    /// Bytes of metadata blocks to keep in memory (a goal, not a bound while more are in use). Default 64
    /// MiB.
    pub cache_bytes: usize,
    /// Inodes to keep in memory (a goal likewise). Default 65,536.
    pub cache_inodes: usize,
    /// Whether the blocks reserved for root may be taken. Default: false.
    pub use_reserved_blocks: bool,
    /// Whether some clusters are kept so that freeing never wants for one (`s_resv_clusters` of the kernel).
    /// Default: true; who lays out a whole volume on purpose has the last one.
    pub keep_clusters: bool,
    /// The time that changes are stamped with, where it should not be the clock's (reproducible images).
    pub fixed_time: Option<hectare_ext4::time::Timestamp>,
    /// The seed of inode generations and other arbitrary choices, where they should be repeatable.
    pub seed: Option<u64>,
    /// How space is chosen for what is written. Default: [`Policy::HYBRID`].
    pub policy: Policy,
    /// The knobs of the search for space.
    pub tunables: Tunables,
    /// How much is kept of what requests for space went through, for
    /// [`Volume::explanation`](crate::Volume::explanation). Default: nothing.
    pub record: Option<Recording>,
    /// Whether freed space is discarded on the device once its transaction has committed. Default: false.
    pub discard: bool,
    /// How old a change may get before it is committed, by a thread of the volume's own. `None`: no thread;
    /// changes are committed when somebody syncs, or when much has gathered. Default: 5 seconds.
    pub commit_interval: Option<Duration>,
    /// The journal of a volume that keeps it elsewhere (`journal_dev`).
    pub journal: Option<JournalDevice>,
    /// What the journal promises of file data. `None`: what the superblock asks for
    /// (`s_default_mount_opts`), else [`DataMode::Ordered`]. A volume without a journal has no mode, and is
    /// refused if one is asked for here.
    ///
    /// - [`Journal`](DataMode::Journal): data of regular files goes through the log with the metadata that
    ///   names it, in the order it was written; nothing gathers before it is written. After a crash a file is
    ///   as it was after one of the last operations. Files that are flagged so (`chattr +j`) have this in
    ///   every mode.
    /// - [`Ordered`](DataMode::Ordered): data goes to its place before the transaction that names it.
    /// - [`Writeback`](DataMode::Writeback): the same as ordered. It asks for less, but there is nothing to
    ///   be left out: data is on its way before the transaction anyway, and the flush before the commit
    ///   block is needed for the log, or, where that lies on another device, for targets of symbolic links.
    pub data_mode: Option<DataMode>,
    /// Bytes that small appends may gather to in memory, over all files, before they are given a place. 0:
    /// every write goes to its place at once. Default: 64 MiB.
    pub delayed_bytes: usize,
    /// What is to be done when metadata turns out to be broken, where it should not be what the volume says
    /// ([`Volume::errors_behaviour`](crate::Volume::errors_behaviour) tells what each means).
    pub errors: Option<OnError>,
    /// Whether a failed write of file data is the end of all changes (`data_err=abort`), where it should not
    /// be as the volume says in its mount options. Unless one of both asks for it, it is not.
    pub data_errors_abort: Option<bool>,
    /// Which changes are durable when they return.
    pub synchronous: Synchronous,
    /// Whether every write over bytes that are there starts a handle, as ext4 did before its direct
    /// overwrites went without: what that costs can be measured. Default: false.
    pub overwrite_handles: bool,
    /// Who is called with the times that requests for space and commits took. Default: nobody.
    pub observer: Option<Observed>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_replay: false,
            cache_bytes: 64 << 20,
            cache_inodes: 65_536,
            use_reserved_blocks: false,
            keep_clusters: true,
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
            synchronous: Synchronous::default(),
            overwrite_handles: false,
            observer: None,
        }
    }
}

impl OpenOptions {
    /// Options for reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}
