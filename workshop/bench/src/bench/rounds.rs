//! The frame of comparisons of whole programs on one volume ([`super::check`], [`super::resize`],
//! [`super::salvage`]): three sides run in turn, round by round, and the time of each is compared with that of
//! the *peer* in the same round. The order alternates. What is made and what is claimed is up to the comparison.

use super::mkfs::measure::{Figures, run as measured};
use super::mkfs::{barred, with_range};
use super::results::{aligned, machine, write_json};
use hectare_lab::paired_stats::Spread;
use hectare_tools::job_folder::leave_nothing;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// All runs on a volume, by side.
pub(super) type Runs = [Vec<Figures>; 3];

/// Who runs.
pub(super) struct Sides {
    pub(super) titles: [&'static str; 3],
    /// Whose time that of the others is compared with.
    pub(super) peer: usize,
    /// What the volume, and the comparison with the peer, are called in the table.
    pub(super) headings: [&'static str; 2],
}

/// What happens in a round for a side.
pub(super) trait Step {
    /// Makes the run ready, and gives its command.
    fn command(&mut self, side: usize) -> Result<Command, String>;
    /// Looks at what a run has left; returns what is to be said of it.
    fn after(&mut self, side: usize) -> Result<String, String>;
}

/// Whether a case is asked for by the beginning of its name.
pub(super) fn is_wanted(options: &super::Options, name: &str) -> bool {
    options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only.as_str()))
}

fn values(runs: &[Figures], of: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(of).collect()
}

/// The median of the peak memory of a side, in MiB.
pub(super) fn memory(runs: &[Figures]) -> Option<f64> {
    Spread::of(&values(runs, |run| run.memory_mib)).map(|spread| spread.median)
}

impl Sides {
    /// Runs all sides on an image, once a round.
    pub(super) fn rounds(&self, pairs: u32, image: &Path, step: &mut impl Step) -> Result<Runs, String> {
        let mut runs = [const { Vec::new() }; 3];
        for round in 0..pairs {
            let mut order = [0, 1, 2];
            if round % 2 == 1 {
                order.reverse();
            }
            for side in order {
                let figures = measured(step.command(side)?, image)?;
                let said = step.after(side)?;
                let (Figures { seconds, cpu, .. }, title) = (&figures, self.titles[side]);
                eprintln!("  round {}: {title}: {seconds:.2} s, processor {cpu:.2} s{said}", round + 1);
                runs[side].push(figures);
            }
        }
        Ok(runs)
    }

    /// The time of the peer as a multiple of that of a side, round by round.
    pub(super) fn times(&self, runs: &Runs, side: usize) -> Option<Spread> {
        let seconds = |side: usize| values(&runs[side], |run| Some(run.seconds));
        Spread::of_ratios(&seconds(self.peer), &seconds(side))
    }

    /// The median of that; 0 if there is none.
    pub(super) fn median_times(&self, runs: &Runs, side: usize) -> f64 {
        self.times(runs, side).map_or(0.0, |spread| spread.median)
    }

    fn table(&self, name: &str, runs: &Runs) -> Vec<Vec<String>> {
        let cell = |spread: Option<Spread>| spread.map_or("-".to_owned(), with_range);
        let row = |(side, title): (usize, &&str)| {
            let of_side =
                |figure: fn(&Figures) -> Option<f64>| cell(Spread::of(&values(&runs[side], figure)));
            vec![
                name.to_owned(),
                (*title).to_owned(),
                of_side(|run| Some(run.seconds)),
                if side == self.peer { "-".to_owned() } else { cell(self.times(runs, side)) },
                of_side(|run| Some(run.cpu)),
                of_side(|run| run.memory_mib),
            ]
        };
        self.titles.iter().enumerate().map(row).collect()
    }
}

/// What came out of all cases.
pub(super) struct Outcome<'a> {
    sides: &'a Sides,
    good: bool,
    cases: Vec<Value>,
    rows: Vec<Vec<String>>,
    verdicts: String,
}

impl<'a> Outcome<'a> {
    pub(super) const fn new(sides: &'a Sides) -> Self {
        Self { sides, good: true, cases: Vec::new(), rows: Vec::new(), verdicts: String::new() }
    }

    /// Takes the runs of a case, and the verdict on them; a case that could not run fails the job.
    pub(super) fn take(
        &mut self,
        name: &str,
        runs: Result<Runs, String>,
        judge: impl FnOnce(&Runs, &mut String) -> bool,
    ) {
        match runs {
            Ok(runs) => {
                self.good &= judge(&runs, &mut self.verdicts);
                self.rows.extend(self.sides.table(name, &runs));
                let of_all = |runs: &Vec<Figures>| runs.iter().map(Figures::json).collect::<Vec<Value>>();
                self.cases.push(json!({ "case": name, "runs": runs.each_ref().map(of_all) }));
            }
            Err(error) => {
                self.good = false;
                let _ = writeln!(self.verdicts, "FAILED {name}: {error}");
            }
        }
    }

    /// Prints the table and the verdicts, and writes the figures; returns whether everything ran and was as
    /// claimed.
    pub(super) fn finish(mut self, options: &super::Options) -> bool {
        let [volume, times] = self.sides.headings;
        let headings = [volume, "program", "seconds", times, "processor seconds", "peak MiB"];
        self.rows.splice(0..0, [headings, ["---"; 6]].map(|row| row.map(str::to_owned).to_vec()));
        let rows: Vec<Vec<String>> = self.rows.into_iter().map(barred).collect();
        print!("{}{}", aligned(&rows), self.verdicts);
        leave_nothing();
        if let Err(error) = write_json(&options.json, &json!({ "machine": machine(), "cases": self.cases })) {
            eprintln!("can't write {}: {error}", options.json.display());
            return false;
        }
        self.good && !self.cases.is_empty()
    }
}

/// Adds a line about a claim; returns whether it is met.
pub(super) fn verdict(text: &mut String, met: bool, claim: &str) -> bool {
    let _ = writeln!(text, "{}: {claim}", if met { "met" } else { "MISSED" });
    met
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64) -> Vec<Figures> {
        let memory_mib = Some(2.0 * seconds);
        vec![Figures { seconds, cpu: seconds, memory_mib, written: 0.0, writes: 0.0, taken: 0.0 }; 3]
    }

    #[test]
    fn sides_are_compared_with_the_peer() {
        for (peer, wanted) in [(0, [1.0, 0.5, 2.0]), (2, [0.5, 0.25, 1.0])] {
            let sides = Sides { titles: ["a", "b", "c"], peer, headings: ["volume", "times"] };
            let runs = [run(8.0), run(16.0), run(4.0)];
            let found = [0, 1, 2].map(|side| sides.median_times(&runs, side));
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
            let table = sides.table("x", &runs);
            assert_eq!(table.iter().filter(|row| row[3] == "-").count(), 1);
            assert_eq!(table[peer][3], "-");
            assert!((memory(&runs[1]).unwrap() - 32.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_case_that_fails_or_misses_fails_the_job() {
        let sides = Sides { titles: ["a", "b", "c"], peer: 0, headings: ["volume", "times"] };
        let runs = || Ok([run(1.0), run(1.0), run(1.0)]);
        let mut outcome = Outcome::new(&sides);
        outcome.take("x", runs(), |_, text| verdict(text, true, "one"));
        assert!(outcome.good && outcome.rows.len() == 3 && outcome.verdicts == "met: one\n");
        outcome.take("y", runs(), |_, text| verdict(text, false, "two"));
        assert!(!outcome.good && outcome.verdicts.ends_with("MISSED: two\n"));
        let mut outcome = Outcome::new(&sides);
        outcome.take("z", Err("why".into()), |_, _| true);
        assert!(!outcome.good && outcome.verdicts == "FAILED z: why\n");
    }
}
