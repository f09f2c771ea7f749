//! Shuts a volume down at once, like the kernel's `EXT4_IOC_SHUTDOWN`.
//!
//! The device is left as by a crash, and the next opening recovers it.
//!
//! Changes fail from then on as after a failed write ([`Error::Aborted`], `EIO`), but nothing is recorded in
//! the superblock, and closing the volume writes nothing. The server of a mount has to refuse the rest
//! ([`Volume::is_shut_down`]).
//!
//! Hazards: a running operation may still write file data, like one interrupted by a power cut. The MMP block
//! is released when the volume is closed: it is about the user of the volume, not about its content.

use crate::error::Result;
use crate::volume::Volume;
use log::warn;
use std::sync::atomic::Ordering;

/// What a shutdown still writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Everything.
    Flush,
    /// The changes of metadata so far, through the journal, with the data they need; buffered bytes of files
    /// are lost.
    FlushLog,
    /// Nothing.
    Cut,
}

impl Volume {
    /// Shuts the volume down; doing so again does nothing.
    ///
    /// # Errors
    /// The first failed write of those that `how` requires. The volume is shut down in any case.
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
