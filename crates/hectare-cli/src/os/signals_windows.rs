//! Windows: what ends a server, Control-C above all. It is looked for ten times a second.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(100);

/// Waits for the signal that ends a server; from now on none ends the process at once.
pub(crate) struct Ending(Arc<AtomicBool>);

impl Ending {
    pub(crate) fn new() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&came))?;
        }
        Ok(Self(came))
    }

    /// Returns whether one came.
    pub(crate) fn wait(self) -> bool {
        while !self.0.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        true
    }
}
