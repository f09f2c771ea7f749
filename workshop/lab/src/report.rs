//! Reports of runs: a table, JSON, and a page with charts.
//!
//! A report is data first: the [`table`](Report::table) and the [`page`](Report::page) are made from what is
//! stored as JSON, so that runs made at different times, on the engine and on the kernel, can be compared
//! later. Runs of one workload in one variant belong together; measurements of different variants are never
//! put into one chart.

mod chart;
pub(crate) mod humanize;
pub(crate) mod page;
mod series;
pub(crate) mod svg;
mod table;

use crate::run::Run;
use serde::{Deserialize, Serialize};

/// Runs, and where they were made.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// When, in words.
    pub made: Option<String>,
    /// The machines they ran on.
    pub machines: Vec<Machine>,
    /// The runs, in the order they were made.
    pub runs: Vec<Run>,
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// What its processor calls itself.
    pub processor: String,
    /// Processors that threads run on.
    pub processors: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// The one this runs on.
    #[must_use]
    pub fn here() -> Self {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let info = rustix::system::sysinfo();
        Self {
            processor: model.map_or("unknown processor", |(_, name)| name).to_owned(),
            processors: u32::try_from(count).unwrap_or(u32::MAX),
            memory: info.totalram.saturating_mul(u64::from(info.mem_unit)),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let gib = crate::run::float(self.memory) / crate::run::float(1 << 30);
        let (cpus, kernel) = (self.processors, &self.kernel);
        format!("{}, {cpus} processors, {gib:.0} GiB, Linux {kernel}", self.processor)
    }
}

impl Report {
    /// Runs that were made here and now.
    #[must_use]
    pub fn here(runs: Vec<Run>) -> Self {
        Self { made: None, machines: vec![Machine::here()], runs }
    }

    /// Several reports as one.
    #[must_use]
    pub fn merged(reports: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for report in reports {
            all.made = all.made.or(report.made);
            for machine in report.machines {
                if !all.machines.contains(&machine) {
                    all.machines.push(machine);
                }
            }
            all.runs.extend(report.runs);
        }
        all
    }

    /// For a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        table::draw(self)
    }

    /// One self-contained page of HTML.
    #[must_use]
    pub fn page(&self) -> String {
        page::draw(self)
    }
}
