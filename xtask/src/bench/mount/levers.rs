//! What single levers bring: `cargo xtask bench mount levers [--pairs N] [--quick] [--binary FILE]`.
//!
//! Hectare with a lever against hectare without it, in turn, on the jobs that the lever is for. There is a
//! mount option for each. Some jobs are there only because the next one needs what they make.

use super::jobs::{Ground, Job};
use super::sides::{Mounted, Side};
use hectare_lab::paired::Spread;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

struct Lever {
    what: &'static str,
    /// Mount options with the lever and without.
    with: &'static str,
    without: &'static str,
    jobs: &'static [Job],
}

/// A lever that is used unless an option says otherwise.
const fn usual(what: &'static str, without: &'static str, jobs: &'static [Job]) -> Lever {
    Lever { what, with: "", without, jobs }
}

const LEVERS: [Lever; 7] = [
    usual("the kernel gathers writes", "nowriteback", &[Job::Write, Job::SmallFiles1, Job::TarX]),
    usual("requests of 1 MiB, not 128 KiB", "max_write=131072", &[Job::Write, Job::Read]),
    usual("reading ahead 4 MiB, not 128 KiB", "max_readahead=131072", &[Job::Write, Job::Read]),
    usual("names are listed with attributes", "noreaddirplus", &[Job::CreateMany, Job::ReaddirStat]),
    usual("names and attributes are kept", "actimeo=0", &[Job::Create, Job::Stat, Job::Open, Job::TarX]),
    usual("several threads", "threads=1", &[Job::Create, Job::Stat, Job::SmallFiles16]),
    Lever {
        what: "files are opened unasked",
        with: "noopen",
        without: "",
        jobs: &[Job::Create, Job::Open, Job::SmallFiles1],
    },
];

/// Seconds with and without a lever, round by round.
type Times = BTreeMap<(usize, Job), [Vec<f64>; 2]>;

/// Where it happens.
pub(super) struct Bench<'a> {
    pub(super) binary: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) tar: &'a Path,
    pub(super) quick: bool,
}

impl Bench<'_> {
    /// Runs all, and returns the table.
    pub(super) fn run(&self, pairs: u32) -> Result<String, String> {
        let mut times = Times::new();
        for round in 0..pairs {
            for (number, lever) in LEVERS.iter().enumerate() {
                eprintln!("round {}: {}", round + 1, lever.what);
                let sides = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for side in sides {
                    self.run_side(lever, side, |job, seconds| {
                        times.entry((number, job)).or_default()[side].push(seconds);
                    })?;
                }
            }
        }
        Ok(table(&times))
    }

    fn run_side(&self, lever: &Lever, side: usize, mut note: impl FnMut(Job, f64)) -> Result<(), String> {
        let options = [lever.with, lever.without][side];
        let mounted = Mounted::new(Side::Hectare, options, self.binary, self.folder)?;
        let ground = Ground { dir: mounted.path(), tar: self.tar, quick: self.quick };
        for job in lever.jobs {
            let seconds = ground.run(*job).map_err(|error| format!("{}: {job}: {error}", lever.what))?;
            note(*job, seconds);
        }
        mounted.end()
    }
}

/// The table, in Markdown: the ratio is the median of the rounds'.
fn table(times: &Times) -> String {
    let mut out = String::from(
        "\nSeconds, median (least to most)\n\n\
         | lever | without | job | with it | without it | times faster |\n|---|---|---|---|---|---|\n",
    );
    for ((number, job), [with, without]) in times {
        let lever = &LEVERS[*number];
        let option = if lever.without.is_empty() { lever.with } else { lever.without };
        let ratios: Vec<f64> = without.iter().zip(with).map(|(without, with)| without / with).collect();
        let [with, without, ratios] = [with, without, &ratios].map(|values| shown(values));
        let _ = writeln!(out, "| {} | `{option}` | {job} | {with} | {without} | {ratios} |", lever.what);
    }
    out
}

fn shown(values: &[f64]) -> String {
    Spread::of(values).map_or_else(String::new, |spread| {
        format!("{:.2} ({:.2} to {:.2})", spread.median, spread.min, spread.max)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_fuse::MountOptions;

    #[test]
    fn each_lever_is_an_option() {
        for Lever { what, with, without, jobs } in LEVERS {
            assert_ne!(with, without, "{what}");
            for options in [with, without] {
                MountOptions::default().add(options).unwrap();
            }
            assert!(jobs.is_sorted(), "{what}: some need what earlier ones make");
        }
    }

    #[test]
    fn a_ratio_is_of_rounds() {
        let times = Times::from([((0, Job::Write), [vec![1.0, 2.0, 4.0], vec![3.0, 4.0, 4.0]])]);
        assert!(table(&times).contains("| 2.00 (1.00 to 3.00) |"), "{}", table(&times));
    }
}
