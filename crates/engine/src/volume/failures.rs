//! Reports metadata corruption, and records in the superblock why a volume takes no more changes.
//!
//! What is corrupt is collected in [`crate::stores::fs_errors`], which does no I/O; here it reaches the
//! superblock: with a commit, or at once when all changes end.

use super::{Shared, Volume};
use crate::recover;
use crate::stores::fs_errors::FoundErrors;
use hectare_device::Device;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{ERRCODE_IO, OnError, RecordedError, SuperBlock};
use hectare_units::GroupNr;
use log::error;
use std::sync::atomic::Ordering;

/// The error number (errno) of a failed device.
const EIO: i32 = 5;

impl Volume {
    /// What the volume does on metadata corruption: what it was opened with
    /// ([`OpenOptions::errors`](crate::OpenOptions)), or else what its superblock says.
    ///
    /// - [`OnError::Continue`]: the operation fails, the error is recorded in the superblock with the next
    ///   commit, and the volume stays in use.
    /// - [`OnError::RemountReadOnly`]: the error is recorded, and from then on every change is refused
    ///   ([`Error::Aborted`], which names the first error); what was not committed is lost. Reading still
    ///   works.
    /// - [`OnError::Panic`]: the same, since a library does not end the process; the server of a mount can
    ///   read this and act on it.
    ///
    /// A failed write or flush of metadata ends all changes in any case.
    #[must_use]
    pub fn errors_behaviour(&self) -> OnError {
        self.findings.reaction()
    }

    /// The corruption found since the volume was opened, also by readers; `None` if there was none. The
    /// [superblock](Self::superblock) has what was found before.
    #[must_use]
    pub fn found_errors(&self) -> Option<FoundErrors> {
        self.findings.told()
    }
}

impl Shared {
    /// Puts new errors into the superblock that is to be written; returns whether there were any.
    pub(crate) fn record_findings(&self) -> bool {
        self.findings.record(&mut self.live_sb.lock())
    }

    /// Records in the superblock that all changes have ended, and why; as far as the device still accepts it.
    pub(crate) fn record_failure(&self, reason: &str) {
        if self.shut_down.load(Ordering::Acquire) {
            return;
        }
        error!(device = self.device.name(), reason; "the volume takes no change any more");
        let mut live = self.live_sb.lock();
        self.findings.record(&mut live);
        if self.findings.stop() != Some(reason) {
            let time = self.exact_now();
            let error = RecordedError { function: reason, block: None, inode: None, time, code: ERRCODE_IO };
            live.record_error(&error);
        }
        // Uncommitted changes must not get to the device with it.
        let found = match &self.log {
            Some(log) => SuperBlock::parse(&log.durable_superblock(), self.device.len()).ok(),
            None => recover::read_superblock(&self.device, &self.options).ok(),
        };
        let Some(mut sb) = found else { return };
        sb.keep_errors_of(&live);
        if self.log.is_some() {
            sb.set_needs_recovery(true);
        }
        // If this fails as well, nothing is left to report it to.
        let _ = self.device.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)));
        match &self.log {
            Some(log) => drop(log.record_error(EIO)),
            None => drop(self.device.flush()),
        }
    }
}
