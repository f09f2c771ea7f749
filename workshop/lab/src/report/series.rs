//! Runs that belong together: groups of one workload, series of one system in them.

use crate::run::Run;
use std::collections::BTreeSet;

/// All runs of one workload in one variant.
pub(super) struct Group<'r> {
    pub(super) workload: &'r str,
    pub(super) variant: &'r str,
    /// In the order in which their first runs were made.
    pub(super) series: Vec<Series<'r>>,
}

/// The runs of one system, one for each number of threads.
pub(super) struct Series<'r> {
    pub(super) name: String,
    /// Its place in the report, the same in all groups: systems keep their colours.
    pub(super) color: usize,
    /// By the number of threads.
    pub(super) runs: Vec<&'r Run>,
}

impl<'r> Series<'r> {
    /// The run with most threads: what charts of one run show.
    pub(super) fn widest(&self) -> Option<&'r Run> {
        self.runs.last().copied()
    }
}

impl Group<'_> {
    /// All numbers of threads.
    pub(super) fn threads(&self) -> Vec<u32> {
        let threads = self.series.iter().flat_map(|series| series.runs.iter().map(|run| run.threads));
        threads.collect::<BTreeSet<u32>>().into_iter().collect()
    }
}

/// The groups, in the order in which their first runs were made.
pub(super) fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut colors: Vec<String> = Vec::new();
    for run in runs {
        let same = |group: &&mut Group<'_>| group.workload == run.workload && group.variant == run.variant;
        let group = match groups.iter_mut().find(same) {
            Some(group) => group,
            None => {
                groups.push(Group { workload: &run.workload, variant: &run.variant, series: Vec::new() });
                groups.last_mut().expect("one was pushed")
            }
        };
        let name = name(run, runs, &group.series);
        let color = colors.iter().position(|known| *known == name).unwrap_or_else(|| {
            colors.push(name.clone());
            colors.len() - 1
        });
        match group.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.runs.push(run),
            None => group.series.push(Series { name, color, runs: vec![run] }),
        }
    }
    for series in groups.iter_mut().flat_map(|group| &mut group.series) {
        series.runs.sort_by_key(|run| run.threads);
    }
    groups
}

/// The run's title; with the target where runs of that title ran on several, and with a number where it was
/// repeated.
fn name(run: &Run, all: &[Run], known: &[Series<'_>]) -> String {
    let title = run.title();
    let elsewhere = |other: &Run| other.title() == title && other.target != run.target;
    let base = if all.iter().any(elsewhere) {
        format!("{title}, {}", run.target.rsplit('/').next().unwrap_or_default())
    } else {
        title
    };
    let taken = |name: &str| {
        let series = known.iter().find(|series| series.name == name);
        series.is_some_and(|series| series.runs.iter().any(|known| known.threads == run.threads))
    };
    let mut name = base.clone();
    let mut round = 1;
    while taken(&name) {
        round += 1;
        name = format!("{base} #{round}");
    }
    name
}
