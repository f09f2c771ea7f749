//! Threads that share work: what is left of it, and running it.

use crate::report::Error;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, ScopedJoinHandle, scope};

/// Numbers from 0 on that are given out once each, in ascending order.
pub(crate) struct Queue {
    next: AtomicUsize,
    end: usize,
}

impl Queue {
    /// As many numbers.
    pub(crate) fn new(count: usize) -> Self {
        Self { next: AtomicUsize::new(0), end: count }
    }

    /// The next number.
    pub(crate) fn next(&self) -> Option<usize> {
        Some(self.next.fetch_add(1, Relaxed)).filter(|next| *next < self.end)
    }

    /// Gives out no more.
    pub(crate) fn stop(&self) {
        self.next.store(self.end, Relaxed);
    }
}

/// Works on all parts at once, on the first with this thread. Where no thread can be made for a part, it
/// stays as it is.
pub(crate) fn each<T: Send>(
    first: T,
    others: impl Iterator<Item = T>,
    work: &(impl Fn(T) -> Result<(), Error> + Sync),
) -> Result<(), Error> {
    scope(|scope| {
        let spawn = |part| Builder::new().spawn_scoped(scope, move || work(part)).ok();
        let threads: Vec<_> = others.filter_map(spawn).collect();
        let own = work(first);
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).fold(own, Result::and)
    })
}
