//! Detects whether space was given back during a search.
//!
//! A search goes from place to place. That each place was full when it was examined does not mean that there
//! was ever a moment when nothing was free: a cluster may have been given back behind the search while one
//! was taken ahead of it. If nothing was given back meanwhile, though, free space only shrank, what was full
//! stayed full, and at the end of the search nothing was free.
//!
//! So everything that makes space free is counted twice, before its first effect and after its last. Nothing
//! was given back during a search if, at its end, no more were begun than had been completed at its start.
//! One count would not do: counted only before, one that is under way at the start goes unseen; counted only
//! after, one that is under way at the end.
//!
//! Space is given back all the time, and a search hardly ever fails. So each thread, or a few threads, count
//! on a cache line of their own, and a search that fails sums the counts. The sums are no snapshots, and need
//! not be. Let the sum of what was completed be read until t1, and that of what was begun from t2 on, later.
//! The first is no more than was completed by t1, the second no less than was begun by t2; and what was
//! completed by t1 was begun by then. So if the sums are equal, as many were completed by t1 as were begun by
//! t2: none was under way at t1, and none began before t2.

use crate::sync::{AtomicU64, Ordering, thread_number};

/// Stripes; a power of two. Explorers of schedules should meet more than one, but not many.
const STRIPES: usize = if cfg!(any(feature = "loom", feature = "shuttle")) { 2 } else { 64 };

/// What some of the threads have counted.
#[repr(align(128))]
#[derive(Default)]
struct Stripe {
    begun: AtomicU64,
    completed: AtomicU64,
}

/// Counts the times space comes back.
pub(crate) struct ReleaseEpoch(Box<[Stripe]>);

impl Default for ReleaseEpoch {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Stripe::default()).collect())
    }
}

/// A release under way.
pub(crate) struct Releasing<'a>(&'a ReleaseEpoch);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.complete();
    }
}

impl ReleaseEpoch {
    fn stripe(&self) -> &Stripe {
        &self.0[thread_number() % STRIPES]
    }

    fn sum(&self, of: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.0.iter().map(|stripe| of(stripe).load(Ordering::SeqCst)).sum()
    }

    /// Space is about to come back.
    pub(crate) fn begin(&self) {
        self.stripe().begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Space is on its way as long as this exists.
    pub(crate) fn releasing(&self) -> Releasing<'_> {
        self.begin();
        Releasing(self)
    }

    /// It has.
    pub(crate) fn complete(&self) {
        self.stripe().completed.fetch_add(1, Ordering::SeqCst);
    }

    /// To be remembered at the start of a search.
    pub(crate) fn before(&self) -> u64 {
        self.sum(|stripe| &stripe.completed)
    }

    /// Whether nothing has come back since [`before`](Self::before) gave `seen`.
    pub(crate) fn none_since(&self, seen: u64) -> bool {
        self.sum(|stripe| &stripe.begun) == seen
    }
}
