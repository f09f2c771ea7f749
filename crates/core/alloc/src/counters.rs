//! The counters of a whole volume.
//!
//! There are two kinds. `available` is what anyone may still take: clusters free in memory less those
//! claimed. It decides "no space", so it is one exact number; but it is touched only where a run is taken or
//! given back, never between reserved and used. What publishing and freeing change (free clusters of the
//! durable bitmaps, clusters waiting for their commit) is not needed during normal operation, so it is kept
//! in stripes, one cache line per thread or few threads, and summed when it is read.
//!
//! Space is taken from `available` only at the moment a run is taken, under the group's lock, never before
//! the search. So no request sees "no space" because of what another request has not found yet, and the
//! last cluster can be allocated.

use crate::request::Request;
use crate::sync::{AtomicU64, Ordering, thread_number};
use hectare_units::Clusters;

/// Something on a cache line (pair) of its own.
#[repr(align(128))]
#[derive(Default)]
struct Padded<T>(T);

/// Stripes; a power of two.
const STRIPES: usize = 64;

/// Changes made by some of the threads. Each wraps; only the sums mean something.
#[derive(Default)]
struct Stripe {
    pending: AtomicU64,
    durable_free: AtomicU64,
}

/// The live counters. Each is exact once the operation that changes it has returned.
pub(crate) struct Counters {
    available: Padded<AtomicU64>,
    claimed: Padded<AtomicU64>,
    root_reserve: Padded<AtomicU64>,
    /// Kept for vital requests.
    kept: Padded<AtomicU64>,
    /// Taken from `available` with groups that can't be loaded.
    set_aside: AtomicU64,
    /// What claims held of such groups: it is set aside as it is given back.
    owed: AtomicU64,
    stripes: [Padded<Stripe>; STRIPES],
}

/// Where every free cluster of the volume stands. Read while others allocate, the numbers may be of slightly
/// different moments; when nothing runs they are exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Free, and open to any request (the root reserve included).
    pub available: Clusters,
    /// Free, but promised to a [`Claim`](crate::Claim).
    pub claimed: Clusters,
    /// Held by a [`Reservation`](crate::Reservation) or a [`DiscardRun`](crate::DiscardRun).
    pub reserved: Clusters,
    /// Freed by a transaction that has not committed.
    pub pending: Clusters,
    /// Announced by groups that can't be loaded.
    pub set_aside: Clusters,
}

impl Counts {
    /// Free clusters in the durable bitmaps.
    #[must_use]
    pub fn durable_free(&self) -> Clusters {
        self.available + self.claimed + self.reserved + self.pending + self.set_aside
    }
}

/// Takes from a counter as much as it holds above `floor`, at most `most`; `None` if that is under `least`.
fn take(counter: &AtomicU64, most: u64, least: u64, floor: u64) -> Option<u64> {
    let mut taken = 0;
    let update = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |have| {
        taken = have.saturating_sub(floor).min(most);
        (taken >= least).then(|| have - taken)
    });
    update.ok().map(|_| taken)
}

impl Counters {
    /// Counters of a volume whose groups announce `free` free clusters.
    pub(crate) fn new(free: u64) -> Self {
        let counters = Self {
            available: Padded(AtomicU64::new(free)),
            claimed: Padded::default(),
            root_reserve: Padded::default(),
            kept: Padded::default(),
            set_aside: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            stripes: std::array::from_fn(|_| Padded::default()),
        };
        counters.stripes[0].0.durable_free.store(free, Ordering::SeqCst);
        counters
    }

    fn stripe(&self) -> &Stripe {
        &self.stripes[thread_number() % STRIPES].0
    }

    /// Clusters to leave untouched, given whether the caller may use the root reserve.
    pub(crate) fn floor(&self, take_root_reserve: bool) -> u64 {
        let kept = self.kept.0.load(Ordering::Relaxed);
        if take_root_reserve {
            kept
        } else {
            kept.saturating_add(self.root_reserve.0.load(Ordering::Relaxed))
        }
    }

    /// Clusters that a request must leave untouched.
    pub(crate) fn floor_of(&self, request: &Request) -> u64 {
        if request.vital { 0 } else { self.floor(request.take_root_reserve) }
    }

    pub(crate) fn set_root_reserve(&self, n: Clusters) {
        self.root_reserve.0.store(n.get(), Ordering::Relaxed);
    }

    pub(crate) fn keep(&self, n: Clusters) {
        self.kept.0.store(n.get(), Ordering::Relaxed);
    }

    /// What a caller with this floor may take now.
    pub(crate) fn spendable(&self, floor: u64) -> u64 {
        self.available.0.load(Ordering::SeqCst).saturating_sub(floor)
    }

    /// Takes up to `most` available clusters but no fewer than `least`.
    pub(crate) fn take(&self, most: u64, least: u64, floor: u64) -> Option<u64> {
        take(&self.available.0, most, least, floor)
    }

    pub(crate) fn give_back(&self, n: u64) {
        let n = if self.owed.load(Ordering::Relaxed) == 0 { n } else { n - self.pay(n) };
        self.available.0.fetch_add(n, Ordering::SeqCst);
    }

    /// Sets aside as much of what is given back as is owed; how much that was.
    #[cold]
    fn pay(&self, n: u64) -> u64 {
        let paid = take(&self.owed, n, 0, 0).unwrap_or(0);
        self.set_aside.fetch_add(paid, Ordering::SeqCst);
        paid
    }

    /// Takes the `n` free clusters of a group that can't be loaded from those available. What claims hold of them is
    /// owed until it is given back.
    pub(crate) fn set_aside(&self, n: u64) {
        let taken = take(&self.available.0, n, 0, 0).unwrap_or(0);
        self.set_aside.fetch_add(taken, Ordering::SeqCst);
        self.owed.fetch_add(n - taken, Ordering::SeqCst);
    }

    /// Makes them available again.
    pub(crate) fn take_back(&self, n: u64) {
        let forgiven = take(&self.owed, n, 0, 0).unwrap_or(0);
        let taken = take(&self.set_aside, n - forgiven, 0, 0).unwrap_or(0);
        self.available.0.fetch_add(taken, Ordering::SeqCst);
    }

    /// Moves available clusters to a claim.
    pub(crate) fn claim(&self, n: u64, floor: u64) -> Option<()> {
        take(&self.available.0, n, n, floor)?;
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
        self.stripe().durable_free.fetch_sub(n, Ordering::Relaxed);
    }

    /// Used clusters become free on disk, and wait for their transaction.
    pub(crate) fn free(&self, n: u64) {
        let stripe = self.stripe();
        stripe.pending.fetch_add(n, Ordering::Relaxed);
        stripe.durable_free.fetch_add(n, Ordering::Relaxed);
    }

    /// Freed clusters may be used again.
    pub(crate) fn release(&self, n: u64) {
        self.stripe().pending.fetch_sub(n, Ordering::Relaxed);
        self.give_back(n);
    }

    /// Corrects the number of the volume's free clusters by the difference to what was announced. Clusters
    /// already handed out stay so.
    pub(crate) fn correct(&self, by: i64) {
        let update = |have: u64| Some(have.saturating_add_signed(by));
        let _always = self.available.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update);
        self.stripe().durable_free.fetch_add(by.cast_unsigned(), Ordering::Relaxed);
    }

    /// The sum of one number over the stripes. A change that was counted half (one stripe read before, the
    /// other after) can only make it fall below 0, which counts as 0.
    fn sum(&self, of: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        let stripes = self.stripes.iter().map(|stripe| of(&stripe.0).load(Ordering::Relaxed));
        let sum = stripes.fold(0, u64::wrapping_add).cast_signed();
        u64::try_from(sum).unwrap_or(0)
    }

    pub(crate) fn available(&self) -> Clusters {
        Clusters::new(self.available.0.load(Ordering::SeqCst))
    }

    pub(crate) fn durable_free(&self) -> Clusters {
        Clusters::new(self.sum(|stripe| &stripe.durable_free))
    }

    pub(crate) fn counts(&self) -> Counts {
        let [available, claimed, set_aside] = [&self.available.0, &self.claimed.0, &self.set_aside]
            .map(|counter| counter.load(Ordering::SeqCst));
        let pending = self.sum(|stripe| &stripe.pending);
        let durable_free = self.durable_free().get();
        // Reserved space is not counted on the hot path: it is what the other states leave over.
        let elsewhere = [claimed, pending, set_aside].into_iter().fold(available, u64::saturating_add);
        let reserved = durable_free.saturating_sub(elsewhere);
        Counts {
            available: Clusters::new(available),
            claimed: Clusters::new(claimed),
            reserved: Clusters::new(reserved),
            pending: Clusters::new(pending),
            set_aside: Clusters::new(set_aside),
        }
    }
}

#[cfg(all(test, not(any(feature = "shuttle", feature = "loom"))))]
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

    #[test]
    fn what_claims_hold_of_a_group_that_is_set_aside_is_given_back_to_nobody() {
        let counters = Counters::new(100);
        assert_eq!(counters.claim(90, 0), Some(()));
        counters.set_aside(60);
        assert_eq!((counters.counts().available.get(), counters.counts().set_aside.get()), (0, 10));
        counters.unclaim(90);
        assert_eq!((counters.counts().available.get(), counters.counts().set_aside.get()), (40, 60));
        counters.take_back(60);
        assert_eq!((counters.counts().available.get(), counters.counts().set_aside.get()), (100, 0));
    }

    #[test]
    fn stripes_of_different_threads_add_up() {
        let counters = Counters::new(1000);
        std::thread::scope(|scope| {
            scope.spawn(|| counters.free(70));
            scope.spawn(|| counters.publish(30));
        });
        std::thread::scope(|scope| {
            scope.spawn(|| counters.release(50));
        });
        let counts = counters.counts();
        assert_eq!((counts.pending.get(), counters.durable_free().get()), (20, 1040));
        assert_eq!(counts.available.get(), 1050);
    }
}
