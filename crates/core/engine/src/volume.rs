//! A volume, as users of the library see it.
//!
//! [`Volume`] is a cheap handle (clone it, share it between threads); what is behind it is
//! [`crate::state::Core`]. Dropping the last handle closes the volume; [`Volume::close`] reports whether that
//! worked.
//!
//! The highest floor: the methods here and beside are a face. Each names an operation of a lower floor, where
//! the work is done, and documents it; only the path-level API ([`paths`]) is more, since it is made of those
//! methods.

mod attributes;
mod data;
#[cfg(feature = "format")]
pub(crate) mod format;
pub(crate) mod group_report;
pub(crate) mod held_space;
pub(crate) mod memory_stats;
mod names;
pub(crate) mod open_file;
mod paths;
pub(crate) mod pinned_inode;
pub(crate) mod quotas;
mod space;

use crate::error::Result;
use crate::open::shutdown::{self, Shutdown};
use crate::open::{self, Opened, mount_state};
use crate::options::OpenOptions;
use crate::state::Core;
use crate::stores::fs_errors::FoundErrors;
use crate::stores::orphans::Cleaned;
use hectare_alloc::Policy;
use hectare_device::Device;
use hectare_ext4::superblock::{OnError, SuperBlock};
use hectare_journal::JournalStats;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An ext4 volume in use.
pub struct Volume {
    opened: Arc<Opened>,
    /// The number of the last writeback error reported by [`Volume::sync`] of this handle.
    heard: AtomicU64,
}

impl Clone for Volume {
    fn clone(&self) -> Self {
        Self { opened: Arc::clone(&self.opened), heard: AtomicU64::new(self.heard.load(Ordering::Relaxed)) }
    }
}

impl Volume {
    /// What this handle was told of lost bytes.
    pub(crate) fn heard(&self) -> &AtomicU64 {
        &self.heard
    }

    /// Opens the volume on a device.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] or [`crate::Error::Unsupported`] name what keeps the volume from being read,
    /// or, unless opened read-only, from being written; [`crate::Error::ReadOnly`] if the device can't be
    /// written.
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<Self> {
        Ok(Self { opened: open::open(device, options)?, heard: AtomicU64::new(0) })
    }

    /// Writes everything, flushes, and marks the volume clean. Later changes fail; closing again does
    /// nothing. Files without a name that are still open are freed.
    ///
    /// # Errors
    /// The first write that failed; the volume then stays marked as not clean.
    pub fn close(&self) -> Result<()> {
        mount_state::close(self.core())
    }

    /// What operations work on.
    pub(crate) fn core(&self) -> &Core {
        &self.opened.core
    }

    /// Whether both are handles of one open volume.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened)
    }

    /// What was cleaned up when the volume was opened; nothing if it is open for reading only, when all is
    /// left as it is.
    #[must_use]
    pub fn cleaned(&self) -> Cleaned {
        self.core().state.orphans.cleaned().unwrap_or_default()
    }

    /// Shuts the volume down; doing so again does nothing.
    ///
    /// # Errors
    /// The first failed write of those that `how` requires. The volume is shut down in any case.
    pub fn shut_down(&self, how: Shutdown) -> Result<()> {
        shutdown::shut_down(self.core(), how)
    }

    /// Whether the volume was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.core().state.shut_down.load(Ordering::Acquire)
    }

    /// Ends all changes, with that reason if it is the first, as a failed commit does: nothing uncommitted
    /// will be committed, changes are refused, reading still works. Recorded in the superblock, as far as the
    /// device accepts it; the next opening recovers the volume.
    ///
    /// For callers that have caught a panic of the engine. No effect on a volume that is open for reading
    /// only.
    pub fn end_changes(&self, reason: impl Display) {
        self.core().end_changes(reason);
    }

    /// The number of handles and commits, and how long commits kept handles out.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.core().journal.stats()
    }

    /// The superblock as it was when the volume was opened.
    #[must_use]
    pub fn superblock(&self) -> &SuperBlock {
        &self.core().state.sb
    }

    /// The policy of allocation.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.core().state.options.policy
    }

    /// Whether the volume is open for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.core().state.read_only
    }

    /// The device under the volume.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.core().state.device
    }

    /// What the volume does on metadata corruption: what it was opened with
    /// ([`OpenOptions::errors`](crate::OpenOptions)), or else what its superblock says.
    ///
    /// - [`OnError::Continue`]: the operation fails, the error is recorded in the superblock with the next
    ///   commit, and the volume stays in use.
    /// - [`OnError::RemountReadOnly`]: the error is recorded, and from then on every change is refused
    ///   ([`crate::Error::Aborted`], which names the first error); what was not committed is lost. Reading
    ///   still works.
    /// - [`OnError::Panic`]: the same, since a library does not end the process; the server of a mount can
    ///   read this and act on it.
    ///
    /// A failed write or flush of metadata ends all changes in any case.
    #[must_use]
    pub fn errors_behaviour(&self) -> OnError {
        self.core().state.findings.reaction()
    }

    /// The corruption found since the volume was opened, also by readers; `None` if there was none. The
    /// [superblock](Self::superblock) has what was found before.
    #[must_use]
    pub fn found_errors(&self) -> Option<FoundErrors> {
        self.core().state.findings.told()
    }
}
