//! Whether space came back while somebody looked for it.
//!
//! A search goes from place to place. That each place was full when it was looked at does not mean that there
//! was ever a moment when nothing was free: a cluster may have come back in a place behind the search while
//! one was taken in a place before it. If nothing came back meanwhile, though, free space only shrank, what
//! was full stayed full, and at the end of the search nothing was free.
//!
//! So everything that makes space free is counted twice, before its first effect and after its last. Nothing
//! came back during a search if, at its end, no more were begun than had been completed at its start. One
//! count would not do: counted only before, one that is under way at the start goes unseen; counted only
//! after, one that is under way at the end.

use crate::sync::{AtomicU64, Ordering};

/// Counts the times space comes back.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Moves {
    begun: AtomicU64,
    completed: AtomicU64,
}

/// A move under way.
pub(crate) struct Moving<'a>(&'a Moves);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.complete();
    }
}

impl Moves {
    /// Space is about to come back.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Space is on its way as long as this exists.
    pub(crate) fn moving(&self) -> Moving<'_> {
        self.begin();
        Moving(self)
    }

    /// It has.
    pub(crate) fn complete(&self) {
        self.completed.fetch_add(1, Ordering::SeqCst);
    }

    /// To be remembered at the start of a search.
    pub(crate) fn before(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// Whether nothing has come back since [`before`](Self::before) gave `seen`.
    pub(crate) fn none_since(&self, seen: u64) -> bool {
        self.begun.load(Ordering::SeqCst) == seen
    }
}
