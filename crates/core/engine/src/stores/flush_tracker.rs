//! Tracks the flushes of the device, so that a sync need not add one.
//!
//! A commit flushes. After waiting for a commit, a sync of data written earlier needs no flush of its own if
//! one of those flushes began after the data was written. Flushes are numbered as they begin.

use std::sync::atomic::{AtomicU64, Ordering};

/// The flushes of a device.
#[derive(Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    /// The highest number of a successful one.
    ended: AtomicU64,
}

/// A point in time between flushes.
#[derive(Clone, Copy)]
pub(crate) struct Moment(u64);

impl Flushes {
    /// Called before a flush, with nothing of it done; returns its number.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The flush with that number succeeded.
    pub(crate) fn end(&self, number: u64) {
        self.ended.fetch_max(number, Ordering::SeqCst);
    }

    /// Now.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.begun.load(Ordering::SeqCst))
    }

    /// Whether a flush that began after a moment has succeeded: what was written before the moment is
    /// durable.
    pub(crate) fn since(&self, moment: Moment) -> bool {
        self.ended.load(Ordering::SeqCst) > moment.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flushes_that_began_later_count() {
        let flushes = Flushes::default();
        let first = flushes.begin();
        let moment = flushes.now();
        flushes.end(first);
        assert!(!flushes.since(moment), "it may have begun before the data was written");
        let second = flushes.begin();
        assert!(!flushes.since(moment));
        flushes.end(second);
        assert!(flushes.since(moment));
        assert!(!flushes.since(flushes.now()));
    }
}
