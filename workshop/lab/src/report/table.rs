//! The table for a terminal: a block for each workload, a row for each run, only columns with content.

use super::Report;
use super::humanize::{duration, short, whole};
use super::series::{Group, groups};
use crate::fragmentation::FileExtents;
use crate::latency::Latency;
use crate::run::{Run, float};
use std::fmt::Write;

/// A column: its heading, and what it says of a run.
pub(super) struct Column {
    pub(super) heading: &'static str,
    pub(super) says: fn(&Run) -> Option<String>,
}

const fn column(heading: &'static str, says: fn(&Run) -> Option<String>) -> Column {
    Column { heading, says }
}

/// All columns, after the run's name.
pub(super) const COLUMNS: [Column; 18] = [
    column("threads", |run| Some(run.threads.to_string())),
    column("per second", |run| Some(whole(run.measure.rate()))),
    column("synced", |run| Some(whole(run.synced_rate()))),
    column("reads/s", |run| run.job("reads").map(|reads| whole(reads.rate()))),
    column("writes/s", |run| run.job("writes").map(|writes| whole(writes.rate()))),
    column("MB/s", |run| (run.measure.bytes > 0).then(|| short(run.bandwidth() / 1e6))),
    column("synced MB/s", |run| (run.measure.bytes > 0).then(|| short(run.synced_bandwidth() / 1e6))),
    column("p50", |run| latency(run, |latency| latency.p50_ns)),
    column("p99", |run| latency(run, |latency| latency.p99_ns)),
    column("max", |run| latency(run, |latency| latency.max_ns)),
    column("pause p99", |run| run.pauses.map(|pauses| duration(pauses.p99_ns))),
    column("fairness", |run| run.measure.fairness().map(|f| format!("{:.2}-{:.2}", f.slowest, f.fastest))),
    column("scanned/op", |run| {
        let scanned = run.allocator.as_ref()?.count("extents_scanned");
        (run.measure.operations > 0).then(|| short(float(scanned) / float(run.measure.operations)))
    }),
    column("handles/op", |run| run.handles_per_operation().map(short)),
    column("extents/file", |run| placed(run)?.per_file().map(short)),
    column("KiB/extent", |run| placed(run)?.kib_per_extent().map(short)),
    column("fragmented", |run| regions(run).map(|(fragmented, used, _)| format!("{fragmented}/{used}"))),
    column("mean", |run| regions(run).map(|(_, _, mean)| format!("{mean:.0} %"))),
];

fn latency(run: &Run, figure: fn(&Latency) -> u64) -> Option<String> {
    run.measure.latency.as_ref().map(|latency| duration(figure(latency)))
}

/// The files, if any of them has space when the run is over.
fn placed(run: &Run) -> Option<&FileExtents> {
    run.inspection.as_ref().map(|seen| &seen.files).filter(|files| files.extents > 0)
}

/// Regions that are fragmented, regions that hold data, and the mean percentage of the former; `None` if none
/// holds data.
pub(super) fn regions(run: &Run) -> Option<(usize, usize, f64)> {
    let regions = &run.inspection.as_ref()?.fragmentation.regions;
    let used: Vec<f64> =
        regions.iter().filter(|region| region.data_bytes > 0).map(|region| region.percent()).collect();
    let fragmented: Vec<f64> = used.iter().copied().filter(|percent| *percent > 0.0).collect();
    // An empty sum is -0.
    let mean = fragmented.iter().fold(0.0, |sum, percent| sum + percent)
        / float(hectare_units::u64_of(fragmented.len().max(1)));
    (!used.is_empty()).then_some((fragmented.len(), used.len(), mean))
}

/// The cells of a group: the columns that have something to say, and a row for each run.
pub(super) fn cells(group: &Group<'_>) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let runs = || group.series.iter().flat_map(|series| series.runs.iter().map(move |run| (series, *run)));
    let speaks = |column: &&Column| runs().any(|(_, run)| (column.says)(run).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(speaks).collect();
    let headings = std::iter::once("").chain(columns.iter().map(|column| column.heading)).collect();
    let row = |name: &str, run: &Run| {
        let said = columns.iter().map(|column| (column.says)(run).unwrap_or_else(|| "-".into()));
        std::iter::once(name.to_owned()).chain(said).collect()
    };
    (headings, runs().map(|(series, run)| row(&series.name, run)).collect())
}

/// Draws the report.
pub(super) fn draw(report: &Report) -> String {
    let mut text = String::new();
    for (nr, group) in groups(&report.runs).iter().enumerate() {
        if nr > 0 {
            text.push('\n');
        }
        let what =
            group.series.first().and_then(|series| series.widest()).map_or("", |run| &run.measure.what);
        let _ = writeln!(text, "{}: {} ({what})", group.workload, group.variant);
        let (headings, rows) = cells(group);
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.chain([headings[at].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        line(&mut text, &headings.iter().map(|heading| (*heading).to_owned()).collect::<Vec<_>>(), &widths);
        for row in &rows {
            line(&mut text, row, &widths);
        }
    }
    text
}

/// The first cell to the left, the others to the right.
fn line(text: &mut String, cells: &[String], widths: &[usize]) {
    let mut row = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = if at == 0 { write!(row, "{cell:<width$}") } else { write!(row, "  {cell:>width$}") };
    }
    text.push_str(row.trim_end());
    text.push('\n');
}
