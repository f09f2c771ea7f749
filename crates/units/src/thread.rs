//! Numbers of threads, to spread what they share over cache lines of their own.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of this thread, counted from 0 in the order in which threads first ask.
#[must_use]
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: OnceCell<usize> = const { OnceCell::new() };
    }
    NUMBER.with(|number| *number.get_or_init(|| NEXT.fetch_add(1, Ordering::Relaxed)))
}
