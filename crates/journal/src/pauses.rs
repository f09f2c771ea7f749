//! How long commits kept handles out: a histogram in powers of two, always on.

use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// From below 2 us to 2^31 us and more.
const BUCKETS: usize = 32;

/// The pauses so far.
#[derive(Default)]
pub(crate) struct Pauses {
    buckets: [AtomicU64; BUCKETS],
    longest_ns: AtomicU64,
}

/// How long commits kept handles out, and how many handles there were.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalStats {
    /// Handles started.
    pub handles_started: u64,
    /// Commits.
    pub commits: u64,
    /// Commits by how long no handle could start: entry `i` counts those from 2^i to below 2^(i+1)
    /// microseconds; the first those below as well.
    pub pauses: Vec<u64>,
    /// The longest of them.
    pub longest_pause: Duration,
}

impl JournalStats {
    /// A time that so many of 1000 pauses did not exceed: the upper end of the bucket that it falls into, or the
    /// longest pause if that is less. Zero if there were none.
    #[must_use]
    pub fn pause_quantile(&self, per_mille: u64) -> Duration {
        let need = self.commits.saturating_mul(per_mille).div_ceil(1000);
        let mut seen = 0;
        for (power, count) in (0u32..).zip(&self.pauses) {
            seen += count;
            if seen >= need && seen > 0 {
                return Duration::from_micros(2 << power).min(self.longest_pause);
            }
        }
        self.longest_pause
    }
}

impl Pauses {
    pub(crate) fn add(&self, pause: Duration) {
        let us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX).max(1);
        let bucket = hectare_units::usize_of(us.ilog2()).min(BUCKETS - 1);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, handles_started: u64) -> JournalStats {
        let pauses: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        JournalStats {
            handles_started,
            commits: pauses.iter().sum(),
            pauses,
            longest_pause: Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_the_buckets() {
        let pauses = Pauses::default();
        for us in [0, 1, 1, 3, 3, 3, 3, 3, 3, 900] {
            pauses.add(Duration::from_micros(us));
        }
        let stats = pauses.stats(7);
        assert_eq!((stats.commits, stats.handles_started), (10, 7));
        assert_eq!(&stats.pauses[..10], [3, 6, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.pause_quantile(500), Duration::from_micros(4));
        assert_eq!(stats.pause_quantile(990), Duration::from_micros(900));
        assert_eq!(Pauses::default().stats(0).pause_quantile(990), Duration::ZERO);
    }
}
