//! The counters of a whole volume.
//!
//! `available` is what anyone may still take: clusters free in memory less those claimed. Space is taken from
//! it only at the moment a run is taken, under the group's lock, never before the search: so nobody sees "no
//! space" because of what another request has not found yet, and the last cluster can be had.

use crate::sync::{AtomicU64, Ordering};
use hectare_units::Clusters;

/// A counter on a cache line (pair) of its own.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// The live counters. Each is exact once the operation that changes it has returned.
#[derive(Default)]
pub(crate) struct Counters {
    available: Counter,
    claimed: Counter,
    pending: Counter,
    durable_free: Counter,
    root_reserve: Counter,
}

/// Where every free cluster of the volume stands. Read while others allocate, the numbers may be of slightly
/// different moments; when nothing runs they are exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Free, and open to any request (the root reserve included).
    pub available: Clusters,
    /// Free, but promised to a [`Claim`](crate::Claim).
    pub claimed: Clusters,
    /// Held by a [`Reservation`](crate::Reservation).
    pub reserved: Clusters,
    /// Freed by a transaction that has not committed.
    pub pending: Clusters,
}

impl Counts {
    /// Free clusters in the durable bitmaps.
    #[must_use]
    pub fn durable_free(&self) -> Clusters {
        self.available + self.claimed + self.reserved + self.pending
    }
}

/// Takes from a counter as much as it holds above `floor`, at most `most`; `None` if that is under `least`.
fn take(counter: &Counter, most: u64, least: u64, floor: u64) -> Option<u64> {
    let mut taken = 0;
    let update = counter.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |have| {
        taken = have.saturating_sub(floor).min(most);
        (taken >= least).then(|| have - taken)
    });
    update.ok().map(|_| taken)
}

impl Counters {
    /// Counters of a volume whose groups announce `free` free clusters.
    pub(crate) fn new(free: u64) -> Self {
        let counters = Self::default();
        counters.available.0.store(free, Ordering::SeqCst);
        counters.durable_free.0.store(free, Ordering::SeqCst);
        counters
    }

    /// What must be left untouched for a caller who may or may not use the root reserve.
    pub(crate) fn floor(&self, take_root_reserve: bool) -> u64 {
        if take_root_reserve { 0 } else { self.root_reserve.0.load(Ordering::Relaxed) }
    }

    pub(crate) fn set_root_reserve(&self, n: Clusters) {
        self.root_reserve.0.store(n.get(), Ordering::Relaxed);
    }

    /// What a caller with this floor may take now.
    pub(crate) fn spendable(&self, floor: u64) -> u64 {
        self.available.0.load(Ordering::SeqCst).saturating_sub(floor)
    }

    /// Takes up to `most` available clusters but no fewer than `least`.
    pub(crate) fn take(&self, most: u64, least: u64, floor: u64) -> Option<u64> {
        take(&self.available, most, least, floor)
    }

    pub(crate) fn give_back(&self, n: u64) {
        self.available.0.fetch_add(n, Ordering::SeqCst);
    }

    /// Moves available clusters to a claim.
    pub(crate) fn claim(&self, n: u64, floor: u64) -> Option<()> {
        take(&self.available, n, n, floor)?;
        self.claimed.0.fetch_add(n, Ordering::SeqCst);
        Some(())
    }

    /// A claim has turned into a reservation.
    pub(crate) fn spend_claim(&self, n: u64) {
        self.claimed.0.fetch_sub(n, Ordering::SeqCst);
    }

    /// A claim is given up.
    pub(crate) fn unclaim(&self, n: u64) {
        self.claimed.0.fetch_sub(n, Ordering::SeqCst);
        self.give_back(n);
    }

    /// Reserved clusters become used on disk.
    pub(crate) fn publish(&self, n: u64) {
        self.durable_free.0.fetch_sub(n, Ordering::SeqCst);
    }

    /// Used clusters become free on disk, and wait for their transaction.
    pub(crate) fn free(&self, n: u64) {
        self.pending.0.fetch_add(n, Ordering::SeqCst);
        self.durable_free.0.fetch_add(n, Ordering::SeqCst);
    }

    /// Freed clusters may be used again.
    pub(crate) fn release(&self, n: u64) {
        self.pending.0.fetch_sub(n, Ordering::SeqCst);
        self.give_back(n);
    }

    pub(crate) fn durable_free(&self) -> Clusters {
        Clusters::new(self.durable_free.0.load(Ordering::SeqCst))
    }

    pub(crate) fn counts(&self) -> Counts {
        let [available, claimed, pending, durable_free] =
            [&self.available, &self.claimed, &self.pending, &self.durable_free]
                .map(|counter| counter.0.load(Ordering::SeqCst));
        // Reserved space is not counted on the hot path: it is what the other states leave over.
        let reserved = durable_free.saturating_sub(available.saturating_add(claimed).saturating_add(pending));
        Counts {
            available: Clusters::new(available),
            claimed: Clusters::new(claimed),
            reserved: Clusters::new(reserved),
            pending: Clusters::new(pending),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_lies_above_the_floor() {
        let counters = Counters::new(10);
        counters.set_root_reserve(Clusters::new(4));
        let floor = counters.floor(false);
        assert_eq!(counters.take(9, 7, floor), None);
        assert_eq!(counters.take(9, 1, floor), Some(6));
        assert_eq!(counters.take(9, 1, floor), None);
        assert_eq!(counters.claim(1, floor), None);
        assert_eq!(counters.take(3, 1, counters.floor(true)), Some(3));
        assert_eq!(counters.counts().available, Clusters::ONE);
    }
}
