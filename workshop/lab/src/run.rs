//! The measurements of one run of one workload on one target.

use crate::inspect::Inspection;
use crate::latency::Latency;
use crate::stats::AllocatorStats;
use crate::timing::Timing;
use hectare_engine::Explanation;
use serde::{Deserialize, Serialize};

/// One run. A report shows nothing but this data, so that it can be made again from stored runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The workload's name.
    pub workload: String,
    /// Its options, in the words of the command line ("64 KiB, fsync each").
    pub variant: String,
    /// What it ran on: the image or directory.
    pub target: String,
    /// `engine`, how it reaches the image ([`Through`](crate::Through)) and the data mode, if one was
    /// requested; `raw`, or the kernel's name of the file system.
    pub system: String,
    /// The engine's policy.
    pub policy: Option<String>,
    /// A user-given name of the run.
    pub label: Option<String>,
    /// Threads that worked at a time.
    pub threads: u32,
    /// What was done, by the threads that are measured.
    pub measure: Measure,
    /// Its parts, where the workload has several.
    pub jobs: Vec<JobFigures>,
    /// Seconds from the start to the end of the last thread.
    pub wall_seconds: f64,
    /// Seconds the final sync took.
    pub sync_seconds: f64,
    /// Where the files are, if they were left.
    pub folder: Option<String>,
    /// What the allocator counted.
    pub allocator: Option<AllocatorStats>,
    /// How long commits kept all changes waiting, where that is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pauses: Option<Latency>,
    /// Where the time went, as far as it was measured.
    #[serde(default)]
    pub timing: Timing,
    /// The trace of the last requests for space, if recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
    /// What was left behind.
    pub inspection: Option<Inspection>,
    /// Deviations from the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// What a run on a bare file calls its system.
pub const RAW: &str = "raw";

/// What some threads did.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measure {
    /// What is counted ("fallocate calls", "files", "writes").
    pub what: String,
    /// How many.
    pub operations: u64,
    /// Bytes written or given space.
    pub bytes: u64,
    /// Seconds until the last of these threads was done, without the final sync.
    pub seconds: f64,
    /// How long each took.
    pub latency: Option<Latency>,
    /// How long each sync after an operation took.
    pub sync_latency: Option<Latency>,
    /// Operations of each thread.
    pub per_thread: Vec<u64>,
}

/// One part of a workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobFigures {
    /// Its name.
    pub name: String,
    /// Whether it is what the workload measures, or the disturbance beside it.
    pub measured: bool,
    /// What it did.
    pub measure: Measure,
}

/// How evenly threads were served.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fairness {
    /// Operations of the slowest thread, as a share of the mean.
    pub slowest: f64,
    /// Operations of the fastest, likewise.
    pub fastest: f64,
}

impl Measure {
    /// Operations per second, the final sync not counted.
    #[must_use]
    pub fn rate(&self) -> f64 {
        ratio(float(self.operations), self.seconds)
    }

    /// How evenly its threads were served; `None` of one thread or no work.
    #[must_use]
    pub fn fairness(&self) -> Option<Fairness> {
        let (least, most) = (self.per_thread.iter().min()?, self.per_thread.iter().max()?);
        let mean = float(self.per_thread.iter().sum()) / float(hectare_units::u64_of(self.per_thread.len()));
        let several = self.per_thread.len() > 1 && mean > 0.0;
        several.then(|| Fairness { slowest: float(*least) / mean, fastest: float(*most) / mean })
    }
}

impl Run {
    /// Operations per second with the final sync counted.
    #[must_use]
    pub fn synced_rate(&self) -> f64 {
        ratio(float(self.measure.operations), self.measure.seconds + self.sync_seconds)
    }

    /// Bytes per second, the final sync not counted.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        ratio(float(self.measure.bytes), self.measure.seconds)
    }

    /// Bytes per second with the final sync counted.
    #[must_use]
    pub fn synced_bandwidth(&self) -> f64 {
        ratio(float(self.measure.bytes), self.measure.seconds + self.sync_seconds)
    }

    /// Journal handles per operation, on average; `None` where they are not counted.
    #[must_use]
    pub fn handles_per_operation(&self) -> Option<f64> {
        let handles = *self.allocator.as_ref()?.counts.get("journal_handles")?;
        (self.measure.operations > 0).then(|| ratio(float(handles), float(self.measure.operations)))
    }

    /// One part of what was measured, by its name.
    #[must_use]
    pub fn job(&self, name: &str) -> Option<&Measure> {
        self.jobs.iter().find(|job| job.name == name).map(|job| &job.measure)
    }

    /// What reports call it: the label, or the system and its policy.
    #[must_use]
    pub fn title(&self) -> String {
        match (&self.label, &self.policy) {
            (Some(label), _) => label.clone(),
            (None, Some(policy)) => format!("{} {policy}", self.system),
            (None, None) if self.system == RAW => RAW.to_owned(),
            (None, None) => format!("kernel {}", self.system),
        }
    }
}

/// A count as a figure to calculate with; counts here are far below 2^53.
#[must_use]
#[allow(clippy::cast_precision_loss)] // a figure for people
pub fn float(n: u64) -> f64 {
    n as f64
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_fairness() {
        let measure =
            Measure { operations: 30, seconds: 2.0, per_thread: vec![5, 10, 15], ..Measure::default() };
        assert!((measure.rate() - 15.0).abs() < 1e-9);
        assert_eq!(measure.fairness(), Some(Fairness { slowest: 0.5, fastest: 1.5 }));
        assert_eq!(Measure { per_thread: vec![3], ..Measure::default() }.fairness(), None);
        assert!(Measure::default().rate().abs() < 1e-9);
    }
}
