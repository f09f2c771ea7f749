//! The measurements of one run: the output of `hectare-lab bench --json`, and the state of the closed image.
//!
//! What can be read from the image is always read here, for both sides by the same code; the program's own
//! report of it is ignored.

use hectare_lab::fragmentation::{FileExtents, Fragmentation};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is reported of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Metric {
    /// Operations per second, the final sync left out.
    Rate,
    /// The same with the final sync.
    SyncedRate,
    /// 10^6 bytes per second with the final sync.
    SyncedBandwidth,
    /// Half of the operations took no longer, in microseconds.
    LatencyP50,
    /// 99 of 100 took no longer.
    LatencyP99,
    /// 99 of 100 commits kept all changes waiting no longer, in milliseconds.
    PauseP99,
    /// Free extents the allocator scanned.
    Scanned,
    /// The same per operation.
    ScannedPerOperation,
    /// The same per extent that was allocated: pieces the files lie in.
    ScannedPerExtent,
    /// Pieces per file.
    ExtentsPerFile,
    /// KiB per piece.
    KibPerExtent,
    /// Fragmented regions of 1 GiB.
    Fragmented,
    /// Regions with data.
    Used,
    /// Mean fragmentation of the fragmented ones.
    FragmentedPercent,
    /// The same, split by fixed metadata.
    StrictPercent,
}

impl Metric {
    /// Whether it is a rate, to be compared as a ratio.
    pub(super) fn is_speed(self) -> bool {
        matches!(self, Self::Rate | Self::SyncedRate | Self::SyncedBandwidth)
    }

    /// Its heading.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "operations/s",
            Self::SyncedRate => "operations/s, synced",
            Self::SyncedBandwidth => "MB/s, synced",
            Self::LatencyP50 => "latency p50, us",
            Self::LatencyP99 => "latency p99, us",
            Self::PauseP99 => "commit pause p99, ms",
            Self::Scanned => "extents scanned",
            Self::ScannedPerOperation => "scanned per operation",
            Self::ScannedPerExtent => "scanned per extent",
            Self::ExtentsPerFile => "extents per file",
            Self::KibPerExtent => "KiB per extent",
            Self::Fragmented => "fragmented regions",
            Self::Used => "regions with data",
            Self::FragmentedPercent => "fragmentation %",
            Self::StrictPercent => "strict fragmentation %",
        }
    }
}

/// All available metrics of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Figures {
    /// By metric.
    pub(super) values: BTreeMap<Metric, f64>,
    /// As the program printed it.
    pub(super) run: Value,
}

impl Figures {
    /// From the program's JSON, the image's state, and what a kernel scanned if the program does not say.
    pub(super) fn new(said: &Value, left: &Left, scanned: Option<f64>) -> Result<Self, String> {
        let run = find_run(said).ok_or("its JSON holds no run with a measure")?;
        let measure = &run["measure"];
        let number = |value: &Value| value.as_f64();
        let (operations, seconds) = (number(&measure["operations"]), number(&measure["seconds"]));
        let synced = seconds.map(|s| s + number(&run["sync_seconds"]).unwrap_or(0.0));
        let scanned = number(&run["allocator"]["counts"]["extents_scanned"]).or(scanned);
        let megabytes = number(&measure["bytes"]).map(|bytes| bytes / 1e6);
        let latency = &measure["latency"];
        let scaled = |value: &Value, unit: f64| number(value).map(|ns| ns / unit);
        let (files, cut) = (&left.files, left.free.summary());
        let pieces = (files.extents > 0).then(|| whole(files.extents));
        let all = [
            (Metric::Rate, ratio(operations, seconds)),
            (Metric::SyncedRate, ratio(operations, synced)),
            (Metric::SyncedBandwidth, ratio(megabytes, synced)),
            (Metric::LatencyP50, scaled(&latency["p50_ns"], 1e3)),
            (Metric::LatencyP99, scaled(&latency["p99_ns"], 1e3)),
            (Metric::PauseP99, scaled(&run["pauses"]["p99_ns"], 1e6)),
            (Metric::Scanned, scanned),
            (Metric::ScannedPerOperation, ratio(scanned, operations)),
            (Metric::ScannedPerExtent, ratio(scanned, pieces)),
            (Metric::ExtentsPerFile, files.per_file()),
            (Metric::KibPerExtent, files.kib_per_extent()),
            (Metric::Fragmented, Some(count(cut.fragmented))),
            (Metric::Used, Some(count(cut.used))),
            (Metric::FragmentedPercent, Some(cut.mean)),
            (Metric::StrictPercent, Some(left.free.strict_summary().mean)),
        ];
        let values = all.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect();
        Ok(Self { values, run: run.clone() })
    }

    /// The line that a section prints for it: these metrics.
    pub(super) fn line(&self, metrics: &[Metric]) -> String {
        let told = metrics.iter().filter_map(|metric| {
            self.values.get(metric).map(|value| format!("{} {}", shown(*value), metric.name()))
        });
        told.collect::<Vec<_>>().join(", ")
    }
}

/// The state of a closed image.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Left {
    /// The workload's files.
    pub(super) files: FileExtents,
    /// The free space.
    pub(super) free: Fragmentation,
}

/// The first object that is a run: alone, in a list, or in a report of several.
pub(super) fn find_run(said: &Value) -> Option<&Value> {
    match said {
        Value::Object(fields) if fields.get("measure").is_some_and(Value::is_object) => Some(said),
        Value::Object(fields) => fields.values().find_map(find_run),
        Value::Array(values) => values.iter().find_map(find_run),
        _ => None,
    }
}

fn ratio(of: Option<f64>, by: Option<f64>) -> Option<f64> {
    by.filter(|by| *by > 0.0).and_then(|by| of.map(|of| of / by))
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn whole(n: u64) -> f64 {
    n as f64
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn count(n: usize) -> f64 {
    n as f64
}

/// A number with three or four significant digits.
pub(super) fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        x if x >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_come_from_the_run_wherever_it_is() {
        let run = json!({
            "measure": {
                "operations": 100, "seconds": 2.0, "bytes": 4_000_000,
                "latency": { "p50_ns": 1500, "p99_ns": 20_000 },
            },
            "sync_seconds": 2.0, "pauses": { "p99_ns": 3_000_000 },
            "allocator": { "counts": { "extents_scanned": 300 } },
        });
        let files = FileExtents { files: 10, extents: 20, bytes: 20 << 20, extents_max: 3 };
        let left = Left { files, ..Left::default() };
        for said in [run.clone(), json!([run.clone()]), json!({ "runs": [run] })] {
            let figures = Figures::new(&said, &left, Some(1.0)).unwrap();
            let expected = [
                (Metric::Rate, 50.0),
                (Metric::SyncedRate, 25.0),
                (Metric::SyncedBandwidth, 1.0),
                (Metric::LatencyP50, 1.5),
                (Metric::LatencyP99, 20.0),
                (Metric::PauseP99, 3.0),
                (Metric::ScannedPerOperation, 3.0),
                (Metric::ScannedPerExtent, 15.0),
                (Metric::ExtentsPerFile, 2.0),
                (Metric::KibPerExtent, 1024.0),
            ];
            for (metric, value) in expected {
                assert_eq!(figures.values.get(&metric), Some(&value), "{metric:?}");
            }
        }
        assert!(Figures::new(&json!({ "ran": 1 }), &left, None).is_err());
    }
}
