//! Skipping busy groups: fallocate in many containers at once.

use super::figure::Figure;
use super::plan::{FileSystem, Runner, Section, Volume, policy, shown};
use super::{Experiment, Options, Part, Role, Row, Side, Unit, sections};
use crate::virtual_cpus::{self, COSTS, Fill, POLICIES};
use crate::workload::{Workload, fallocate2};
use hectare_tools::error::Result;
use std::time::Duration;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "busy-groups",
    title: "a group whose lock is held is passed by instead of waited for",
    source: "Baokun Li, \"ext4: add ext4_try_lock_group() to skip busy groups\", linux-ext4, 2025-05-23",
    differs: "The published machine has 64 processors, and as many containers with a processor each. A \
              machine with fewer shows little of it, so this is shown twice: by threads on this machine, and \
              by virtual processors, on which the allocator's own code runs against a clock; that is a \
              prediction.",
    make,
};

fn make(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let mut all = Vec::new();
    for threads in [1, 2, 64] {
        for (scan, table) in [(0, "mballoc-linear"), (1, "mballoc")] {
            all.push(section(options, threads, scan, table));
        }
    }
    let titles = all.iter().map(|section| section.title.clone()).chain(SIMULATED.map(str::to_owned));
    let wanted = options.wanted(titles.collect(), String::as_str)?;
    let is_wanted = |title: &str| wanted.iter().any(|other| other == title);
    all.retain(|section| is_wanted(&section.title));
    let mut parts = if all.is_empty() { Vec::new() } else { sections(all, options, say)? };
    if SIMULATED.into_iter().any(is_wanted) {
        parts.extend(simulated(options, say)?.into_iter().filter(|part| is_wanted(&part.title)));
    }
    Ok(parts)
}

/// The tables of virtual processors.
const SIMULATED: [&str; 3] =
    ["virtual processors, fresh", "virtual processors, 95 % full", "64 virtual processors"];
/// Steps of all virtual processors together in a run.
const STEPS: u64 = 100_000;
const QUICK_STEPS: u64 = 10_000;
/// Processors of the published machine.
const PUBLISHED: u32 = 64;

/// The same requests on virtual processors, of which the published machine has 64.
fn simulated(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let steps = if options.quick { QUICK_STEPS } else { STEPS };
    let run = |policy: &str, fill, cpus| virtual_cpus::run_one(policy, fill, cpus, steps, &COSTS);
    let mut parts = Vec::new();
    for fill in Fill::ALL {
        let title = format!("virtual processors, {}", fill.name());
        say(&title);
        let row = |cpus: &u32| {
            options.check_stop()?;
            Ok(Row {
                name: cpus.to_string(),
                unit: Unit::PerSecond,
                published: [None; 2],
                samples: POLICIES.map(|policy| vec![run(policy, fill, *cpus).per_second]).into(),
                drawn: false,
            })
        };
        let side = |policy: &str| Side { title: policy.to_owned(), role: Role::Beside, left_out: None };
        parts.push(Part {
            title,
            about: format!("steps of fallocate2 per virtual second, all processors together; {steps} steps"),
            sides: POLICIES.map(side).into(),
            rows: options.cpus.iter().map(row).collect::<Result<_>>()?,
            points_of: Some("processors"),
            notes: vec![MODEL.to_owned()],
        });
    }
    options.check_stop()?;
    say("64 virtual processors");
    let side = |title: &str, role| Side { title: title.to_owned(), role, left_out: None };
    let [linear, optimised] = [[POLICIES[0], POLICIES[1]], [POLICIES[2], POLICIES[3]]];
    let pairs = [("mb_optimize_scan=0", linear, 6755.0), ("mb_optimize_scan=1", optimised, 4302.0)];
    let row = |fill: Fill, (scan, policies, after): (&str, [&str; 2], f64)| {
        let each = |policy| vec![run(policy, fill, PUBLISHED).per_second / f64::from(PUBLISHED)];
        Row {
            name: format!("{scan}, {}: per container and second", fill.name()),
            unit: Unit::PerSecond,
            published: [Some(3588.0), Some(after)],
            samples: policies.map(each).into(),
            drawn: true,
        }
    };
    parts.push(Part {
        title: "64 virtual processors".to_owned(),
        about: "the published table; its volume was an SSD in use, which is neither of these two".to_owned(),
        sides: vec![side("waits", Role::Before), side("passes by", Role::After)],
        rows: Fill::ALL.into_iter().flat_map(|fill| pairs.map(|pair| row(fill, pair))).collect(),
        points_of: None,
        notes: vec![MODEL.to_owned()],
    });
    Ok(parts)
}

const MODEL: &str = "A prediction by a model whose costs and validation are in docs/virtual-cpus.md: the \
                     allocator alone, without inodes, extent trees and a journal.";

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
