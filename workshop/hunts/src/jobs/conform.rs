//! Compares the mount with the kernel's ext4, call by call: `cargo hunt conform [--minutes N] [--seed N]
//! [--steps N] [--features NAME] [--only PART] [--keep]`.
//!
//! First the table of cases that fail, then in turn, with the next seed each round, sequences of random
//! calls, one file exercised, and several workers at once, on each feature set, until the time is over (see
//! `hectare_hunts::conform`). The first difference ends the run, with the seed and what led to it; `--keep`
//! leaves both images.

use hectare_hunts::conform::{CREWS, Conform, Done, EXERCISES, SETS};
use hectare_hunts::kill_test;
use hectare_tools::built::built;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::job_folder::{Scratch, leave_nothing, with_path};
use hectare_tools::steps::{minutes, parsed, understood};
use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo hunt conform [--minutes N] [--seed N] [--steps N] [--features NAME] \
     [--only cases|calls|file|crew] [--keep]";

#[derive(Clone, PartialEq, Debug)]
struct Options {
    time: Duration,
    seed: u64,
    steps: u32,
    features: Option<String>,
    only: Option<Part>,
    keep: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            time: Duration::from_secs(600),
            seed: 1,
            steps: 5000,
            features: None,
            only: None,
            keep: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--minutes" => options.time = minutes(word, value()?)?,
                "--seed" => options.seed = parsed(word, value()?)?,
                "--steps" => options.steps = parsed(word, value()?)?,
                "--features" => options.features = Some(known(value()?)?.to_owned()),
                "--only" => options.only = Some(Part::named(value()?)?),
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        let is_empty = match options.only {
            Some(Part::Calls) => !SETS.iter().any(|set| options.takes(set.0)),
            Some(Part::File) => !EXERCISES.iter().any(|set| options.takes(set.0)),
            Some(Part::Crew) => !CREWS.iter().any(|set| options.takes(set.0)),
            Some(Part::Cases) | None => false,
        };
        if is_empty {
            Err("--only, --features: this part has no such features".to_owned())
        } else {
            Ok(options)
        }
    }

    fn has(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    fn takes(&self, set: &str) -> bool {
        self.features.as_deref().is_none_or(|name| name == set)
    }
}

/// The parts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Cases,
    Calls,
    File,
    Crew,
}

impl Part {
    fn named(name: &str) -> Result<Self, String> {
        match name {
            "cases" => Ok(Self::Cases),
            "calls" => Ok(Self::Calls),
            "file" => Ok(Self::File),
            "crew" => Ok(Self::Crew),
            other => Err(format!("--only: there is no {other}, but cases, calls, file and crew")),
        }
    }
}

fn known(name: &str) -> Result<&str, String> {
    let names = || SETS.iter().map(|(name, _)| *name);
    if names().any(|known| known == name) {
        return Ok(name);
    }
    Err(format!("--features: there is no {name}, but {}", names().collect::<Vec<_>>().join(", ")))
}

/// Runs the job with its arguments; it ends well if nothing differed.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let Some(program) = built(false) else { return Exit::NotHere };
    let result = compared(&options, &program);
    leave_nothing();
    Exit::of("conform", result)
}

fn compared(options: &Options, program: &Path) -> Result<(), Ended> {
    let folder = Scratch::new(Path::new("/dev/shm"), "hectare-conform")?;
    let conform = Conform::new(program, folder.path())?.alone();
    // Both, whatever the result of the first.
    let differ = if options.has(Part::Cases) { cases(&conform) } else { Ok(()) };
    let result = match rounds(&conform, options) {
        Err(Ended::Skipped(_)) if differ.is_err() => differ,
        result => result.and(differ),
    };
    if result.is_err() && options.keep {
        for name in ["ours.img", "kernels.img"] {
            let kept = Path::new("/dev/shm").join(format!("hectare-conform-{name}"));
            std::fs::rename(folder.path().join(name), &kept).map_err(with_path(&kept))?;
            eprintln!("the image stays: {}", kept.display());
        }
    }
    result
}

fn cases(conform: &Conform) -> Result<(), Ended> {
    let (count, differences) = conform.cases()?;
    for difference in &differences {
        println!("{}: {}, but the kernel: {}", difference.case, difference.ours, difference.kernels);
    }
    println!("{count} cases, {} differ", differences.len());
    if differences.is_empty() { Ok(()) } else { Err("cases differ".to_owned().into()) }
}

fn rounds(conform: &Conform, options: &Options) -> Result<(), Ended> {
    if options.only == Some(Part::Cases) {
        return Ok(());
    }
    let started = Instant::now();
    let mut all = Done::default();
    // One file, then several workers at once.
    let (mut steps, each) = (0, u64::from(options.steps));
    for seed in (0..).map(|n| options.seed.wrapping_add(n)) {
        let mut done_here = 0;
        for set in SETS.iter().filter(|set| options.has(Part::Calls) && options.takes(set.0)) {
            if let Some(done) = told_of(set, seed, conform.sequence(*set, seed, options.steps))? {
                all = Done { calls: all.calls + done.calls, refused: all.refused + done.refused };
                done_here += 1;
            }
        }
        for set in EXERCISES.iter().filter(|set| options.has(Part::File) && options.takes(set.0)) {
            let done = told_of(set, seed, conform.exercise(*set, seed, options.steps))?;
            done_here += u32::from(done.is_some());
            steps += done.map_or(0, |()| each);
        }
        for set in CREWS.iter().filter(|set| options.has(Part::Crew) && options.takes(set.0)) {
            let done = told_of(set, seed, conform.crew(*set, seed, options.steps))?;
            done_here += u32::from(done.is_some());
            steps += done.map_or(0, |()| each);
        }
        if done_here == 0 {
            return Err(Ended::Skipped("a whole round has nothing that can be done".to_owned()));
        }
        let Done { calls, refused } = all;
        println!("up to seed {seed}: {calls} calls ({refused} refused) and {steps} steps on each side");
        if started.elapsed() >= options.time {
            break;
        }
    }
    println!("all alike");
    Ok(())
}

/// The result of one job of a round; none where it can't be done here.
fn told_of<T>(set: &impl Debug, seed: u64, result: Result<T, kill_test::Ended>) -> Result<Option<T>, String> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(kill_test::Ended::Skip(skip)) => {
            println!("{set:?} is left out: {skip}");
            Ok(None)
        }
        Err(kill_test::Ended::Failed(what)) => Err(format!("{set:?}, seed {seed}: {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused() {
        let options = Options::parse(&["--minutes", "0.5", "--seed", "7", "--features", "bigalloc"]).unwrap();
        assert_eq!((options.time, options.seed), (Duration::from_secs(30), 7));
        assert_eq!(options.features.as_deref(), Some("bigalloc"));
        for words in [
            &["--seed"][..],
            &["--features", "none"],
            &["--steps", "x"],
            &["--only", "none"],
            &["loud"],
            &["--only", "crew", "--features", "ext2"],
        ] {
            assert!(Options::parse(words).is_err(), "{words:?}");
        }
    }
}
