//! Shuts a volume down at once, like the kernel's `EXT4_IOC_SHUTDOWN`.
//!
//! The device is left as by a crash, and the next opening recovers it.
//!
//! Changes fail from then on as after a failed write ([`crate::Error::Aborted`], `EIO`), but nothing is
//! recorded in the superblock, and closing the volume writes nothing. The server of a mount has to refuse the
//! rest ([`crate::Volume::is_shut_down`]).
//!
//! Hazards: a running operation may still write file data, like one interrupted by a power cut. The MMP block
//! is released when the volume is closed: it is about the user of the volume, not about its content.

use crate::data::{sync, writeback};
use crate::error::Result;
use crate::state::Core;
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

/// Shuts the volume down; doing so again does nothing.
pub(crate) fn shut_down(core: &Core, how: Shutdown) -> Result<()> {
    if core.state.shut_down.load(Ordering::Acquire) {
        return Ok(());
    }
    let flushed = match how {
        Shutdown::Flush => sync::settle(core).and_then(|()| writeback::check_untold(core)),
        Shutdown::FlushLog if !core.state.read_only => core.commit(),
        Shutdown::FlushLog | Shutdown::Cut => Ok(()),
    };
    warn!(device = core.state.device.name(), how:?; "the volume is shut down");
    core.state.shut_down.store(true, Ordering::Release);
    core.end_changes("the volume was shut down");
    core.stop_background();
    flushed
}
