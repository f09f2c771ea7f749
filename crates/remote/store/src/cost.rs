//! What was asked of a store: requests and bytes, which is what stores are paid for.

use std::fmt;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests and bytes, counted as they are sent: repeated ones too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Objects that were put.
    pub puts: u64,
    /// Objects, parts of them, or their properties, that were asked for.
    pub gets: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Objects that were deleted (up to 1,000 in one request).
    pub deletes: u64,
    /// Requests that were repeated; they are in the counts above, too.
    pub retries: u64,
    /// Bytes of objects that were put.
    pub sent: u64,
    /// Bytes of objects that were received.
    pub received: u64,
    /// Flushes that changed something.
    pub flushes: u64,
    /// Objects, or blocks of an image, that came from the cache file.
    pub kept: u64,
}

impl Sub for Cost {
    type Output = Self;

    /// What was spent since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            puts: self.puts.saturating_sub(earlier.puts),
            gets: self.gets.saturating_sub(earlier.gets),
            lists: self.lists.saturating_sub(earlier.lists),
            deletes: self.deletes.saturating_sub(earlier.deletes),
            retries: self.retries.saturating_sub(earlier.retries),
            sent: self.sent.saturating_sub(earlier.sent),
            received: self.received.saturating_sub(earlier.received),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            kept: self.kept.saturating_sub(earlier.kept),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { puts, gets, lists, deletes, retries, sent, received, flushes, kept } = self;
        write!(
            f,
            "{flushes} flushes, {puts} puts with {sent} bytes, {gets} gets with {received} bytes, \
             {lists} lists, {deletes} deletes, {retries} of these repeated"
        )?;
        if *kept > 0 { write!(f, "; {kept} from the cache file") } else { Ok(()) }
    }
}

/// The running counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) puts: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) kept: AtomicU64,
}

impl Counts {
    pub(crate) fn now(&self) -> Cost {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Cost {
            puts: of(&self.puts),
            gets: of(&self.gets),
            lists: of(&self.lists),
            deletes: of(&self.deletes),
            retries: of(&self.retries),
            sent: of(&self.sent),
            received: of(&self.received),
            flushes: of(&self.flushes),
            kept: of(&self.kept),
        }
    }
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}
