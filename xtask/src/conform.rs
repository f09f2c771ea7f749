//! The mount against the kernel's ext4, call by call: `cargo xtask conform [--minutes N] [--seed N] [--steps
//! N] [--features NAME] [--keep]`.
//!
//! First the table of cases that fail, then sequences of random calls on each feature set in turn, with the
//! next seed each round, until the time is over (see `hectare_oracle::conform`). The first difference ends
//! the run, with the seed and the calls that led to it; `--keep` leaves both images.

use crate::scratch::{Scratch, leave_nothing, told};
use crate::steps::{cargo, minutes, parsed, shown, target_folder, understood, went_well};
use hectare_oracle::conform::{Conform, Done, SETS};
use hectare_oracle::killed::Ended;
use std::path::Path;
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: cargo xtask conform [--minutes N] [--seed N] [--steps N] [--features NAME] [--keep]";

#[derive(Clone, PartialEq, Debug)]
struct Options {
    time: Duration,
    seed: u64,
    steps: u32,
    features: Option<String>,
    keep: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options =
            Self { time: Duration::from_secs(600), seed: 1, steps: 5000, features: None, keep: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--minutes" => options.time = minutes(word, value()?)?,
                "--seed" => options.seed = parsed(word, value()?)?,
                "--steps" => options.steps = parsed(word, value()?)?,
                "--features" => options.features = Some(known(value()?)?.to_owned()),
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

fn known(name: &str) -> Result<&str, String> {
    let names = || SETS.iter().map(|(name, _)| *name);
    if names().any(|known| known == name) {
        return Ok(name);
    }
    Err(format!("--features: there is no {name}, but {}", names().collect::<Vec<_>>().join(", ")))
}

/// Runs the job with its words; whether nothing differed.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(options) = understood(Options::parse(words), USAGE) else { return false };
    if !shown(cargo().args(["build", "--quiet", "--package", "hectare"])) {
        return false;
    }
    let result = compared(&options, &target_folder().join("debug/hectare"));
    leave_nothing();
    went_well("conform", result)
}

fn compared(options: &Options, program: &Path) -> Result<(), String> {
    let folder = Scratch::new(Path::new("/dev/shm"), "hectare-conform")?;
    let conform = Conform::new(program, folder.path()).map_err(|skip| skip.to_string())?;
    // Both, whatever the first says.
    let differ = cases(&conform);
    let result = sequences(&conform, options).and(differ);
    if result.is_err() && options.keep {
        for name in ["ours.img", "kernels.img"] {
            let kept = Path::new("/dev/shm").join(format!("hectare-conform-{name}"));
            std::fs::rename(folder.path().join(name), &kept).map_err(told(&kept))?;
            eprintln!("the image stays: {}", kept.display());
        }
    }
    result
}

fn cases(conform: &Conform) -> Result<(), String> {
    let (count, differences) = conform.cases().map_err(|ended| ended.to_string())?;
    for difference in &differences {
        println!("{}: {}, but the kernel: {}", difference.case, difference.ours, difference.kernels);
    }
    println!("{count} cases, {} differ", differences.len());
    if differences.is_empty() { Ok(()) } else { Err("cases differ".into()) }
}

fn sequences(conform: &Conform, options: &Options) -> Result<(), String> {
    let started = Instant::now();
    let mut all = Done::default();
    for seed in options.seed.. {
        for set in SETS {
            if options.features.as_deref().is_some_and(|name| name != set.0) {
                continue;
            }
            if seed > options.seed && started.elapsed() >= options.time {
                println!("{} calls on each side, {} of them refused, all alike", all.calls, all.refused);
                return Ok(());
            }
            match conform.sequence(set, seed, options.steps) {
                Ok(done) => all = Done { calls: all.calls + done.calls, refused: all.refused + done.refused },
                Err(Ended::Skip(skip)) => println!("{set:?} is left out: {skip}"),
                Err(Ended::Failed(what)) => return Err(format!("{set:?}, seed {seed}: {what}")),
            }
        }
        println!("seed {seed}: {} calls so far", all.calls);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused() {
        let options = Options::parse(&["--minutes", "0.5", "--seed", "7", "--features", "bigalloc"]).unwrap();
        assert_eq!((options.time, options.seed), (Duration::from_secs(30), 7));
        assert_eq!(options.features.as_deref(), Some("bigalloc"));
        for words in [&["--seed"][..], &["--features", "none"], &["--steps", "x"], &["loud"]] {
            assert!(Options::parse(words).is_err(), "{words:?}");
        }
    }
}
