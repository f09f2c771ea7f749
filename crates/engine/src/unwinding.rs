//! Handles panics: memory can't be trusted after one, so nothing of it may reach the device.
//!
//! A panic is a defect of this program, wherever it occurs. With an open handle it leaves half a change, and
//! the handle itself ends all changes ([`hectare_journal`]). Where bytes or duties would be lost without a
//! handle, an [`Unwinding`] does; and a server that survives the panic of one request calls
//! [`Volume::end_changes`].
//!
//! What it is not: a way to continue. The volume can be read until it is closed, and is recovered when it is
//! next opened.

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
    /// Guards work that a panic would leave undone; `what` describes it in the log message.
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
    /// Ends all changes, with that reason if it is the first, as a failed commit does: nothing uncommitted
    /// will be committed, changes are refused, reading still works. Recorded in the superblock, as far as the
    /// device accepts it; the next opening recovers the volume.
    ///
    /// For callers that have caught a panic of the engine. No effect on a volume that is open for reading
    /// only.
    pub fn end_changes(&self, reason: impl Display) {
        self.inner.end_changes(reason);
    }
}

impl Inner {
    /// Ends all changes, like [`Volume::end_changes`].
    pub(crate) fn end_changes(&self, reason: impl Display) {
        if self.shared.read_only {
            return;
        }
        // This thread may be unwinding already. The end is known before it is written down.
        let _ = catch_unwind(AssertUnwindSafe(|| self.journal.abort(reason)));
    }
}
