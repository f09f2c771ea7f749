//! Latencies: a histogram of fixed size, and its summary.
//!
//! Classes are powers of two divided into eight, so a value is at most an eighth too high; each thread fills
//! its own and they are added in the end.

use hectare_units::log_scale::{self, LogScale};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds, eight buckets in each power of two.
const SCALE: LogScale = LogScale::new(0, 3, 61 << 3);

/// Counts by duration.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; SCALE.buckets()], total: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[SCALE.bucket(ns)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Its summary; `None` if it is empty.
    #[must_use]
    pub fn figures(&self) -> Option<Latency> {
        (self.total > 0).then(|| Latency {
            count: self.total,
            mean_ns: self.sum / self.total,
            min_ns: self.min,
            p50_ns: self.percentile(50),
            p95_ns: self.percentile(95),
            p99_ns: self.percentile(99),
            max_ns: self.max,
        })
    }

    fn percentile(&self, percent: u64) -> u64 {
        let found = log_scale::quantile(&self.counts, percent * 10);
        found.map_or(0, |(bucket, _)| (SCALE.end(bucket) - 1).min(self.max))
    }
}

/// Statistics of many durations, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    #[serde(default)]
    pub count: u64,
    /// The mean.
    pub mean_ns: u64,
    /// The shortest; 0 where that is not measured.
    #[serde(default)]
    pub min_ns: u64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 95 of 100 took no longer; 0 where that is not measured.
    #[serde(default)]
    pub p95_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_an_eighth_too_high() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.figures(), None);
        for n in 1..=1000_u64 {
            histogram.add(Duration::from_nanos(n * 100));
        }
        let mut twice = Histogram::default();
        twice.merge(&histogram);
        let figures = twice.figures().unwrap();
        assert_eq!((figures.min_ns, figures.max_ns, figures.mean_ns), (100, 100_000, 50_050));
        assert_eq!(figures.count, 1000);
        assert!((50_000..=56_250).contains(&figures.p50_ns), "{figures:?}");
        assert!((95_000..=106_875).contains(&figures.p95_ns), "{figures:?}");
        assert!((99_000..=100_000).contains(&figures.p99_ns), "{figures:?}");
    }
}
