//! The volume's own thread: gives a place to what was appended long ago, commits what has been waiting for
//! long, and brings home what fills the log.
//!
//! Operations never depend on it: who needs a commit makes one. The thread bounds how old an unwritten change
//! can get ([`OpenOptions::commit_interval`](crate::OpenOptions)), and takes work off the operations: a
//! transaction that has grown large is committed here while it may still grow, and checkpoints are made
//! before a commit has to wait for one.
//!
//! Hazard: the thread must not keep the volume open. It holds it only while it works; and if the last other
//! handle goes meanwhile, it is this thread that closes the volume, and it must then not wait for itself.

use crate::unwinding::Unwinding;
use crate::volume::{Inner, Volume};
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What the thread is told.
#[derive(Default)]
struct Told {
    stop: bool,
    commit: bool,
}

#[derive(Default)]
struct Signal {
    told: Mutex<Told>,
    changed: Condvar,
}

/// The thread, as others see it.
pub(crate) struct Background {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// A thread that commits a volume at intervals. Without one (the host has none left) everything works,
    /// but nothing is written before it must be.
    pub(crate) fn start(volume: Weak<Inner>, interval: Duration) -> Self {
        let signal = Arc::new(Signal::default());
        let shared = Arc::clone(&signal);
        let thread = thread::Builder::new()
            .name("hectare-commit".into())
            .spawn(move || run(&volume, &shared, interval))
            .ok();
        Self { signal, thread: Mutex::new(thread) }
    }

    /// Asks for a commit now.
    pub(crate) fn ask_for_commit(&self) {
        let mut told = self.signal.told.lock();
        if !told.commit {
            told.commit = true;
            self.signal.changed.notify_one();
        }
    }

    /// Ends the thread and waits until it has.
    pub(crate) fn stop(&self) {
        self.signal.told.lock().stop = true;
        self.signal.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // It ends whatever happened in it; there is nothing to learn from how.
            let _ = thread.join();
        }
    }
}

fn run(volume: &Weak<Inner>, signal: &Signal, interval: Duration) {
    let mut due = Instant::now() + interval;
    loop {
        {
            let mut told = signal.told.lock();
            while !told.stop && !told.commit {
                if signal.changed.wait_until(&mut told, due).timed_out() {
                    break;
                }
            }
            if told.stop {
                return;
            }
            told.commit = false;
        }
        due = Instant::now() + interval;
        let Some(inner) = volume.upgrade() else { return };
        let volume = Volume { inner };
        let _ends = Unwinding::watch(&volume, "a panic ended the thread that commits what has waited");
        // Failures are latched, and told to whoever syncs the file or changes the volume next.
        if volume.check_takes_changes().is_ok() {
            volume.place_aged(interval);
            let _ = volume.inner.work();
        }
    }
}
