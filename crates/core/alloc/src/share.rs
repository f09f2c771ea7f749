//! A counted reference to the space of a volume, with a count for each thread or few threads.
//!
//! Every reservation holds such a reference, so one is made and dropped for each piece of space taken. With a
//! single count, its cache line would move between processors twice per piece, and all of them together could
//! take no more pieces a second than that line can move. So an allocator has a number of references to its
//! space, each with a count of its own, and a thread clones its own one. What is split off a reservation
//! counts with the same reference.
//!
//! What it is not: a lock. The space is open to every holder of a reference.

use crate::state::State;
use crate::sync::{Arc, count_reference, thread_number};
use std::ops::Deref;

/// Counts; a power of two.
const STRIPES: usize = 64;

/// A count on a cache line (pair) of its own: that of an `Arc` lies right before what it holds.
#[repr(align(128))]
struct Counted(Arc<State>);

/// A counted reference to the space of a volume.
pub(crate) struct Share(Arc<Counted>);

impl Clone for Share {
    fn clone(&self) -> Self {
        count_reference(&self.0);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        count_reference(&self.0);
    }
}

impl Deref for Share {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0.0
    }
}

/// The references that all threads clone.
pub(crate) struct Shares(Box<[Share]>);

impl Shares {
    /// References to some space.
    pub(crate) fn new(state: &Arc<State>) -> Self {
        Self((0..STRIPES).map(|_| Share(Arc::new(Counted(Arc::clone(state))))).collect())
    }

    /// That of the calling thread.
    pub(crate) fn own(&self) -> &Share {
        &self.0[thread_number() % STRIPES]
    }
}
