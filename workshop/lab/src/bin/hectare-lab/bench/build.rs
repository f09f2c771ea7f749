//! `hectare-lab bench build`.

use hectare_cli::shared::{Failure, Outcome, Output, tell};
use hectare_lab::build;
use std::path::PathBuf;

/// Compare building an image from a directory: hectare build, mke2fs -d, and mkfs, mount and cp -a by the
/// kernel
///
/// Every method runs once per round. Printed are the median of the rounds, the extremes, and the median of
/// the rounds' ratios to Hectare's time. Methods that can't run here are named.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare-lab bench build --from /usr/share --work /dev/shm\n  \
    hectare-lab bench build --rounds 9 --without mke2fs --json")]
pub(super) struct Arguments {
    /// The source directory
    #[arg(long, value_name = "FOLDER", default_value = "/usr/share")]
    from: PathBuf,
    /// Where images are made: memory measures the programs, a disk measures the disk
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    work: PathBuf,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Leave out a method, by the beginning of its name (mke2fs, mkfs)
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Print JSON: every round of every method
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let hectare = std::env::current_exe().map_err(|error| Failure::of("hectare", error))?;
    let options = build::Options {
        hectare,
        source: arguments.from.clone(),
        work: arguments.work.clone(),
        rounds: arguments.rounds,
        without: arguments.without.clone(),
    };
    let report = build::run(&options, |line| tell(line)).map_err(|error| Failure::Line(error.to_string()))?;
    let mut out = Output::report();
    if arguments.json {
        return out.json(&report);
    }
    write!(out, "{}", report.table())?;
    out.finish()
}
