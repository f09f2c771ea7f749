//! Panics: what is in memory can't be trusted after one, so nothing of it may reach the device.
//!
//! A panic is a defect of this program, wherever it strikes. With a handle open it leaves half a change, and
//! the handle itself ends all changes ([`hectare_journal`]). Where bytes or duties would be lost without a
//! handle, an [`Unwinding`] does; and whoever serves others and survives the panic of one calls
//! [`Volume::end_changes`].
//!
//! What it is not: a way to go on. The volume is read until it is closed, and recovered when it is opened
//! next.

use crate::volume::{Inner, Volume};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Ends all changes of a volume if it is dropped by a panic that began after it was made.
pub(crate) struct Unwinding<'a> {
    inner: &'a Inner,
    what: &'static str,
    before: bool,
}

impl<'a> Unwinding<'a> {
    /// Watches over something that a panic would leave undone; `what` says it to whoever reads the log.
    pub(crate) fn watch(volume: &'a Volume, what: &'static str) -> Self {
        Self { inner: &volume.inner, what, before: thread::panicking() }
    }
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.before {
            self.inner.end_changes(self.what);
        }
    }
}

impl Volume {
    /// Ends all changes, for that reason if it is the first, as a failed commit does: nothing that has not
    /// been committed ever will be, changes are refused, what is read goes on being read. Recorded in the
    /// superblock, as far as the device takes it; the next to open the volume recovers it.
    ///
    /// For whoever has caught a panic of the engine. Of a volume that is open for reading only nothing
    /// happens.
    pub fn end_changes(&self, reason: impl Display) {
        self.inner.end_changes(reason);
    }
}

impl Inner {
    /// Ends all changes, as [`Volume::end_changes`].
    pub(crate) fn end_changes(&self, reason: impl Display) {
        if self.shared.read_only {
            return;
        }
        // Whoever is here may be unwinding already. That all has ended is known before it is written down.
        let _ = catch_unwind(AssertUnwindSafe(|| self.journal.abort(reason)));
    }
}
