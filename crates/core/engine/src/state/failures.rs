//! Records in the superblock what is corrupt, and why a volume takes no more changes.
//!
//! What is corrupt is collected in [`crate::stores::fs_errors`], which does no I/O. It reaches the superblock
//! with the next commit, or at once when all changes end.

use crate::state::State;
use hectare_device::Device;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{self, ERRCODE_IO, RecordedError, SuperBlock};
use hectare_units::GroupNr;
use log::error;
use std::sync::atomic::Ordering;

/// The error number (errno) of a failed device.
const EIO: i32 = 5;

impl State {
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
            None => self.superblock_on_device(),
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

    /// The superblock on the device of a volume without a log, if it is whole.
    fn superblock_on_device(&self) -> Option<SuperBlock> {
        let mut bytes = [0; superblock::SIZE];
        self.device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
        SuperBlock::parse(&bytes, self.device.len()).ok()
    }
}
