//! Ending the use of a volume at once, as the kernel's `EXT4_IOC_SHUTDOWN` does: what is on the device then
//! is what a crash would leave, and whoever opens the volume next recovers it.
//!
//! Changes fail from then on as after a failed write ([`Error::Aborted`], `EIO`), but nothing is recorded in
//! the superblock, and closing the volume writes nothing. Who mounts a volume has to refuse the rest
//! ([`Volume::is_shut_down`]).
//!
//! Hazards: an operation that is under way may still write file data to its place, as one that a power cut
//! overtakes. The block of multiple-mount protection is given back when the volume is closed: it is about who
//! uses the volume, not about what it holds.

use crate::error::Result;
use crate::volume::Volume;
use log::warn;
use std::sync::atomic::Ordering;

/// What is still written when a volume is shut down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Everything.
    Flush,
    /// The changes of metadata so far, through the journal, with the data they need; bytes that have gathered
    /// for files are lost.
    FlushLog,
    /// Nothing.
    Cut,
}

impl Volume {
    /// Ends the use of the volume; doing so again does nothing.
    ///
    /// # Errors
    /// The first of the writes that `how` asks for that failed. The volume is shut down in any case.
    pub fn shut_down(&self, how: Shutdown) -> Result<()> {
        if self.is_shut_down() {
            return Ok(());
        }
        let flushed = match how {
            Shutdown::Flush => self.sync(),
            Shutdown::FlushLog if !self.read_only => self.inner.commit(),
            Shutdown::FlushLog | Shutdown::Cut => Ok(()),
        };
        warn!(device = self.device.name(), how:?; "the volume is shut down");
        self.shut_down.store(true, Ordering::Release);
        self.inner.end_changes("the volume was shut down");
        self.inner.stop_background();
        flushed
    }

    /// Whether the volume was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }
}
