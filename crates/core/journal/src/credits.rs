//! Credits: the limit on how much a transaction may still grow.
//!
//! A transaction must fit the log, and the blocks that an open handle will dirty are not known beforehand. So
//! before it starts a handle leases as many blocks as it may dirty at most ([`Credits`](crate::Credits)), and
//! returns the lease when it is closed; by then the volume has counted the blocks it did dirty. A handle may
//! start if the counted blocks and all leases together fit the transaction.
//!
//! That holds at the end, too: after the last start that passed, the open handles can add no more than their
//! leases, and the leases were counted.
//!
//! Handles start and end millions of times a second from every thread, and one counter of leases would be
//! the cache line they all write. So a returned lease stays with the shard of its thread, idle, and serves
//! the next handle there. A handle that finds no room collects the idle leases everywhere, and only if that
//! is not enough is a commit needed.
//!
//! A few changes have no handle: the times of overwrites and of appends that are buffered. Each of these gives
//! an [`Owed`], and [`Journal::settle`](crate::Journal::settle) commits if the transaction has outgrown its
//! share by it. So what is counted and what is leased exceed the share of a transaction by one block for each
//! thread that is between the two steps, and never by more. A share is a third of the log: with fewer threads
//! in that place than two thirds of the log have blocks, a transaction fits the log.

use crate::sync::{AtomicU32, Ordering};
use hectare_units::{thread_number, usize_of};

/// One block that was dirtied without a handle, which no lease has room for.
#[must_use = "the transaction may have outgrown the log: hand it to `Journal::settle`"]
#[derive(Debug)]
pub struct Owed(());

impl Owed {
    /// For a block that is dirty, and was not before.
    pub const fn one() -> Self {
        Self(())
    }
}

/// As many as the barrier has.
const SHARDS: u32 = 64;

/// Unused leases, on a cache line (pair) of their own.
#[repr(align(128))]
#[derive(Default)]
struct Idle(AtomicU32);

/// What handles have leased of the running transaction.
pub(crate) struct Leases {
    idle: Box<[Idle]>,
    /// All leases, idle ones included.
    leased: AtomicU32,
}

impl Leases {
    pub(crate) fn new() -> Self {
        Self {
            idle: std::iter::repeat_with(Idle::default).take(usize_of(SHARDS)).collect(),
            leased: AtomicU32::new(0),
        }
    }

    fn here(&self) -> &AtomicU32 {
        &self.idle[thread_number() % self.idle.len()].0
    }

    /// Leases `n` blocks of a transaction that holds `capacity`; returns whether there is room beside those
    /// that `in_use` counts. None may have leased more than `capacity`.
    pub(crate) fn take(&self, n: u32, in_use: impl Fn() -> u32, capacity: u32) -> bool {
        let here = self.here();
        let had = here.swap(0, Ordering::AcqRel);
        if had >= n {
            here.fetch_add(had - n, Ordering::AcqRel);
        } else {
            self.leased.fetch_add(n - had, Ordering::AcqRel);
        }
        let fits = || in_use().saturating_add(self.leased.load(Ordering::Acquire)) <= capacity;
        if fits() {
            return true;
        }
        self.collect();
        if fits() {
            return true;
        }
        self.leased.fetch_sub(n, Ordering::AcqRel);
        false
    }

    /// Gives a lease back.
    pub(crate) fn give(&self, n: u32) {
        self.here().fetch_add(n, Ordering::AcqRel);
    }

    /// Takes the idle leases of all shards out of the count.
    fn collect(&self) {
        let idle: u32 = self.idle.iter().map(|idle| idle.0.swap(0, Ordering::AcqRel)).sum();
        self.leased.fetch_sub(idle, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_leases_serve_again_and_are_collected_when_there_is_no_room() {
        let leases = Leases::new();
        assert!(leases.take(60, || 0, 100));
        assert!(!leases.take(60, || 0, 100), "both together are too many");
        leases.give(60);
        assert!(leases.take(50, || 0, 100), "of the idle ones");
        assert_eq!(leases.leased.load(Ordering::Relaxed), 60);
        leases.give(50);
        assert!(leases.take(30, || 70, 100), "after the idle ones were collected");
        assert!(!leases.take(1, || 70, 100));
        leases.give(30);
        assert!(!leases.take(1, || 100, 100));
        assert!(leases.take(100, || 0, 100));
    }

    #[test]
    fn leases_of_other_threads_are_collected() {
        let leases = Leases::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    if leases.take(10, || 0, 100) {
                        leases.give(10);
                    }
                });
            }
        });
        assert!(leases.take(100, || 0, 100));
    }
}
