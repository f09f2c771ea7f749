//! Marks the volume in use on the device when it is opened, and clean when it is closed.
//!
//! While a volume is open for writing, its superblock says so: that its journal may be needed
//! (`needs_recovery`), or, where there is none, that it was not cleanly unmounted. Closing writes everything,
//! flushes, and clears that.
//!
//! Invariant: the mark is durable before the first change, and is cleared only when everything else is
//! durable. A close that fails leaves it.

use super::{Inner, Shared, Volume};
use crate::error::Result;
use crate::stores::volume_journal::VolumeLog;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{self, STATE_ERROR, STATE_VALID};
use hectare_units::GroupNr;
use log::{error, info};
use std::sync::atomic::Ordering;

impl Volume {
    /// Writes everything, flushes, and marks the volume clean. Later changes fail; closing again does
    /// nothing. Files without a name that are still open are freed.
    ///
    /// # Errors
    /// The first write that failed; the volume then stays marked as not clean.
    pub fn close(&self) -> Result<()> {
        if self.is_shut_down() {
            return self.inner.close();
        }
        let placed = if self.read_only { Ok(()) } else { self.end_delay() };
        self.free_nameless()?;
        self.inner.close()?;
        placed
    }
}

impl Shared {
    /// Marks the volume in use on the device.
    pub(super) fn mark_open(&self) -> Result<()> {
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

    /// Marks the volume as no longer in use on the device.
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

    /// Writes the superblock to its final location, now and durably, while the log is clean, and stays so;
    /// journals a copy first, so that a torn superblock can be recovered.
    fn write_superblock(&self, superblock: &[u8; superblock::SIZE]) -> Result<()> {
        if let Some(log) = &self.log {
            log.stage(superblock, self.exact_now())?;
        }
        self.device.write_at(SUPERBLOCK_OFFSET, superblock)?;
        Ok(self.device.flush()?)
    }
}

impl Inner {
    fn close(&self) -> Result<()> {
        if self.shared.shut_down.load(Ordering::Acquire) {
            self.abandon();
        }
        if self.shared.closed.swap(true, Ordering::AcqRel) || self.shared.read_only {
            return Ok(());
        }
        self.stop_background();
        let ended = self.end();
        let device = self.shared.device.name();
        match &ended {
            Ok(()) => info!(device; "the volume is closed"),
            Err(error) => error!(device, error:%; "the volume could not be closed well"),
        }
        ended
    }

    /// Writes everything, and clears the mark.
    fn end(&self) -> Result<()> {
        self.sync()?;
        // What the last commit freed is free now.
        self.shared.mark_closed()?;
        if let Some(mmp) = self.shared.mmp.lock().take() {
            mmp.leave(&*self.shared.device)?;
        }
        self.shared.device.flush()?;
        Ok(())
    }

    /// Stops the volume's thread, for callers that have ended all changes.
    pub(crate) fn stop_background(&self) {
        if let Some(background) = self.background.get() {
            background.stop();
        }
    }

    /// Releases a volume without writing to it.
    pub(super) fn abandon(&self) {
        self.shared.closed.store(true, Ordering::Release);
        if let Some(mmp) = self.shared.mmp.lock().take() {
            // Another opener that finds the volume in use waits and sees that it is not.
            let _ = mmp.leave(&*self.shared.device);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Errors can't be returned here; callers that need them call `Volume::close`. The volume then stays
        // marked as not clean on the device.
        let _ = self.close();
    }
}
