//! Thread numbers, to spread shared state over separate cache lines.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A small number for the calling thread: 0 for the first that asks, 1 for the second, and so on. A thread
/// that is just ending may get 0.
#[must_use]
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}
