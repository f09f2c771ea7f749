//! Discards freed space on the device, once its freeing has committed.
//!
//! The allocator queues runs only after their transaction is durable, so nothing that a crash could bring
//! back is discarded; and it keeps a run reserved while it is being discarded, so the range is not written
//! meanwhile. On an image file a discard punches a hole; on a device it is passed through.
//!
//! Hazard: space being discarded is not available to others. An allocation that runs out of space therefore
//! waits for it before it fails ([`Discards::wait`]).
//!
//! After a device has refused once, it gets no more discards, and nothing is queued for it, which would keep
//! groups in memory: a discard is a hint, and its failure fails nothing.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of discarding that the threads of a volume share.
#[derive(Default)]
pub(crate) struct Discards {
    /// Held while runs are being discarded: they are free space that is unavailable for a moment.
    under_way: Mutex<()>,
    /// Batches that were returned.
    done: AtomicU64,
}

impl Discards {
    /// Runs `discard`, which takes runs, discards them and returns them, while no other thread does.
    pub(crate) fn with<R>(&self, discard: impl FnOnce() -> R) -> R {
        let _under_way = self.under_way.lock();
        let result = discard();
        self.done.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Runs `batch`, which discards some runs and reports whether there were any, until there are none, while
    /// no other thread discards.
    pub(crate) fn drain(&self, mut batch: impl FnMut() -> bool) {
        let _under_way = self.under_way.lock();
        while batch() {
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many batches were returned.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Waits until the runs being discarded now are returned.
    pub(crate) fn wait(&self) {
        drop(self.under_way.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_until_none_is_left() {
        let (discards, mut left) = (Discards::default(), 3);
        discards.drain(|| {
            left -= 1;
            left >= 0
        });
        assert_eq!(discards.done(), 3);
        assert!(discards.with(|| discards.under_way.try_lock().is_none()));
        assert_eq!(discards.done(), 4);
        discards.wait();
    }
}
