//! Stress programs on a mount of every kind of volume: `cargo hunt stress [--seconds N] [--seed N]
//! [--kind NAME]... [--keep]`.
//!
//! fsx, stress-ng, and two exercisers of our own work at once on each kind of volume, for some seconds; then the
//! trees are compared and e2fsck checks the volume (see `hectare_hunts::stress`). A line for each kind. One
//! that fails does not end the run; `--keep` leaves its image.
//!
//! fsx is the crate of that name, which is installed below the target directory if it is missing and may be
//! installed (`HECTARE_NO_INSTALL=1` forbids it); without it, the run says so.

use hectare_hunts::kill_test;
use hectare_hunts::stress::{Figures, KINDS, Kind, Stress};
use hectare_tools::built::built;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::job_folder::{Scratch, leave_nothing, with_path};
use hectare_tools::steps::{cargo, parsed, seconds, shown, target_folder, understood};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo hunt stress [--seconds N] [--seed N] [--kind NAME]... [--keep]";
/// The version that the configuration is for.
const FSX: &str = "fsx@0.3.2";

#[derive(Clone, Debug)]
struct Options {
    time: Duration,
    seed: u64,
    kinds: Vec<Kind>,
    keep: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { time: Duration::from_secs(20), seed: 1, kinds: Vec::new(), keep: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--seconds" => options.time = seconds(word, value()?)?,
                "--seed" => options.seed = parsed(word, value()?)?,
                "--kind" => options.kinds.push(Kind::named(value()?)?),
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        if options.kinds.is_empty() {
            options.kinds = KINDS.to_vec();
        }
        Ok(options)
    }
}

/// Runs the job with its arguments; it ends well if nothing was wrong.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let Some(program) = built(false) else { return Exit::NotHere };
    let result = stressed(&options, &program);
    leave_nothing();
    Exit::of(&format!("stress --seed {}", options.seed), result)
}

/// Where fsx is, installed if possible.
fn fsx() -> Option<PathBuf> {
    let tools = target_folder().join("tools");
    let program = tools.join("bin/fsx");
    let forbidden = std::env::var("HECTARE_NO_INSTALL").is_ok_and(|value| value == "1");
    if !program.exists() && !forbidden {
        shown(cargo().args(["install", "--quiet", "--locked", FSX, "--root"]).arg(&tools));
    }
    program.exists().then_some(program)
}

fn stressed(options: &Options, program: &Path) -> Result<(), Ended> {
    let fsx = fsx();
    let folder = Scratch::new(Path::new("/dev/shm"), "hectare-stress")?;
    let stress = Stress::new(program, folder.path(), fsx.as_deref())?;
    println!(
        "stress: {} kinds, {} s each, seed {}",
        options.kinds.len(),
        options.time.as_secs(),
        options.seed
    );
    println!(
        "{:<20} {:>8} {:>9} {:>6} {:>9} {:>7} {:>8}",
        "kind", "fsx", "exercised", "crew", "stress-ng", "files", "seconds"
    );
    let (mut sum, mut failed, began) = (Figures::default(), Vec::new(), Instant::now());
    for kind in &options.kinds {
        let at = Instant::now();
        match stress.run(*kind, options.seed, options.time) {
            Ok(figures) => {
                line(kind.name, &figures, at.elapsed());
                sum.fsx += figures.fsx;
                sum.exercised += figures.exercised;
                sum.crew += figures.crew;
                sum.stress_ng += figures.stress_ng;
                sum.entries += figures.entries;
            }
            Err(kill_test::Ended::Skip(skip)) => println!("{:<20} is left out: {skip}", kind.name),
            Err(kill_test::Ended::Failed(what)) => {
                println!("{:<20} FAILED: {what}", kind.name);
                failed.push(kind.name);
                if options.keep {
                    keep(folder.path(), kind.name)?;
                }
            }
        }
    }
    line("all", &sum, began.elapsed());
    if failed.is_empty() { Ok(()) } else { Err(format!("wrong: {}", failed.join(", ")).into()) }
}

fn line(name: &str, figures: &Figures, took: Duration) {
    let Figures { fsx, exercised, crew, stress_ng, entries, left_out } = figures;
    let left_out: Vec<String> = left_out.iter().map(|skip| format!("; without {skip}")).collect();
    println!(
        "{name:<20} {fsx:>8} {exercised:>9} {crew:>6} {stress_ng:>9} {entries:>7} {:>8.0}{}",
        took.as_secs_f64(),
        left_out.concat()
    );
}

fn keep(folder: &Path, name: &str) -> Result<(), String> {
    let kept = Path::new("/dev/shm").join(format!("hectare-stress-{name}.img"));
    std::fs::rename(folder.join("stressed.img"), &kept).map_err(with_path(&kept))?;
    eprintln!("the image stays: {}", kept.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let options = Options::parse(&["--seconds", "7", "--seed", "9", "--kind", "ext3", "--keep"]).unwrap();
        assert_eq!((options.time.as_secs(), options.seed, options.keep), (7, 9, true));
        assert_eq!(options.kinds.iter().map(|kind| kind.name).collect::<Vec<_>>(), ["ext3"]);
        assert_eq!(Options::parse(&[]).unwrap().kinds.len(), KINDS.len());
        for wrong in [
            &["--seconds"][..],
            &["--seconds", "18446744073709551615"],
            &["--seed", "x"],
            &["--kind", "ext5"],
            &["hard"],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
