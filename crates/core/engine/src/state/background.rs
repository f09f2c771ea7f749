//! The volume's own thread: places old appends, commits at an interval, and checkpoints a full log.
//!
//! Operations never depend on it: one that needs a commit makes it. The thread bounds how old an unwritten
//! change
//! can get ([`OpenOptions::commit_interval`](crate::OpenOptions)), and takes work off the operations: a
//! transaction that has grown large is committed here while it may still grow, and checkpoints are made
//! before a commit has to wait for one.
//!
//! Hazard: the thread must not keep the volume open. It holds it only while it works; and if the last other
//! handle goes meanwhile, it is this thread that closes the volume, and it must then not wait for itself.

use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A volume, as its thread sees it.
pub(crate) trait Work: Send + Sync + 'static {
    /// One round of work; `interval` is how old an unwritten change may get.
    fn work(&self, interval: Duration);
}

/// What the thread is to do.
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

/// The thread, as its users see it.
pub(crate) struct Background {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// Starts a thread that commits a volume at intervals. Without one (the host has none left) everything
    /// works, but nothing is written before it must be.
    pub(crate) fn start<W: Work>(volume: Weak<W>, interval: Duration) -> Self {
        let signal = Arc::new(Signal::default());
        let shared = Arc::clone(&signal);
        let thread = thread::Builder::new()
            .name("hectare-commit".into())
            .spawn(move || run(&volume, &shared, interval))
            .ok();
        Self { signal, thread: Mutex::new(thread) }
    }

    /// Requests a commit now.
    pub(crate) fn ask_for_commit(&self) {
        let mut told = self.signal.told.lock();
        if !told.commit {
            told.commit = true;
            self.signal.changed.notify_one();
        }
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.signal.told.lock().stop = true;
        self.signal.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // It has ended, however it did; the result does not matter.
            let _ = thread.join();
        }
    }
}

fn run<W: Work>(volume: &Weak<W>, signal: &Signal, interval: Duration) {
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
        let Some(volume) = volume.upgrade() else { return };
        volume.work(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    struct Worker(Mutex<Sender<Duration>>);

    impl Work for Worker {
        fn work(&self, interval: Duration) {
            self.0.lock().send(interval).expect("the test listens");
        }
    }

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn the_thread_works_when_asked_and_ends_when_told() {
        let (sender, rounds) = channel();
        let worker = Arc::new(Worker(Mutex::new(sender)));
        let hour = Duration::from_secs(3600);
        let background = Background::start(Arc::downgrade(&worker), hour);
        background.ask_for_commit();
        assert_eq!(rounds.recv_timeout(SOON), Ok(hour));
        background.stop();
        assert_eq!(Arc::strong_count(&worker), 1, "the thread holds nothing");
        background.ask_for_commit();
        background.stop();
        assert!(rounds.try_recv().is_err());
    }

    #[test]
    fn the_thread_does_not_keep_the_volume() {
        let (sender, rounds) = channel();
        let worker = Arc::new(Worker(Mutex::new(sender)));
        let background = Background::start(Arc::downgrade(&worker), Duration::from_millis(1));
        assert!(rounds.recv_timeout(SOON).is_ok());
        drop(worker);
        while rounds.recv_timeout(SOON).is_ok() {}
        background.stop();
    }
}
