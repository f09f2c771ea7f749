//! The last minutes, second by second, so that the live page shows more than the present moment.
//!
//! One thread reads the counters once a second; the difference between two reads is a [`Sample`]. It costs
//! the mount nothing: counters are read, not changed.

use hectare_fuse::{Histogram, OperationsSnapshot};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of samples: two minutes.
const KEPT: usize = 120;

/// The activity of about a second.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Sample {
    /// Its end, in seconds since the mount began.
    pub(crate) at: f64,
    /// Its length, in seconds.
    pub(crate) seconds: f64,
    /// Requests that were answered.
    pub(crate) operations: u64,
    /// Bytes that were read.
    pub(crate) bytes_read: u64,
    /// Bytes that were written.
    pub(crate) bytes_written: u64,
    /// The median time of requests, in seconds; 0 if there were none.
    pub(crate) p50: f64,
    /// The 99th percentile of their times, in seconds.
    pub(crate) p99: f64,
    /// Commits.
    pub(crate) commits: u64,
}

/// Counters at one moment.
#[derive(Clone, Default)]
pub(crate) struct Look {
    at: Duration,
    times: Histogram,
    /// Requests by kind.
    kinds: Vec<u64>,
    bytes_read: u64,
    bytes_written: u64,
    commits: u64,
}

impl Look {
    pub(crate) fn new(at: Duration, operations: &OperationsSnapshot, commits: u64) -> Self {
        let (bytes_read, bytes_written) = (operations.bytes_read, operations.bytes_written);
        let kinds = operations.kinds.iter().map(|kind| kind.times.count()).collect();
        Self { at, times: operations.times(), kinds, bytes_read, bytes_written, commits }
    }

    /// Requests per second by kind.
    #[allow(clippy::cast_precision_loss)] // a second has fewer than 2^52
    fn rates(&self, earlier: &Self) -> Vec<f64> {
        let seconds = self.at.saturating_sub(earlier.at).as_secs_f64().max(1e-3);
        let before = earlier.kinds.iter().copied().chain(std::iter::repeat(0));
        self.kinds.iter().zip(before).map(|(now, then)| now.saturating_sub(then) as f64 / seconds).collect()
    }

    fn since(&self, earlier: &Self) -> Sample {
        let times = self.times.since(&earlier.times);
        Sample {
            at: self.at.as_secs_f64(),
            seconds: self.at.saturating_sub(earlier.at).as_secs_f64(),
            operations: times.count(),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            p50: times.quantile(500).as_secs_f64(),
            p99: times.quantile(990).as_secs_f64(),
            commits: self.commits.saturating_sub(earlier.commits),
        }
    }
}

/// The samples, the oldest first.
#[derive(Default)]
pub(crate) struct History {
    last: Look,
    rates: Vec<f64>,
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds the difference to the last reading.
    pub(crate) fn add(&mut self, look: Look) {
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(look.since(&self.last));
        self.rates = look.rates(&self.last);
        self.last = look;
    }

    /// Requests per second in the last sample, by kind; 0 before there is one.
    pub(crate) fn rates(&self) -> impl Iterator<Item = f64> {
        self.rates.iter().copied().chain(std::iter::repeat(0.0))
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_differences_and_the_oldest_go() {
        let mut history = History::default();
        let mut times = Histogram::default();
        for second in 1..=u64::try_from(KEPT).unwrap() + 5 {
            times.add(Duration::from_micros(100), second, Duration::from_micros(100 * second));
            history.add(Look {
                at: Duration::from_secs(second),
                times: times.clone(),
                kinds: vec![7 * second],
                bytes_read: 1000 * second,
                ..Look::default()
            });
        }
        let samples = history.samples();
        assert_eq!((samples.len(), samples[0].operations, samples[0].bytes_read), (KEPT, 6, 1000));
        assert!((samples[0].at - 6.0).abs() < 1e-9 && (samples[0].seconds - 1.0).abs() < 1e-9);
        assert!(history.rates().zip([7.0, 0.0]).all(|(found, rate)| (found - rate).abs() < 1e-9));
        assert!(samples[0].p50 > 65e-6 && samples[0].p99 <= 131.1e-6);
    }
}
