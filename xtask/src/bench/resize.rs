//! Comparison of making a volume as small as can be, `hectare resize IMAGE min` against `resize2fs -f -M`:
//! `cargo xtask bench resize [--only NAME] [--pairs N] [--quick] [--binary FILE] [--json FILE] [--list]`.
//!
//! | case | where the image lies |
//! |---|---|
//! | `disk` | beside cargo's output: every flush waits for the storage |
//! | `memory` | `/dev/shm`: what counts is copying, of which both must do the same |
//!
//! The volume is one of 4 GiB by mke2fs, in which the kernel made 30,000 files of 1 to 100 KB and removed
//! every other. In each round three run in turn, each on a fresh copy: ours with the checks before and
//! after, ours without, and resize2fs, which makes none. The order alternates. After each run `e2fsck -fn`
//! checks the image.
//!
//! Hazards: needs root and loop devices, and 2 GiB in each place. The processor time of a run is of whole
//! clock ticks (10 ms).

use super::figures::shown;
use super::mkfs::measure::{Figures, run as measured};
use super::mkfs::{barred, told};
use super::results::{aligned, machine, write_json};
use crate::scratch::{Scratch, leave_nothing};
use crate::steps::target_folder;
use hectare_lab::paired_stats::Spread;
use hectare_oracle::{KernelMount, assert_clean, mke2fs, tool};
use hectare_units::random::SplitMix64;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAME: &str = "hectare-bench-resize";
/// Files that are made, of which every other is removed, and directories that they lie in.
const FILES: u64 = 30_000;
const DIRECTORIES: u64 = 100;
/// Bytes of files.
const LENGTHS: [usize; 4] = [1000, 5000, 20_000, 100_000];

/// Where the image lies.
struct Case {
    name: &'static str,
    /// How many times faster than resize2fs ours without checks is claimed to be.
    times: f64,
}

const CASES: [Case; 2] = [Case { name: "disk", times: 3.0 }, Case { name: "memory", times: 1.0 }];

/// Who shrinks.
const SIDES: [&str; 3] = ["hectare", "hectare --no-check", "resize2fs -f -M"];

fn command(side: usize, binary: &Path, image: &Path) -> Result<Command, String> {
    let mut command = match side {
        0 | 1 => Command::new(binary),
        _ => tool("resize2fs").ok_or("resize2fs is not installed")?,
    };
    match side {
        0 => command.arg("resize").arg(image).arg("min"),
        1 => command.args(["resize", "--no-check"]).arg(image).arg("min"),
        _ => command.args(["-f", "-M"]).arg(image),
    };
    command.stderr(Stdio::null());
    Ok(command)
}

/// The names of all cases.
pub(super) fn list() {
    CASES.iter().for_each(|case| println!("{:<25} {FILES} files, half of them removed", case.name));
}

/// Runs the job; returns whether everything ran, was clean and was as claimed.
pub(super) fn run(options: &super::Options, binary: &Path) -> bool {
    let wanted = |case: &&Case| {
        options.only.is_empty() || options.only.iter().any(|only| case.name.starts_with(only.as_str()))
    };
    let (mut good, mut all, mut rows, mut verdicts) = (true, Vec::new(), Vec::new(), String::new());
    for case in CASES.iter().filter(wanted) {
        match rounds(case, options, binary) {
            Ok(runs) => {
                good &= judge(case, &runs, options.quick, &mut verdicts);
                rows.extend(table(case, &runs));
                let of_all = |runs: &Vec<Figures>| runs.iter().map(Figures::json).collect::<Vec<Value>>();
                all.push(json!({ "case": case.name, "runs": runs.each_ref().map(of_all) }));
            }
            Err(error) => {
                good = false;
                let _ = writeln!(verdicts, "FAILED {}: {error}", case.name);
            }
        }
    }
    rows.splice(0..0, [HEADINGS, ["---"; 6]].map(|row| row.map(str::to_owned).to_vec()));
    let rows: Vec<Vec<String>> = rows.into_iter().map(barred).collect();
    print!("{}{verdicts}", aligned(&rows));
    leave_nothing();
    if let Err(error) = write_json(&options.json, &json!({ "machine": machine(), "cases": all })) {
        eprintln!("can't write {}: {error}", options.json.display());
        return false;
    }
    good && !all.is_empty()
}

/// All runs in one place, by side.
fn rounds(case: &Case, options: &super::Options, binary: &Path) -> Result<[Vec<Figures>; 3], String> {
    let place = if case.name == "disk" { target_folder() } else { PathBuf::from("/dev/shm") };
    let scratch = Scratch::new(&place, NAME)?;
    let (base, image) = (scratch.path().join("base"), scratch.path().join("image"));
    eprintln!("{}: making the volume", case.name);
    make(&base, if options.quick { FILES / 20 } else { FILES })?;
    let mut runs = [const { Vec::new() }; 3];
    for round in 0..options.pairs {
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for nr in order {
            copy(&base, &image)?;
            let figures = measured(command(nr, binary, &image)?, &image)?;
            let blocks = fs::metadata(&image).map_err(|error| error.to_string())?.len() >> 12;
            let Figures { seconds, cpu, .. } = figures;
            let title = SIDES[nr];
            eprintln!(
                "  round {}: {title}: {seconds:.2} s, processor {cpu:.2} s, {blocks} blocks",
                round + 1
            );
            assert_clean(&image).map_err(|skip| skip.to_string())?;
            runs[nr].push(figures);
        }
    }
    Ok(runs)
}

/// Makes the volume.
fn make(image: &Path, files: u64) -> Result<(), String> {
    mke2fs(&["-t", "ext4"], image, "4G").map_err(|skip| skip.to_string())?;
    let mount = KernelMount::new(image, "").map_err(|skip| skip.to_string())?;
    let (mut random, content) = (SplitMix64::new(1), vec![7; LENGTHS[3]]);
    let path = |nr: u64| mount.path().join(format!("d{}/f{nr}", nr % DIRECTORIES));
    let failed = |error: std::io::Error| format!("filling the volume: {error}");
    for nr in 0..DIRECTORIES {
        fs::create_dir(mount.path().join(format!("d{nr}"))).map_err(failed)?;
    }
    for nr in 0..files {
        let len = random.pick(&LENGTHS).copied().unwrap_or_default();
        fs::write(path(nr), &content[..len]).map_err(failed)?;
    }
    for nr in (0..files).step_by(2) {
        fs::remove_file(path(nr)).map_err(failed)?;
    }
    mount.unmount();
    Ok(())
}

/// Copies an image, durably, so that a run does not pay for it.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let mut cp = tool("cp").ok_or("cp is not installed")?;
    let status = cp.arg("--sparse=always").arg(from).arg(to).status().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("cp: {status}"));
    }
    let synced = fs::File::open(to).and_then(|file| file.sync_all());
    synced.map_err(|error| error.to_string())
}

type Figure = fn(&Figures) -> Option<f64>;

fn values(runs: &[Figures], of: Figure) -> Vec<f64> {
    runs.iter().filter_map(of).collect()
}

/// How many times faster than resize2fs, round by round.
fn times(runs: &[Vec<Figures>; 3], side: usize) -> Option<Spread> {
    let seconds: Figure = |run| Some(run.seconds);
    Spread::of_ratios(&values(&runs[2], seconds), &values(&runs[side], seconds))
}

/// Prints the claim, and says whether it is met.
fn judge(case: &Case, runs: &[Vec<Figures>; 3], quick: bool, text: &mut String) -> bool {
    if quick {
        return true;
    }
    let found = times(runs, 1).map_or(0.0, |spread| spread.median);
    let met = found >= case.times;
    let verdict = if met { "met" } else { "MISSED" };
    let (name, claimed) = (case.name, case.times);
    let _ =
        writeln!(text, "{verdict}: {name}: at least {claimed} times as fast as resize2fs: {}", shown(found));
    met
}

const HEADINGS: [&str; 6] =
    ["image on", "program", "seconds", "times as fast", "processor seconds", "peak MiB"];

fn table(case: &Case, runs: &[Vec<Figures>; 3]) -> Vec<Vec<String>> {
    let cell = |spread: Option<Spread>| spread.map_or("-".to_owned(), told);
    let row = |(side, title): (usize, &&str)| {
        let of_side = |figure: Figure| cell(Spread::of(&values(&runs[side], figure)));
        vec![
            case.name.to_owned(),
            (*title).to_owned(),
            of_side(|run| Some(run.seconds)),
            if side < 2 { cell(times(runs, side)) } else { "-".to_owned() },
            of_side(|run| Some(run.cpu)),
            of_side(|run| run.memory_mib),
        ]
    };
    SIDES.iter().enumerate().map(row).collect()
}
