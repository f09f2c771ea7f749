//! Groups whose lock is held are passed by: fallocate in many containers at once.

use super::figure::Figure;
use super::plan::{FileSystem, Runner, Section, Volume, policy, shown};
use super::{Experiment, Options, Part, Role, sections};
use crate::error::Result;
use crate::workload::{Workload, fallocate2};
use std::time::Duration;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "busy-groups",
    title: "a group whose lock is held is passed by instead of waited for",
    source: "Baokun Li, \"ext4: add ext4_try_lock_group() to skip busy groups\", linux-ext4, 2025-05-23",
    differs: "The published machine has 64 processors, and as many containers with a processor each. A machine \
              with fewer shows little of it, so this is shown twice: by threads on this machine, and by virtual \
              processors, on which the allocator's own code runs against a clock; that is a prediction.",
    make,
};

fn make(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let mut all = Vec::new();
    for threads in [1, 2, 64] {
        for (scan, table) in [(0, "mballoc-linear"), (1, "mballoc")] {
            all.push(section(options, threads, scan, table));
        }
    }
    sections(all, options, say)
}

fn section(options: &Options, threads: u32, scan: u32, table: &str) -> Section {
    let engine = |title: &str, role, text: &str| Runner::engine(title, role, policy(text));
    let kernel = if scan == 0 { "mb_optimize_scan=0" } else { "mb_optimize_scan=1" };
    Section {
        title: format!("{threads} thread{}, mb_optimize_scan={scan}", if threads == 1 { "" } else { "s" }),
        about:
            "fallocate in steps of 8 KiB up to 1 MiB, then truncate, over and over; a file a thread, in one \
                directory, on a fresh volume of 64 GiB"
                .to_owned(),
        volume: Volume { size: if options.quick { 8 << 30 } else { 64 << 30 }, block: 4096, aged: None },
        workload: Workload::Fallocate2(fallocate2::Options {
            time: Duration::from_millis(if options.quick { 200 } else { 3000 }),
            ..fallocate2::Options::default()
        }),
        threads,
        sides: vec![
            engine("waits", Role::Before, &format!("{table},-try-lock,-peek")),
            engine("passes by", Role::After, table),
            engine("goal first, waits", Role::Beside, &format!("{table},+goal")),
            engine("goal first, passes by", Role::Beside, &format!("{table},+goal,+goal-try-lock")),
            engine("hybrid", Role::Beside, "hybrid"),
            Runner::kernel(FileSystem::Ext4, kernel),
        ],
        figures: vec![
            shown("fallocate per thread and second", Figure::RatePerThread).drawn(),
            shown("slowest thread of the mean", Figure::Slowest),
            shown("calls of the allocator", Figure::Calls),
            shown("busy groups passed by", Figure::Count("busy_skips")).drawn(),
            shown("busy groups waited for", Figure::Count("busy_waits")).drawn(),
            shown("extents scanned per call", Figure::ScannedPerCall),
        ],
        notes: Vec::new(),
    }
}
