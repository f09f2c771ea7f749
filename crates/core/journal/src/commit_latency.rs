//! Commit latency: a histogram of how long commits kept handles out, always on.
//!
//! Its buckets are eighths of powers of two, so that what is read from it is at most an eighth too high.

use crate::sync::{AtomicU64, Ordering};
use hectare_units::log_scale::{self, LogScale};
use std::time::Duration;

/// Buckets in each power of two, as a shift.
const FINE_SHIFT: u32 = 3;
/// In units of 2^7 nanoseconds, up to 2^32 units: nine minutes, the last for all beyond.
const SCALE: LogScale = LogScale::new(7, FINE_SHIFT, 30 << FINE_SHIFT);

/// The pauses so far.
pub(crate) struct Pauses {
    buckets: Box<[AtomicU64]>,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// How many handles and commits there were, and how long commits kept handles out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalStats {
    /// Handles started.
    pub handles_started: u64,
    /// Commits, with the one that failed if one did.
    pub commits: u64,
    /// How long no handle could start, all commits together.
    pub paused: Duration,
    /// The longest of these pauses.
    pub longest_pause: Duration,
    buckets: Vec<u64>,
}

impl JournalStats {
    /// A time that `per_mille` of 1000 pauses did not exceed, at most an eighth too high. Zero if there were
    /// none.
    #[must_use]
    pub fn pause_quantile(&self, per_mille: u64) -> Duration {
        let found = log_scale::quantile(&self.buckets, per_mille);
        found.map_or(Duration::ZERO, |(bucket, _)| end_of(bucket).min(self.longest_pause))
    }

    /// How many pauses there were by length: pauses shorter than the time and, but for the first, not shorter
    /// than half of it. The times are powers of two nanoseconds; the last counts all longer ones, too.
    pub fn pauses(&self) -> impl Iterator<Item = (Duration, u64)> {
        let ends = (0..).map(|coarse: usize| end_of((coarse << FINE_SHIFT) + (1 << FINE_SHIFT) - 1));
        ends.zip(self.buckets.chunks(1 << FINE_SHIFT).map(|counts| counts.iter().sum()))
    }
}

/// What the pauses of a bucket are shorter than.
fn end_of(bucket: usize) -> Duration {
    Duration::from_nanos(SCALE.end(bucket))
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self {
            buckets: std::iter::repeat_with(AtomicU64::default).take(SCALE.buckets()).collect(),
            total_ns: AtomicU64::default(),
            longest_ns: AtomicU64::default(),
        }
    }

    pub(crate) fn add(&self, pause: Duration) {
        let ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[SCALE.bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, handles_started: u64) -> JournalStats {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        JournalStats {
            handles_started,
            commits: buckets.iter().sum(),
            paused: Duration::from_nanos(self.total_ns.load(Ordering::Relaxed)),
            longest_pause: Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed)),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_the_buckets() {
        let pauses = Pauses::new();
        (0..99).for_each(|_| pauses.add(Duration::from_micros(100)));
        pauses.add(Duration::from_micros(900));
        let stats = pauses.stats(7);
        assert_eq!((stats.commits, stats.handles_started), (100, 7));
        assert_eq!(stats.paused, Duration::from_micros(99 * 100 + 900));
        let median = stats.pause_quantile(500);
        assert!(median > Duration::from_micros(100) && median < Duration::from_micros(113), "{median:?}");
        assert_eq!(stats.pause_quantile(1000), Duration::from_micros(900));
        let counted: Vec<_> = stats.pauses().filter(|(_, pauses)| *pauses > 0).collect();
        assert_eq!(counted, [(Duration::from_nanos(1 << 17), 99), (Duration::from_nanos(1 << 20), 1)]);
        assert_eq!(Pauses::new().stats(0).pause_quantile(990), Duration::ZERO);
    }
}
