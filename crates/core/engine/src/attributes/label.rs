//! The volume's label, which programs read and set (`FS_IOC_GETFSLABEL`, `FS_IOC_SETFSLABEL`).
//!
//! It changes with a transaction, like everything in the superblock. The copies in other groups keep the old
//! one: they serve for finding the groups again, and no program compares labels.

use crate::data::sync;
use crate::error::{Error, Result};
use crate::state::Core;
use std::sync::atomic::Ordering;

/// Sets the label, durably.
pub(crate) fn set_label(core: &Core, label: &[u8]) -> Result<()> {
    {
        let _handle = core.start(1)?;
        let set = core.state.live_sb.lock().set_label(label);
        if !set {
            return Err(Error::Invalid("a label has up to 16 bytes, none of them NUL"));
        }
        core.state.superblock_changed.store(true, Ordering::Release);
    }
    sync::settle(core)
}
