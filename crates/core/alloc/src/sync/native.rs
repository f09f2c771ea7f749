//! The real locks and atomics.

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
pub(crate) use std::thread;

/// `n` words of zero, from memory that costs nothing until it is touched when there is much of it.
pub(crate) fn zeroed_words(n: usize) -> Vec<AtomicU64> {
    zerocopy::FromZeros::new_vec_zeroed(n)
        // Out of memory: the ordinary way ends as every other allocation without memory ends.
        .unwrap_or_else(|_| (0..n).map(|_| AtomicU64::new(0)).collect())
}
