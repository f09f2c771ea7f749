//! The figures of an experiment: how each is read from a run, and in what it is counted.

use crate::latency::Latency;
use crate::run::{Run, float};
use hectare_units::u64_of;
use serde::Serialize;

/// In what a figure is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Things.
    Count,
    /// Things per second.
    PerSecond,
    /// Megabytes (10^6 bytes) per second.
    MegabytesPerSecond,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Percent.
    Percent,
    /// Bytes.
    Bytes,
    /// A number without a unit.
    Ratio,
}

/// What can be read from a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Figure {
    /// Operations per second.
    Rate,
    /// Operations per second with the final sync.
    SyncedRate,
    /// Operations per second of one thread, on average.
    RatePerThread,
    /// The slowest thread, as a share of the mean.
    Slowest,
    /// Bytes written or given space per second, in megabytes.
    Bandwidth,
    /// The same in bytes.
    BytesPerSecond,
    /// The same with the final sync.
    SyncedBandwidth,
    /// KiB written.
    Kibibytes,
    /// Seconds of the work.
    Elapsed,
    /// How long operations took.
    Latency(Of),
    /// How long each took with the sync behind it.
    Synced(Of),
    /// How long requests for space took.
    Reservation(Of),
    /// How long commits took.
    Commit(Of),
    /// Seconds to open the volume.
    Open,
    /// Seconds to close it.
    Close,
    /// Time of processors in the kernel, in percent of the elapsed time of all threads.
    SystemTime,
    /// The same in user mode.
    UserTime,
    /// A count of the allocator by name.
    Count(&'static str),
    /// Requests that the pass of that name answered.
    Hits(&'static str),
    /// Requests that all passes answered together: calls of the allocator.
    Calls,
    /// Free extents scanned per call.
    ScannedPerCall,
    /// Handles that writes started, for each of them.
    HandlesPerWrite,
    /// Operations per second of the job of that name.
    JobRate(&'static str),
    /// Regions of 1 GiB that hold data.
    Regions,
    /// How fragmented those of them are that are fragmented; as a number, how many.
    Fragmentation(Of),
    /// The same, where fixed metadata splits free runs.
    StrictFragmentation(Of),
    /// Extents of a file, on average.
    ExtentsPerFile,
}

/// Which of many durations, or of the percentages of fragmented regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Number,
    Mean,
    Min,
    P50,
    P95,
    P99,
    Max,
}

impl Figure {
    /// In what it is counted.
    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Rate | Self::SyncedRate | Self::RatePerThread | Self::JobRate(_) => Unit::PerSecond,
            Self::BytesPerSecond => Unit::Bytes,
            Self::Bandwidth | Self::SyncedBandwidth => Unit::MegabytesPerSecond,
            Self::Elapsed => Unit::Seconds,
            Self::Latency(Of::Number)
            | Self::Synced(Of::Number)
            | Self::Reservation(Of::Number)
            | Self::Commit(Of::Number)
            | Self::Kibibytes
            | Self::Count(_)
            | Self::Hits(_)
            | Self::Calls
            | Self::Regions
            | Self::Fragmentation(Of::Number)
            | Self::StrictFragmentation(Of::Number) => Unit::Count,
            Self::Latency(_) | Self::Synced(_) | Self::Reservation(_) | Self::Open | Self::Close => {
                Unit::Nanoseconds
            }
            Self::Commit(_) => Unit::Milliseconds,
            Self::SystemTime | Self::UserTime | Self::Fragmentation(_) | Self::StrictFragmentation(_) => {
                Unit::Percent
            }
            Self::Slowest | Self::ScannedPerCall | Self::HandlesPerWrite | Self::ExtentsPerFile => {
                Unit::Ratio
            }
        }
    }

    /// Reads it; `None` where the run has no such figure.
    pub(super) fn of(self, run: &Run) -> Option<f64> {
        match self {
            Self::Rate => Some(run.measure.rate()),
            Self::SyncedRate => Some(run.synced_rate()),
            Self::RatePerThread => Some(run.measure.rate() / f64::from(run.threads.max(1))),
            Self::Slowest => run.measure.fairness().map(|fairness| fairness.slowest),
            Self::Bandwidth => Some(run.bandwidth() / 1e6),
            Self::BytesPerSecond => Some(run.bandwidth()),
            Self::SyncedBandwidth => Some(run.synced_bandwidth() / 1e6),
            Self::Kibibytes => Some(float(run.measure.bytes / 1024)),
            Self::Elapsed => Some(run.wall_seconds),
            Self::Latency(of) => of.read(run.measure.latency?),
            Self::Synced(of) => of.read(run.measure.sync_latency?),
            Self::Reservation(of) => of.read(run.timing.reservations?),
            Self::Commit(of) => {
                let scale = if of == Of::Number { 1.0 } else { 1e-6 };
                of.read(run.timing.commits?).map(|figure| figure * scale)
            }
            Self::Open => run.timing.open_seconds.map(|seconds| seconds * 1e9),
            Self::Close => run.timing.close_seconds.map(|seconds| seconds * 1e9),
            Self::SystemTime => share_of(run, run.timing.system_seconds?),
            Self::UserTime => share_of(run, run.timing.user_seconds?),
            Self::Count(name) => run.allocator.as_ref()?.counts.get(name).map(|count| float(*count)),
            Self::Hits(name) => {
                let passes = &run.allocator.as_ref()?.passes;
                passes.iter().find(|pass| pass.name == name).map(|pass| float(pass.hits()))
            }
            Self::Calls => calls(run),
            Self::ScannedPerCall => {
                let scanned = float(run.allocator.as_ref()?.count("extents_scanned"));
                calls(run).filter(|calls| *calls > 0.0).map(|calls| scanned / calls)
            }
            Self::HandlesPerWrite => {
                let handles = run.allocator.as_ref()?.counts.get("journal_handles")?;
                let writes = run.job("writes")?.operations;
                (writes > 0).then(|| float(*handles) / float(writes))
            }
            Self::JobRate(name) => run.job(name).map(crate::run::Measure::rate),
            Self::ExtentsPerFile => run.inspection.as_ref()?.files.per_file(),
            Self::Regions | Self::Fragmentation(_) => {
                self.of_regions(&run.inspection.as_ref()?.fragmentation.summary())
            }
            Self::StrictFragmentation(_) => {
                self.of_regions(&run.inspection.as_ref()?.fragmentation.strict_summary())
            }
        }
    }

    fn of_regions(self, summary: &crate::fragmentation::Summary) -> Option<f64> {
        Some(match self {
            Self::Regions => float(u64_of(summary.used)),
            Self::Fragmentation(of) | Self::StrictFragmentation(of) => match of {
                Of::Number => float(u64_of(summary.fragmented)),
                Of::Mean => summary.mean,
                Of::Min => summary.min,
                Of::P50 => summary.p50,
                Of::P95 => summary.p95,
                Of::P99 => summary.p99,
                Of::Max => summary.max,
            },
            _ => return None,
        })
    }
}

impl Of {
    fn read(self, latency: Latency) -> Option<f64> {
        let ns = match self {
            Self::Number => latency.count,
            Self::Mean => latency.mean_ns,
            Self::Min => latency.min_ns,
            Self::P50 => latency.p50_ns,
            Self::P95 => latency.p95_ns,
            Self::P99 => latency.p99_ns,
            Self::Max => latency.max_ns,
        };
        Some(float(ns))
    }
}

/// Requests that passes answered. The kernel's `goal_hits` are no pass: it counts there what a file's
/// preallocation answers, too.
fn calls(run: &Run) -> Option<f64> {
    let stats = run.allocator.as_ref()?;
    Some(float(stats.passes.iter().map(crate::stats::Pass::hits).sum()))
}

fn share_of(run: &Run, seconds: f64) -> Option<f64> {
    let elapsed = f64::from(run.threads) * (run.wall_seconds + run.sync_seconds);
    (elapsed > 0.0).then(|| 100.0 * seconds / elapsed)
}
