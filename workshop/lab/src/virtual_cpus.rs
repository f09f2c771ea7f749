//! Simulates the allocator on up to 256 processors, by virtual time: the requests of `fallocate2` on virtual
//! CPUs (`hectare_alloc_virtual`), and on real threads to compare.
//!
//! The model, its costs, its validation and what it leaves out are in `docs/virtual-cpus.md`.
//!
//! What it is not: a benchmark of this machine. Its figures are predictions, the same on every machine.

mod calibrate;
mod costs;
mod native;
mod simulated;
mod volume;

pub use calibrate::calibrate;
pub use costs::COSTS;
pub use hectare_alloc_virtual::virtual_cpus::{Costs, Time};
pub use volume::Fill;

use hectare_alloc_virtual::virtual_cpus as machine;
use hectare_units::{u64_of, usize_of};
use serde::Serialize;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use volume::Volume;

/// What is run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Options {
    /// How many virtual CPUs, each 1 to 256.
    pub cpus: Vec<u32>,
    /// The policies, as `--policy` takes them.
    pub policies: Vec<String>,
    /// The volumes.
    pub fills: Vec<Fill>,
    /// Steps of 8 KiB in each run, over all CPUs.
    pub steps: u64,
    /// The cost model.
    pub costs: Costs,
}

/// The kernel's designs before and after, and ours.
pub const POLICIES: [&str; 5] =
    ["mballoc-linear,-try-lock,-peek", "mballoc-linear", "mballoc,-try-lock,-peek", "mballoc", "hybrid"];

impl Default for Options {
    fn default() -> Self {
        Self {
            cpus: (0..=8).map(|log| 1 << log).collect(),
            policies: POLICIES.map(str::to_owned).to_vec(),
            fills: Fill::ALL.to_vec(),
            steps: 200_000,
            costs: COSTS,
        }
    }
}

/// The result of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The policy.
    pub policy: String,
    /// The volume at the start.
    pub fill: Fill,
    /// CPUs, each with one job.
    pub cpus: u32,
    /// Steps of 8 KiB that were made.
    pub steps: u64,
    /// How long that took, in seconds of the CPUs' time.
    pub seconds: f64,
    /// Steps a second, of all CPUs together.
    pub per_second: f64,
    /// Steps of the CPU that made the fewest.
    pub slowest: u64,
    /// Steps of the CPU that made the most.
    pub fastest: u64,
    /// Requests for space.
    pub requests: u64,
    /// Groups skipped because another thread held their lock.
    pub busy_skips: u64,
    /// Times a request waited for a group's lock.
    pub busy_waits: u64,
    /// Free runs looked at.
    pub extents_scanned: u64,
}

/// Runs everything that the options name, in the order of volumes, policies and CPUs.
///
/// # Panics
/// If a number of CPUs is not 1 to 256, or there is no policy of a name.
#[must_use]
pub fn run(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for fill in &options.fills {
        for policy in &options.policies {
            for cpus in &options.cpus {
                rows.push(run_one(policy, *fill, *cpus, options.steps, &options.costs));
            }
        }
    }
    rows
}

/// One run on virtual CPUs.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_one(policy: &str, fill: Fill, cpus: u32, steps: u64, costs: &Costs) -> Row {
    let shared = simulated::replay::Shared::new(Volume(fill), policy);
    let total = AtomicU64::new(0);
    let done: Vec<AtomicU64> = (0..cpus).map(|_| AtomicU64::new(0)).collect();
    let ends = machine::run(cpus, costs, |cpu| {
        let enough = |_| total.fetch_add(1, Ordering::Relaxed) >= steps;
        done[usize_of(cpu)].store(shared.work(cpu, enough), Ordering::Relaxed);
    });
    let end = ends.into_iter().max().unwrap_or_default();
    let stats = shared.stats();
    let done: Vec<u64> = done.into_iter().map(AtomicU64::into_inner).collect();
    let counted = [stats.reqs, stats.busy_skips, stats.busy_waits, stats.extents_scanned];
    row((policy, fill), &done, end.ns() / 1e9, counted)
}

/// The same on threads of this machine, each for `time`; `None` if one was preempted meanwhile, which says
/// more about other load than about the allocator.
///
/// # Panics
/// If there is no such policy.
#[must_use]
pub fn run_real(policy: &str, fill: Fill, threads: u32, time: Duration) -> Option<Row> {
    let shared = native::replay::Shared::new(Volume(fill), policy);
    let ready = AtomicU32::new(0);
    let worked: Vec<(u64, f64, bool)> = std::thread::scope(|scope| {
        let work = |job| {
            let (shared, ready) = (&shared, &ready);
            scope.spawn(move || {
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < threads {
                    std::thread::yield_now();
                }
                let (before, started) = (preemptions(), Instant::now());
                let enough = |done: u64| done.is_multiple_of(LOOK_EVERY) && started.elapsed() >= time;
                let done = shared.work(job, enough);
                (done, started.elapsed().as_secs_f64(), before == preemptions())
            })
        };
        let jobs: Vec<_> = (0..threads).map(work).collect();
        jobs.into_iter().map(|job| job.join().expect("a job does not panic")).collect()
    });
    let done: Vec<u64> = worked.iter().map(|job| job.0).collect();
    let seconds = worked.iter().map(|job| job.1).fold(0.0, f64::max);
    let stats = shared.stats();
    let counted = [stats.reqs, stats.busy_skips, stats.busy_waits, stats.extents_scanned];
    worked.iter().all(|job| job.2).then(|| row((policy, fill), &done, seconds, counted))
}

/// Steps between two clock readings.
const LOOK_EVERY: u64 = 64;

/// Times the calling thread was preempted although runnable; `None` where that is not reported.
fn preemptions() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

#[allow(clippy::cast_precision_loss)] // rates, to be looked at
fn row((policy, fill): (&str, Fill), done: &[u64], seconds: f64, counted: [u64; 4]) -> Row {
    let steps: u64 = done.iter().sum();
    let [requests, busy_skips, busy_waits, extents_scanned] = counted;
    Row {
        policy: policy.to_owned(),
        fill,
        cpus: u32::try_from(u64_of(done.len())).unwrap_or(u32::MAX),
        steps,
        seconds,
        per_second: steps as f64 / seconds,
        slowest: done.iter().copied().min().unwrap_or(0),
        fastest: done.iter().copied().max().unwrap_or(0),
        requests,
        busy_skips,
        busy_waits,
        extents_scanned,
    }
}

#[cfg(test)]
mod tests;
