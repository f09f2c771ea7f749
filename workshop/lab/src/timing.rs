//! Where the time of a run goes: opening and closing the volume, requests for space, commits, processors.
//!
//! Requests and commits are timed by the engine, if an [`Observer`] is set. That costs two clock readings for
//! each, so only experiments that show these times request them; their speeds are then those of an observed
//! volume.
//!
//! Processor time is that of this process: it does not include what kernel threads do on behalf of a mount.

use crate::latency::{Histogram, Latency};
use hectare_engine::Observer;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The times of one run. What was not measured is `None`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Seconds from the call to the open volume, or of the mount.
    pub open_seconds: Option<f64>,
    /// Seconds of the close, or of the unmount.
    pub close_seconds: Option<f64>,
    /// Seconds of processors in user mode.
    pub user_seconds: Option<f64>,
    /// Seconds of processors in the kernel.
    pub system_seconds: Option<f64>,
    /// How long requests for space took.
    pub reservations: Option<Latency>,
    /// How long commits took.
    pub commits: Option<Latency>,
}

/// Memory of threads' own: this many threads don't contend.
const SHARDS: usize = 64;

/// Counts how long requests for space and commits took.
#[derive(Debug)]
pub(crate) struct Times {
    shards: [Mutex<Histogram>; SHARDS],
    commits: Mutex<Histogram>,
}

impl Default for Times {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), commits: Mutex::default() }
    }
}

impl Times {
    /// The counts since the last call: requests for space, and commits.
    pub(crate) fn take(&self) -> [Option<Latency>; 2] {
        let mut requests = Histogram::default();
        for shard in &self.shards {
            requests.merge(&std::mem::take(&mut *shard.lock()));
        }
        let commits = std::mem::take(&mut *self.commits.lock());
        [requests.figures(), commits.figures()]
    }
}

fn add(to: &Mutex<Histogram>, took: Duration) {
    to.lock().add(took);
}

impl Observer for Times {
    fn reserved(&self, took: Duration) {
        add(&self.shards[hectare_units::thread_number() % SHARDS], took);
    }

    fn committed(&self, took: Duration) {
        add(&self.commits, took);
    }
}

/// What `act` returns, and how many seconds it took.
pub(crate) fn timed<T>(act: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let returned = act();
    (returned, began.elapsed().as_secs_f64())
}

/// Seconds of processors that this process has had so far, in user mode and in the kernel.
pub(crate) fn processor() -> Option<[f64; 2]> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name is in parentheses and may hold anything; the state is the first field behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = u32::try_from(rustix::param::clock_ticks_per_second()).ok().filter(|ticks| *ticks > 0)?;
    let seconds = |at: usize| Some(f64::from(fields.get(at)?.parse::<u32>().ok()?) / f64::from(ticks));
    Some([seconds(11)?, seconds(12)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_kind_and_once() {
        let times = Times::default();
        (1..=100).for_each(|n| times.reserved(Duration::from_nanos(n)));
        times.committed(Duration::from_micros(3));
        let [requests, commits] = times.take();
        assert_eq!(requests.map(|latency| (latency.count, latency.max_ns)), Some((100, 100)));
        assert_eq!(commits.map(|latency| (latency.count, latency.min_ns)), Some((1, 3000)));
        assert_eq!(times.take(), [None, None]);
    }

    #[test]
    fn work_shows_in_the_processors_time() {
        let before = processor().unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        let (mut n, mut after) = (0_u64, before);
        while after[0] - before[0] < 0.02 && Instant::now() < until {
            (0..10_000_u64).for_each(|m| n = n.wrapping_mul(31).wrapping_add(std::hint::black_box(m)));
            after = processor().unwrap();
        }
        assert!(after[0] + after[1] > before[0] + before[1], "{before:?} {after:?} {n}");
    }
}
