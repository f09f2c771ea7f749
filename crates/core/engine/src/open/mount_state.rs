//! Marks the volume in use on the device when it is opened, and clean when it is closed.
//!
//! While a volume is open for writing, its superblock says so: that its journal may be needed
//! (`needs_recovery`), or, where there is none, that it was not cleanly unmounted. Closing writes everything,
//! flushes, and clears that.
//!
//! Invariant: the mark is durable before the first change, and is cleared only when everything else is
//! durable. A close that fails leaves it.

use crate::data::writeback;
use crate::error::Result;
use crate::names::remove;
use crate::space::quota;
use crate::state::{Core, State};
use crate::stores::volume_journal::VolumeLog;
use hectare_device::Device;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{self, STATE_ERROR, STATE_VALID};
use hectare_units::GroupNr;
use log::{error, info};
use std::sync::atomic::Ordering;

/// Writes everything, flushes, and marks the volume clean. Later changes fail; closing again does nothing.
/// Files without a name that are still open are freed.
pub(crate) fn close(core: &Core) -> Result<()> {
    if core.state.shut_down.load(Ordering::Acquire) {
        return finish(core);
    }
    let placed = if core.state.read_only { Ok(()) } else { writeback::end_delay(core) };
    remove::free_nameless(core)?;
    finish(core)?;
    placed
}

/// Marks the volume in use on the device.
pub(super) fn mark_open(state: &State) -> Result<()> {
    let superblock = {
        let mut live = state.refresh_superblock();
        match state.log {
            Some(_) => live.set_needs_recovery(true),
            None => live.set_state(state.state_before & !STATE_VALID),
        }
        live.render(GroupNr::new(0))
    };
    let first = state.log.as_ref().map(VolumeLog::next);
    write_superblock(state, &superblock)?;
    match (&state.log, first) {
        (Some(log), Some(first)) => log.begin(first),
        _ => Ok(()),
    }
}

/// Marks the volume as no longer in use on the device.
fn mark_closed(state: &State) -> Result<()> {
    let superblock = {
        state.record_findings();
        let mut live = state.refresh_superblock();
        live.set_needs_recovery(false);
        let errors = live.state() & STATE_ERROR;
        live.set_state(state.state_before | errors);
        live.render(GroupNr::new(0))
    };
    if let Some(log) = &state.log {
        log.checkpoint_all()?;
    }
    write_superblock(state, &superblock)
}

/// Writes the superblock to its final location, now and durably, while the log is clean, and stays so;
/// journals a copy first, so that a torn superblock can be recovered.
fn write_superblock(state: &State, superblock: &[u8; superblock::SIZE]) -> Result<()> {
    if let Some(log) = &state.log {
        log.stage(superblock, state.exact_now())?;
    }
    state.device.write_at(SUPERBLOCK_OFFSET, superblock)?;
    Ok(state.device.flush()?)
}

/// Ends all use of the volume, without placing the buffered bytes of files.
pub(super) fn finish(core: &Core) -> Result<()> {
    let state = &*core.state;
    if state.shut_down.load(Ordering::Acquire) {
        abandon(state);
    }
    if state.closed.load(Ordering::Acquire) || state.read_only {
        return Ok(());
    }
    // Needs a transaction, and none can begin once the volume is closed. An error is returned after the rest is
    // written.
    let placed = quota::place_waiting(core);
    if state.closed.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    core.stop_background();
    let ended = end(core).and(placed);
    let device = state.device.name();
    match &ended {
        Ok(()) => info!(device; "the volume is closed"),
        Err(error) => error!(device, error:%; "the volume could not be closed well"),
    }
    ended
}

/// Writes everything, and clears the mark.
fn end(core: &Core) -> Result<()> {
    core.sync_all()?;
    // What the last commit freed is free now.
    mark_closed(&core.state)?;
    let mmp = core.state.mmp.lock().take();
    match mmp {
        // That is the last change of the volume: it is somebody else's from then on.
        Some(mmp) => Ok(mmp.leave()?),
        None => Ok(core.state.device.flush()?),
    }
}

/// Releases a volume without writing to it.
pub(super) fn abandon(state: &State) {
    state.closed.store(true, Ordering::Release);
    let mmp = state.mmp.lock().take();
    if let Some(mmp) = mmp {
        // Another opener that finds the volume in use waits and sees that it is not.
        let _ = mmp.leave();
    }
}
