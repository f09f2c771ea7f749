//! Handles panics: memory can't be trusted after one, so nothing of it may reach the device.
//!
//! A panic is a defect of this program, wherever it occurs. With an open handle it leaves half a change, and
//! the handle itself ends all changes ([`hectare_journal`]). Where bytes or duties would be lost without a
//! handle, an [`Unwinding`] does; and a server that survives the panic of one request calls
//! [`crate::Volume::end_changes`].
//!
//! What it is not: a way to continue. The volume can be read until it is closed, and is recovered when it is
//! next opened.

use crate::state::Core;
use std::thread;

/// Ends all changes of a volume if it is dropped by a panic that began after it was made.
pub(crate) struct Unwinding<'a> {
    core: &'a Core,
    what: &'static str,
    before: bool,
}

impl<'a> Unwinding<'a> {
    /// Guards work that a panic would leave undone; `what` describes it in the log message.
    pub(crate) fn watch(core: &'a Core, what: &'static str) -> Self {
        Self { core, what, before: thread::panicking() }
    }
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.before {
            self.core.end_changes(self.what);
        }
    }
}
