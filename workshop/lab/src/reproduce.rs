//! Repeats published experiments: before and after in one call, with the kernel beside them.
//!
//! Each of the five pieces of work that the allocator and the formatter join was published with a table. An
//! [`Experiment`] makes that table again: its *before* is the same engine without the mechanism, its *after*
//! the same with it. Every side of every round works on a fresh copy of one volume; the order of the sides
//! alternates from round to round; the median, the difference of the medians, and the standard deviation are
//! shown beside the published numbers.
//!
//! Counts per request, ratios and orders can be compared with the published ones. Rates are those of this
//! machine: a VM with two processors does not run 64 containers, and memory is no NVMe drive.
//!
//! The plans are data (`plan`), one file per experiment; `ground` makes volumes and runs one side,
//! `kernel` mounts volumes by the kernel. The result is a [`Reproduction`], which `text` and [`page`]
//! draw. The formatter's experiment ([`ag_headers`]) has no workload and measures by itself.

pub mod ag_headers;
mod bars;
mod best_available;

mod busy_groups;
mod figure;
mod ground;
mod kernel;
mod overwrite;
mod page;
mod plan;
mod size_classes;
mod text;

pub use figure::Unit;
pub use text::listed;

use crate::report::Machine;
use ground::Ground;
use hectare_tools::error::{Error, Result};
use plan::{Section, Sides};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How an experiment is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds: each runs every side once.
    pub rounds: u32,
    /// Whether everything is made small, as a smoke test; the numbers then mean little.
    pub quick: bool,
    /// Whether the kernel's file systems run beside ours. That needs root, loop devices and the tools that
    /// make the file systems; a side that can't run is left out with the reason.
    pub kernel: bool,
    /// Only tables whose title has this in it.
    pub part: Option<String>,
    /// The numbers of virtual processors of `busy-groups`.
    pub cpus: Vec<u32>,
    /// An existing directory for the volumes. They are sparse files; all are removed.
    pub work: PathBuf,
    /// Set to end early: before the next run, with an error, so that volumes are unmounted and removed.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// An error once it is to end early.
    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Invalid("interrupted; its volumes are removed".to_owned()));
        }
        Ok(())
    }

    /// Those whose titles are asked for.
    fn wanted<T>(&self, all: Vec<T>, title: impl Fn(&T) -> &str) -> Result<Vec<T>> {
        let Some(part) = &self.part else { return Ok(all) };
        let titles: Vec<String> = all.iter().map(|one| title(one).to_owned()).collect();
        let wanted: Vec<T> = all.into_iter().filter(|one| title(one).contains(part.as_str())).collect();
        if wanted.is_empty() {
            return Err(Error::Invalid(format!(
                "no table is called '{part}': there are {}",
                titles.join("; ")
            )));
        }
        Ok(wanted)
    }
}

/// How an experiment is made: its tables, after calling back with what comes next.
type Make = fn(&Options, &mut dyn FnMut(&str)) -> Result<Vec<Part>>;

/// An experiment that was published.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    /// Who published it, where and when.
    pub source: &'static str,
    /// What can't be the same here, and why.
    pub differs: &'static str,
    make: Make,
}

/// All of them.
pub const EXPERIMENTS: [Experiment; 5] = [
    best_available::EXPERIMENT,
    busy_groups::EXPERIMENT,
    overwrite::EXPERIMENT,
    size_classes::EXPERIMENT,
    ag_headers::EXPERIMENT,
];

impl Experiment {
    /// The experiment of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        EXPERIMENTS.iter().find(|experiment| experiment.name == name)
    }

    /// Makes it, announcing each step through `say`.
    ///
    /// # Errors
    /// One line: the options make no sense, there is no room for the volumes, or a side of ours failed.
    pub fn run(&self, options: &Options, mut say: impl FnMut(&str)) -> Result<Reproduction> {
        if !(1..=100).contains(&options.rounds) {
            return Err(Error::Invalid("the number of rounds is 1 to 100".into()));
        }
        if options.cpus.iter().any(|cpus| !(1..=256).contains(cpus)) {
            return Err(Error::Invalid("the number of virtual processors is 1 to 256".into()));
        }
        let parts = (self.make)(options, &mut say)?;
        Ok(Reproduction {
            name: self.name,
            title: self.title,
            source: self.source,
            differs: self.differs,
            rounds: options.rounds,
            quick: options.quick,
            machine: Machine::here(),
            parts,
        })
    }
}

/// The results of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reproduction {
    /// The experiment's name.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What differs here.
    pub differs: &'static str,
    /// Rounds.
    pub rounds: u32,
    /// Whether everything was made small.
    pub quick: bool,
    /// The machine.
    pub machine: Machine,
    /// Its tables.
    pub parts: Vec<Part>,
}

impl Reproduction {
    /// As tables for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text::draw(self)
    }
}

/// Several reproductions as one page of HTML, which loads nothing and runs no script.
#[must_use]
pub fn page(reproductions: &[Reproduction]) -> String {
    page::draw(reproductions)
}

/// What a side stands for in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Without the mechanism.
    Before,
    /// With it.
    After,
    /// Beside both.
    Beside,
}

/// A column: who ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Side {
    /// What it is called.
    pub title: String,
    /// What it stands for.
    pub role: Role,
    /// Why it did not run, if it did not.
    pub left_out: Option<String>,
}

/// One table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    /// What was run, in a few words.
    pub title: String,
    /// On what, and how.
    pub about: String,
    /// Who ran.
    pub sides: Vec<Side>,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What the rows are points of, where they are those of a curve: the page draws that.
    pub points_of: Option<&'static str>,
    /// Remarks that belong to the figures.
    pub notes: Vec<String>,
}

/// One figure of all sides.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// In what it is counted.
    pub unit: Unit,
    /// What was published: before and after.
    pub published: [Option<f64>; 2],
    /// What each side measured in each round; nothing for a side that has no such figure.
    pub samples: Vec<Vec<f64>>,
    /// Whether the page has a chart of it.
    #[serde(skip)]
    pub drawn: bool,
}

impl Row {
    /// The median of a side.
    #[must_use]
    pub fn median(&self, side: usize) -> Option<f64> {
        crate::paired_stats::Spread::of(self.samples.get(side)?).map(|spread| spread.median)
    }

    /// The standard deviation of a side's rounds (of a sample: over n - 1); none of fewer than two.
    #[must_use]
    pub fn deviation(&self, side: usize) -> Option<f64> {
        let samples = self.samples.get(side).filter(|samples| samples.len() > 1)?;
        let n = crate::run::float(hectare_units::u64_of(samples.len()));
        let mean = samples.iter().sum::<f64>() / n;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        Some((squares / (n - 1.0)).sqrt())
    }
}

impl Part {
    /// The side of a role that stands alone in it: before, or after.
    #[must_use]
    pub fn side(&self, role: Role) -> Option<usize> {
        self.sides.iter().position(|side| side.role == role)
    }

    /// By how many percent the figure after differs from the one before; `None` where one is missing, or
    /// where the one before is 0.
    #[must_use]
    pub fn difference(&self, row: &Row) -> Option<f64> {
        let of = |role| row.median(self.side(role)?);
        percent(of(Role::Before)?, of(Role::After)?)
    }
}

/// By how many percent a figure differs from an earlier one.
pub(crate) fn percent(before: f64, after: f64) -> Option<f64> {
    (before != 0.0).then(|| 100.0 * (after - before) / before)
}

/// Runs the sections of an experiment.
fn sections(sections: Vec<Section>, options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let wanted = options.wanted(sections, |section| &section.title)?;
    let ground = Ground::prepare(options)?;
    wanted.into_iter().map(|section| one(&ground, section, options, say)).collect()
}

/// Runs one section: all rounds of all sides.
fn one(ground: &Ground, mut section: Section, options: &Options, say: &mut dyn FnMut(&str)) -> Result<Part> {
    say(&format!("{}: making the volume", section.title));
    let (base, state) = ground.volume(&section.volume)?;
    section.notes.extend(state.map(|state| format!("the volume to start from: {state}")));
    let mut sides = Sides::new(&section, options.kernel);
    for round in 0..options.rounds {
        for nr in sides.order(round) {
            say(&format!(
                "{}: round {} of {}: {}",
                section.title,
                round + 1,
                options.rounds,
                sides.title(nr)
            ));
            options.check_stop()?;
            let run = ground.run(&base, &section, &section.sides[nr].how);
            sides.add(nr, &section.figures, run)?;
        }
    }
    Ok(sides.part(section))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_deviations_and_differences() {
        let side = |role| Side { title: String::new(), role, left_out: None };
        let samples = vec![vec![1.0, 3.0, 2.0], vec![4.0, 4.0, 4.0], vec![]];
        let row = Row { name: "n".into(), unit: Unit::Count, published: [None; 2], samples, drawn: false };
        let part = Part {
            title: String::new(),
            about: String::new(),
            sides: [Role::Before, Role::After, Role::Beside].map(side).to_vec(),
            rows: vec![row.clone()],
            points_of: None,
            notes: Vec::new(),
        };
        assert_eq!((row.median(0), row.median(1), row.median(2)), (Some(2.0), Some(4.0), None));
        assert_eq!((row.deviation(0), row.deviation(1), row.deviation(2)), (Some(1.0), Some(0.0), None));
        assert_eq!(part.difference(&row), Some(100.0));
        assert_eq!(percent(0.0, 1.0), None);
    }

    #[test]
    fn names_lead_to_their_experiments() {
        for experiment in &EXPERIMENTS {
            assert_eq!(Experiment::named(experiment.name).map(|found| found.title), Some(experiment.title));
        }
        assert!(Experiment::named("perpetual-motion").is_none());
    }

    #[test]
    fn options_out_of_bounds_are_refused_before_anything_is_made() {
        let work = "/nonexistent".into();
        let options = Options {
            rounds: 0,
            quick: true,
            kernel: false,
            part: None,
            cpus: vec![1],
            work,
            stop: Arc::default(),
        };
        let refused = |options: &Options| EXPERIMENTS[0].run(options, |_| ()).unwrap_err().to_string();
        assert!(refused(&options).contains("rounds"));
        assert!(refused(&Options { rounds: 1, cpus: vec![257], ..options.clone() }).contains("256"));
        let part = Some("Test 9".to_owned());
        assert!(
            refused(&Options { rounds: 1, part, ..options.clone() }).contains("Test 1, blocks of 64 KiB;")
        );
        assert!(refused(&Options { rounds: 1, ..options }).contains("/nonexistent"));
    }
}
