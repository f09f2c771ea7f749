//! Kills the server of a mount: `cargo hunt killed [--times N] [--seed N] [--keep]`.
//!
//! `hectare` is built and serves a volume that writers, a database and the host's programs work on; it is
//! killed at any moment, and everything that was synced must have survived (see `hectare_hunts::kill_test`).
//! One round per line. `--keep` leaves the image of a failed round, as it was when the failure was found.
//!
//! The seed determines when the server dies and what each writer does, not how they interleave: a failure may
//! take several runs to recur.

use hectare_hunts::durability::Checked;
use hectare_hunts::kill_test::{Killed, Round};
use hectare_tools::built::built;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::job_folder::{Scratch, leave_nothing, with_path};
use hectare_tools::steps::{parsed, understood};
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
            let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--times" => options.times = parsed(word, value()?)?,
                "--seed" => options.seed = parsed(word, value()?)?,
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

/// Runs the job with its arguments; it ends well if nothing was lost.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let Some(program) = built(false) else { return Exit::NotHere };
    let result = rounds(&options, &program);
    leave_nothing();
    Exit::of(&format!("killed --seed {}", options.seed), result)
}

fn rounds(options: &Options, program: &Path) -> Result<(), Ended> {
    let folder = Scratch::new(Path::new("/dev/shm"), "hectare-killed")?;
    let mut killed = Killed::new(program, folder.path(), options.seed)?;
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
                return Err(match ended.into() {
                    Ended::Failed(what) => Ended::Failed(format!("round {n}: {what}")),
                    skipped => skipped,
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
