//! The volume's label, which programs read and set (`FS_IOC_GETFSLABEL`, `FS_IOC_SETFSLABEL`).
//!
//! It changes with a transaction, like everything in the superblock. The copies in other groups keep the old
//! one: they serve for finding the groups again, and no program compares labels.

use crate::error::{Error, Result};
use crate::volume::Volume;
use std::sync::atomic::Ordering;

impl Volume {
    /// The current label, up to 16 bytes.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.live_sb.lock().label().to_vec()
    }

    /// Sets the label, durably.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one of more than 16 bytes, or with a NUL; or the error of the commit.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        {
            let _handle = self.start(1)?;
            let set = self.live_sb.lock().set_label(label);
            if !set {
                return Err(Error::Invalid("a label has up to 16 bytes, none of them NUL"));
            }
            self.superblock_changed.store(true, Ordering::Release);
        }
        self.sync()
    }
}
