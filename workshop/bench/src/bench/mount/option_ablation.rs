//! Measures the gain of single mount options ("levers"): `cargo benchmark mount levers [--only JOB]...
//! [--pairs N] [--quick] [--binary FILE]`. With `--only`, the levers that have one of these jobs.
//!
//! Runs Hectare with a lever against Hectare without it, in turn, on the jobs that the lever is for. There is
//! a mount option for each. Some jobs are there only because the next one needs what they make.

use super::jobs::Job;
use super::mounts::{Mounted, Side};
use super::thresholds::shown;
use super::{Options, Stage};
use hectare_lab::paired_stats::Spread;
use std::collections::BTreeMap;
use std::fmt::Write;

struct Lever {
    what: &'static str,
    /// Mount options with the lever and without.
    with: &'static str,
    without: &'static str,
    jobs: &'static [Job],
}

/// A lever that is on by default.
const fn usual(what: &'static str, without: &'static str, jobs: &'static [Job]) -> Lever {
    Lever { what, with: "", without, jobs }
}

/// The jobs that spend most time waiting for wakeups.
const MANY_REQUESTS: &[Job] =
    &[Job::Create, Job::Stat, Job::Open, Job::Unlink, Job::SmallFiles1, Job::SmallFiles16, Job::TarX];

const LEVERS: [Lever; 14] = [
    Lever {
        what: "the kernel gathers writes",
        with: "writeback",
        without: "",
        jobs: &[Job::Write, Job::SmallFiles1, Job::TarX],
    },
    usual("requests of 1 MiB, not 128 KiB", "max_write=131072", &[Job::Write, Job::Read]),
    usual("reads of 512 KiB, not 1 MiB", "max_read=1048576", &[Job::Read]),
    usual("reading ahead 1 MiB, not 128 KiB", "max_readahead=131072", &[Job::Write, Job::Read]),
    usual("names are listed with attributes", "noreaddirplus", &[Job::CreateMany, Job::ReaddirStat]),
    usual("names and attributes are kept", "actimeo=0", &[Job::Create, Job::Stat, Job::Open, Job::TarX]),
    usual("that a name is not there is kept", "negative_timeout=0", &[Job::TarX, Job::Missing]),
    usual("closing is not told", "flush", &[Job::Open, Job::SmallFiles1, Job::TarX]),
    usual("directories are listed without being opened", "opendir", &[Job::Walk]),
    usual("a directory serves several at once", "noparallel_dirops", &[Job::Stat16]),
    usual("several threads", "threads=1", &[Job::Create, Job::Stat, Job::SmallFiles16]),
    Lever {
        what: "a thread polls while many requests come",
        with: "noidle_poll",
        without: "noidle_poll,nobusy_poll",
        jobs: MANY_REQUESTS,
    },
    usual("idle processors don't halt then, instead", "noidle_poll", MANY_REQUESTS),
    Lever {
        what: "files are opened unasked",
        with: "noopen",
        without: "",
        jobs: &[Job::Create, Job::Open, Job::SmallFiles1],
    },
];

/// Seconds with and without a lever, round by round.
type Times = BTreeMap<(usize, Job), [Vec<f64>; 2]>;

/// Runs the selected levers, and returns the table.
pub(super) fn pull(stage: &Stage, options: &Options) -> Result<String, String> {
    let mut times = Times::new();
    let wanted = |lever: &Lever| lever.jobs.iter().any(|job| options.wants(*job));
    for round in 0..options.pairs {
        for (number, lever) in LEVERS.iter().enumerate().filter(|(_, lever)| wanted(lever)) {
            eprintln!("round {}: {}", round + 1, lever.what);
            let mut sides = [0, 1];
            super::alternate(&mut sides, round);
            for side in sides {
                let mounted = Mounted::new(Side::Hectare, [lever.with, lever.without][side], stage)?;
                for job in lever.jobs {
                    let seconds = stage.run(&mounted, *job, options.quick)?;
                    times.entry((number, *job)).or_default()[side].push(seconds);
                }
                mounted.end()?;
            }
        }
    }
    Ok(table(&times))
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
        let ratios = Spread::of_ratios(without, with);
        let shown = |spread: Option<Spread>| spread.as_ref().map_or_else(String::new, shown);
        let (with, without, ratios) = (shown(Spread::of(with)), shown(Spread::of(without)), shown(ratios));
        let _ = writeln!(out, "| {} | `{option}` | {job} | {with} | {without} | {ratios} |", lever.what);
    }
    out
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
        assert!(table(&times).contains("| 2.000 (1.000 to 3.000) |"), "{}", table(&times));
    }
}
