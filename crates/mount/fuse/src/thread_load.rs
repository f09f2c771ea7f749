//! Whether the threads that answer requests are all held up, and others are needed.
//!
//! A request may take long: to copy, sync, trim or free much on a slow device. As many of these as there are threads
//! would hold up every other request. So while all threads are busy and none of them takes a request, one is added
//! each [`HELD`]. An added thread ends as soon as it has answered a request and another thread is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long all threads must have been busy with the same requests.
const HELD: Duration = Duration::from_millis(20);
/// A request that was taken, in the count above that of the busy threads.
const TAKEN: u64 = 1 << 32;

/// What the threads of a connection are doing.
pub(crate) struct Load {
    /// The requests taken so far, in the upper half, and the threads that are busy with one.
    state: AtomicU64,
    threads: AtomicUsize,
    /// The watching thread looks by itself.
    is_watched: AtomicBool,
    watcher: Thread,
}

/// A thread that answers requests, from before it starts until it has ended.
pub(crate) struct Member(Arc<Load>);

/// A request that is being answered.
pub(crate) struct Busy<'l>(&'l Load);

impl Load {
    /// No threads yet; the current thread is to [watch](Self::watch).
    pub(crate) fn new() -> Arc<Self> {
        let (state, threads) = (AtomicU64::new(0), AtomicUsize::new(0));
        Arc::new(Self { state, threads, is_watched: AtomicBool::new(false), watcher: thread::current() })
    }

    /// Counts one more thread.
    pub(crate) fn join(self: &Arc<Self>) -> Member {
        self.threads.fetch_add(1, Ordering::SeqCst);
        Member(Arc::clone(self))
    }

    fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    fn busy(&self) -> usize {
        hectare_units::usize_of(hectare_units::low32(self.state.load(Ordering::SeqCst)))
    }

    fn all_busy(&self) -> bool {
        self.busy() >= self.threads()
    }

    /// Calls `add` whenever another thread is needed and there are fewer than `most`; returns when all threads have
    /// ended.
    pub(crate) fn watch(&self, most: usize, mut add: impl FnMut()) {
        while self.threads() > 0 {
            self.is_watched.store(false, Ordering::SeqCst);
            if !self.all_busy() {
                thread::park();
            }
            self.is_watched.store(true, Ordering::SeqCst);
            let before = self.state.load(Ordering::SeqCst);
            if !self.all_busy() {
                continue;
            }
            thread::park_timeout(HELD);
            let is_same = self.state.load(Ordering::SeqCst) == before;
            if is_same && self.all_busy() && (1..most).contains(&self.threads()) {
                add();
            }
        }
    }
}

impl Member {
    /// Notes that this thread has taken a request.
    pub(crate) fn begin(&self) -> Busy<'_> {
        let load = &*self.0;
        load.state.fetch_add(TAKEN + 1, Ordering::SeqCst);
        if load.all_busy() && !load.is_watched.swap(true, Ordering::SeqCst) {
            load.watcher.unpark();
        }
        Busy(load)
    }

    /// Whether another thread is idle, beside this one.
    pub(crate) fn is_spare(&self) -> bool {
        self.0.busy() + 1 < self.0.threads()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::SeqCst);
        self.0.watcher.unpark();
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Ordering::SeqCst);
    }
}
