//! Latencies: a histogram of fixed size, and what is told of it.
//!
//! Classes are powers of two cut into eight, so a figure is at most an eighth too high; each thread fills its
//! own and they are added in the end.

use hectare_units::{index_of, u64_of};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const CUTS: u32 = 3; // 2^3 classes per power of two
const CLASSES: usize = 64 << CUTS;

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
        Self { counts: vec![0; CLASSES], total: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[class(ns)] += 1;
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

    /// What is told of it; `None` of nothing.
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
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(index).min(self.max);
            }
        }
        self.max
    }
}

fn class(ns: u64) -> usize {
    let power = ns.max(1).ilog2();
    let cut = if power >= CUTS { (ns >> (power - CUTS)) & 7 } else { 0 };
    index_of(u64::from(power) << CUTS | cut)
}

/// The longest duration of a class.
fn upper(index: usize) -> u64 {
    let (power, cut) = (u64_of(index) >> CUTS, u64_of(index) & 7);
    if power < u64::from(CUTS) {
        return (1 << (power + 1)) - 1;
    }
    let step = 1_u64 << (power - u64::from(CUTS));
    ((1_u64 << power) - 1).saturating_add(step.saturating_mul(cut + 1))
}

/// What is told of many durations, in nanoseconds.
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

    #[test]
    fn every_duration_has_a_class_that_holds_it() {
        for ns in [0, 1, 2, 7, 8, 9, 1000, 4095, 4096, u64::MAX / 2, u64::MAX] {
            let index = class(ns);
            assert!(index < CLASSES && upper(index) >= ns, "{ns}");
            assert!(index == 0 || ns == 0 || upper(index - 1) < ns || ns < 8, "{ns}");
        }
    }
}
