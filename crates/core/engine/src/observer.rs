//! Times the work of a volume, for callers that measure.
//!
//! The working threads call an observer once the work is done and with no lock held that another observer's
//! call could wait for. It is part of what it measures: it should do no more than count into memory of the
//! thread's own. Without one, nothing is timed.
//!
//! What it is not: the metrics that always exist ([`Volume::journal_stats`](crate::Volume::journal_stats),
//! [`Volume::allocator_stats`](crate::Volume::allocator_stats)), nor a place to act from: an observer that
//! calls the volume may deadlock on itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Receives the durations of parts of the work.
pub trait Observer: Send + Sync {
    /// An allocation request ended, with or without space.
    fn reserved(&self, _took: Duration) {}

    /// A transaction was committed: the time from its freeze until it was durable.
    fn committed(&self, _took: Duration) {}
}

/// An observer, in [`OpenOptions`](crate::OpenOptions).
#[derive(Clone)]
pub struct Observed(pub Arc<dyn Observer>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an observer")
    }
}
