//! Kills the server of a mount: `cargo hunt killed [--times N] [--seed N] [--keep]`.
//!
//! `hectare` is built and serves a volume that writers, a database and the host's programs work on; it is
//! killed at any moment, and everything that was synced must have survived (see `hectare_hunts::kill_test`).
//! One round per line. `--keep` leaves the image of a failed round, as it was when the failure was found.
//!
//! The seed determines when the server dies and what each writer does, not how they interleave: a failure may
//! take several runs to recur.

use hectare_hunts::durability::Checked;
use hectare_hunts::kill_test::{Ended, Killed, Round};
use hectare_tools::job_folder::{Scratch, leave_nothing, with_path};
use hectare_tools::steps::{built, understood, went_well};
use std::path::Path;

const USAGE: &str = "usage: cargo hunt killed [--times N] [--seed N] [--keep]";

#[derive(Clone, PartialEq, Debug)]
struct Options {
    times: u32,
    seed: u64,
    keep: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { times: 100, seed: 1, keep: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64, String> {
                let text = words.next().ok_or(format!("{word} needs a value"))?;
                text.parse().map_err(|_| format!("{word}: {text} is no number"))
            };
            match *word {
                "--times" => {
                    options.times =
                        u32::try_from(number()?).map_err(|_| format!("{word}: that is too often"))?;
                }
                "--seed" => options.seed = number()?,
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

/// Runs the job with its arguments; returns whether nothing was lost.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(options) = understood(Options::parse(words), USAGE) else { return false };
    let Some(program) = built(false) else { return false };
    let result = rounds(&options, &program);
    leave_nothing();
    went_well(&format!("killed --seed {}", options.seed), result)
}

fn rounds(options: &Options, program: &Path) -> Result<(), String> {
    let folder = Scratch::new(Path::new("/dev/shm"), "hectare-killed")?;
    let mut killed = Killed::new(program, folder.path(), options.seed).map_err(|ended| ended.to_string())?;
    println!("killed: {} times, seed {}", options.times, options.seed);
    let (mut all, mut transactions) = (Checked::default(), 0);
    for n in 1..=options.times {
        match killed.round() {
            Ok(round) => {
                line(n, &round);
                all += round.checked;
                transactions += round.transactions.unwrap_or(0);
            }
            Err(ended) => {
                if options.keep {
                    keep(killed.image())?;
                }
                return Err(match ended {
                    Ended::Skip(skip) => skip.to_string(),
                    Ended::Failed(what) => format!("round {n}: {what}"),
                });
            }
        }
    }
    println!(
        "survived {} times: {} names, {} records and {transactions} transactions that were synced are there",
        options.times, all.names, all.records
    );
    Ok(())
}

fn line(n: u32, round: &Round) {
    let Round { options, noise, after, recovery, checked, transactions } = round;
    let transactions = transactions.map_or("no database".into(), |count| format!("{count:>3} transactions"));
    let (recovery, Checked { names, records }) = (format!("{recovery:?}"), checked);
    println!(
        "{n:>5}  {after:>4} ms  {options:<18} {noise:<10} {recovery:<8} {names:>3} names \
         {records:>5} records  {transactions}"
    );
}

fn keep(image: &Path) -> Result<(), String> {
    let kept = Path::new("/dev/shm").join("hectare-killed-failed.img");
    std::fs::rename(image, &kept).map_err(with_path(&kept))?;
    eprintln!("the image stays: {}", kept.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let options = Options::parse(&["--times", "7", "--seed", "9", "--keep"]).unwrap();
        assert_eq!(options, Options { times: 7, seed: 9, keep: true });
        for wrong in [&["--times"][..], &["--times", "-1"], &["--seed", "x"], &["often"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
