//! Crashes: `cargo hunt crash [--points N] [--seed N] [--workload W]... [--format F] [--threads N] [--keep
//! DIR] [--no-oracle]` tests states that power cuts leave, until one is not survived or there were enough
//! (see `hectare_hunts::crash`).
//!
//! Each line reports the progress. On failure everything needed to reproduce it goes to the directory of
//! `--keep`, and the commands for that are printed: `--at POINT[:TORN]` runs the workload again and tests
//! that crash alone, `--replay DIR` tests what was kept, which is the same crash even where several threads
//! made it.
//!
//! e2fsck checks one state in a hundred beside the checker, and the state of a failure.

use hectare_hunts::crash::{
    At, FORMATS, Failure, Format, Image, Kept, Oracle, Progress, Search, Workload, explore, look_at,
};
use hectare_oracle::{fsck, tool};
use hectare_tools::ended::Exit;
use hectare_tools::steps::{arbitrary_seed, parsed, root, understood};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const USAGE: &str = "usage: cargo hunt crash [--points N] [--seed N] [--workload W]... [--format F] \
                     [--threads N] [--keep DIR] [--at POINT[:TORN]] [--no-oracle] | --replay DIR";

/// e2fsck checks every n-th state.
const JUDGED_ONE_IN: u64 = 100;
/// Seconds between two lines.
const TOLD_EVERY: u64 = 5;

struct Options {
    points: u64,
    seed: Option<u64>,
    workloads: Vec<Workload>,
    format: Option<Format>,
    threads: usize,
    keep: PathBuf,
    at: Option<At>,
    oracle: bool,
    replay: Option<PathBuf>,
}

/// Runs the job with its arguments; it ends well if everything was survived.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(parse(words), USAGE) else { return Exit::Usage };
    let oracle: Option<&Oracle<'_>> = if options.oracle && tool("e2fsck").is_some() {
        Some(&e2fsck)
    } else {
        println!("without e2fsck: only the checker judges");
        None
    };
    let survived = match &options.replay {
        Some(folder) => replay(folder, &options, oracle),
        None => search(&options, oracle),
    };
    survived.into()
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        points: 100_000,
        seed: None,
        workloads: Vec::new(),
        format: None,
        threads: std::thread::available_parallelism().map_or(2, usize::from),
        keep: root().join("out/crash"),
        at: None,
        oracle: true,
        replay: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
        match *word {
            "--points" => options.points = parsed(word, value()?)?,
            "--seed" => options.seed = Some(parsed(word, value()?)?),
            "--threads" => options.threads = parsed(word, value()?)?,
            "--workload" => options.workloads.push(workload(value()?)?),
            "--format" => options.format = Some(format(value()?)?),
            "--keep" => options.keep = value()?.into(),
            "--at" => options.at = Some(at(value()?)?),
            "--no-oracle" => options.oracle = false,
            "--replay" => options.replay = Some(value()?.into()),
            other => return Err(format!("{other} is no option")),
        }
    }
    if options.workloads.is_empty() {
        options.workloads = Workload::ALL.to_vec();
    }
    Ok(options)
}

fn workload(name: &str) -> Result<Workload, String> {
    let names = Workload::ALL.map(Workload::name).join(", ");
    Workload::by_name(name).ok_or(format!("there is no workload {name}; there are {names}"))
}

fn format(name: &str) -> Result<Format, String> {
    let names = FORMATS.map(|format| format.name).join(", ");
    Format::by_name(name).ok_or(format!("there is no format {name}; there are {names}"))
}

fn at(text: &str) -> Result<At, String> {
    let (point, torn) = text.split_once(':').map_or((text, None), |(point, torn)| (point, Some(torn)));
    Ok(At { point: parsed("--at", point)?, torn: torn.map(|torn| parsed("--at", torn)).transpose()? })
}

fn search(options: &Options, oracle: Option<&Oracle<'_>>) -> bool {
    let seed = options.seed.unwrap_or_else(arbitrary_seed);
    println!("seed {seed}");
    let search = Search {
        workloads: &options.workloads,
        format: options.format,
        seed,
        points: options.points,
        threads: options.threads,
        oracle: oracle.map(|oracle| (oracle, JUDGED_ONE_IN)),
        flushes_lie: false,
        only: options.at,
    };
    let (begin, told_at) = (Instant::now(), AtomicU64::new(0));
    let told = |progress: &Progress| {
        let seconds = begin.elapsed().as_secs();
        if seconds >= told_at.load(Ordering::Relaxed) + TOLD_EVERY {
            told_at.store(seconds, Ordering::Relaxed);
            tell(progress, begin);
        }
    };
    let (progress, failure) = match explore(&search, &told) {
        Ok(done) => done,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    tell(&progress, begin);
    for (workload, points) in progress.points.iter().filter(|(_, points)| *points > 0) {
        println!("  {:<12} {points:>8}", workload.name());
    }
    match failure {
        None => {
            println!("every crash was survived");
            true
        }
        Some(failure) => {
            fail(&failure, &options.keep, oracle);
            false
        }
    }
}

fn tell(progress: &Progress, begin: Instant) {
    let (points, seconds) = (progress.total(), begin.elapsed().as_secs_f64().max(0.001));
    let tenths = u64::try_from(begin.elapsed().as_millis() / 100).unwrap_or(u64::MAX).max(1);
    println!("{points} crashes in {} runs, {seconds:.0} s, {} a second", progress.runs, points * 10 / tenths);
}

fn fail(failure: &Failure, keep: &Path, oracle: Option<&Oracle<'_>>) {
    let Failure { what, workload, format, seed, at, kept } = failure;
    let (name, format) = (workload.name(), format.name);
    println!("\nNOT SURVIVED: workload {name}, volume {format}, seed {seed}\n{what}");
    if let Some((state, oracle)) = kept.state().zip(oracle)
        && let Err(said) = oracle(&state)
    {
        println!("e2fsck of the state, its log not replayed, says:\n{said}");
    }
    let folder = keep.join(format!("{name}-{seed}"));
    match kept.save(&folder) {
        Ok(()) => println!("kept in {}", folder.display()),
        Err(error) => println!("it can't be kept: {error}"),
    }
    let at = at.map(|at| format!(" --at {at}")).unwrap_or_default();
    if workload.follows_from_its_seed() {
        println!("again: cargo hunt crash --workload {name} --format {format} --seed {seed}{at}");
    }
    println!("again: cargo hunt crash --replay {}", folder.display());
}

fn replay(folder: &Path, options: &Options, oracle: Option<&Oracle<'_>>) -> bool {
    let kept = match Kept::load(folder) {
        Ok(kept) => kept,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    let Some(at) = options.at.or(kept.at()) else {
        println!("the run itself failed, not a crash; history.txt lists its operations");
        return false;
    };
    let looked = look_at(&kept, at, oracle);
    match &looked {
        Ok(()) => println!("the crash at {at} is survived"),
        Err(what) => println!("NOT SURVIVED at {at}: {what}"),
    }
    looked.is_ok()
}

/// The output of `e2fsck -fn` on an image that it does not find clean.
fn e2fsck(image: &Image) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let thread = thread_digits();
    let path =
        |what| std::env::temp_dir().join(format!("hectare-crash-{}-{thread}.{what}", std::process::id()));
    let (volume, journal) = (path("img"), path("journal"));
    std::fs::write(&volume, &image.volume).map_err(failed)?;
    let report = match &image.journal {
        None => fsck::e2fsck(&volume),
        Some(bytes) => {
            std::fs::write(&journal, bytes).map_err(failed)?;
            let report = fsck::e2fsck_with(&volume, &["-fn", "-j", &journal.display().to_string()]);
            std::fs::remove_file(&journal).map_err(failed)?;
            report
        }
    };
    std::fs::remove_file(&volume).map_err(failed)?;
    match report {
        Ok(report) if !report.is_sound() => Err(report.output),
        _ => Ok(()),
    }
}

/// A number that no other thread has, for file names.
fn thread_digits() -> String {
    format!("{:?}", std::thread::current().id()).chars().filter(char::is_ascii_digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_names_are_read() {
        let options =
            parse(&["--workload", "names", "--format", "4k", "--at", "12:7", "--seed", "3"]).unwrap();
        assert_eq!(options.workloads, [Workload::Names]);
        assert_eq!(options.at, Some(At { point: 12, torn: Some(7) }));
        assert_eq!(parse(&[]).unwrap().workloads.len(), Workload::ALL.len());
        assert!(parse(&["--workload", "nothing"]).is_err_and(|message| message.contains("append")));
        assert!(parse(&["--at", "x"]).is_err() && parse(&["--points"]).is_err());
    }
}
