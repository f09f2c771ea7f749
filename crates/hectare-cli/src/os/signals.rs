//! Unix: the signals that end a server.

use super::ending_signals;
use signal_hook::iterator::Signals;
use std::io;

/// Waits for the signal that ends a server; from now on none ends the process at once.
pub(crate) struct Ending(Signals);

impl Ending {
    pub(crate) fn new() -> io::Result<Self> {
        Signals::new(ending_signals()).map(Self)
    }

    /// Returns whether one came.
    pub(crate) fn wait(mut self) -> bool {
        self.0.forever().next().is_some()
    }
}
