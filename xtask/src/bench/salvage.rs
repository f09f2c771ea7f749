//! Comparison of `hectare salvage` with reading the image in sequence: `cargo xtask bench salvage [--only
//! NAME] [--pairs N] [--quick] [--binary FILE] [--json FILE] [--list]`.
//!
//! | case | volume |
//! |---|---|
//! | `small-files` | ext4 with 100,000 files of 200 to 16,000 bytes, 50 to a directory |
//! | `large-files` | ext4 with 12 files of 100 MiB |
//!
//! Each case runs on a *cold* image, which lies on the disk beside cargo's output and of which nothing is in
//! the page cache, and on a *hot* one in memory. In each round `cat IMAGE` to `/dev/null`, `hectare salvage
//! -o DIR` with the directory in memory, and `hectare salvage -o tar:-` to `/dev/null` run in turn; the
//! order alternates. The figure is the ratio of the time of `cat` to ours in the same round: 1 is as fast as
//! reading.
//!
//! Claimed is a ratio of 0.8 on cold images. On hot ones reading costs next to nothing, and what is measured
//! is how fast the host makes files: these ratios are shown and not judged.
//!
//! Hazard: needs 4 GiB in `/dev/shm` and 3 GiB on the disk.

use super::figures::shown;
use super::mkfs::measure::{Figures, run as measured};
use super::mkfs::{barred, told};
use super::results::{aligned, machine, write_json};
use crate::scratch::{Scratch, leave_nothing};
use crate::steps::target_folder;
use hectare_lab::paired_stats::Spread;
use hectare_oracle::tool;
use hectare_oracle::tool::line_of;
use hectare_units::{index_of, random};
use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "hectare-bench-salvage";
/// The claimed ratio on cold images.
const RATIO: f64 = 0.8;

/// A volume.
struct Case {
    name: &'static str,
    files: u64,
    /// Bytes of the shortest and of the longest file.
    len: (u64, u64),
    size: &'static str,
}

const CASES: [Case; 2] = [
    Case { name: "small-files", files: 100_000, len: (200, 16_000), size: "1300M" },
    Case { name: "large-files", files: 12, len: (100 << 20, 100 << 20), size: "1400M" },
];

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Cat,
    Directory,
    Tar,
}

const SIDES: [Side; 3] = [Side::Cat, Side::Directory, Side::Tar];

impl Side {
    const fn title(self) -> &'static str {
        match self {
            Self::Cat => "cat",
            Self::Directory => "salvage -o DIR",
            Self::Tar => "salvage -o tar:-",
        }
    }

    fn command(self, binary: &Path, image: &Path, out: &Path) -> Result<Command, String> {
        let mut command = match self {
            Self::Cat => tool("cat").ok_or("cat is not installed")?,
            Self::Directory | Self::Tar => Command::new(binary),
        };
        match self {
            Self::Cat => command.arg(image),
            Self::Directory => command.arg("salvage").arg(image).arg("-o").arg(out),
            Self::Tar => command.arg("salvage").arg(image).args(["-o", "tar:-"]),
        };
        command.stderr(Stdio::null());
        Ok(command)
    }
}

/// The names of all cases.
pub(super) fn list() {
    CASES.iter().for_each(|case| println!("{:<25} {} files", case.name, case.files));
}

/// Runs the job; returns whether everything ran and was as claimed.
pub(super) fn run(options: &super::Options, binary: &Path) -> bool {
    let wanted = |case: &&Case| {
        options.only.is_empty() || options.only.iter().any(|only| case.name.starts_with(only.as_str()))
    };
    let (mut good, mut all, mut rows) = (true, Vec::new(), Vec::new());
    let mut verdicts = String::new();
    for case in CASES.iter().filter(wanted) {
        for is_cold in [true, false] {
            let name = format!("{}, {}", case.name, if is_cold { "cold" } else { "hot" });
            match rounds(case, is_cold, options, binary) {
                Ok(runs) => {
                    good &= !is_cold || options.quick || judge(&name, &runs, &mut verdicts);
                    rows.extend(table(&name, &runs));
                    all.push(json!({ "case": name, "runs": runs.each_ref().map(|runs| of_all(runs)) }));
                }
                Err(error) => {
                    good = false;
                    let _ = writeln!(verdicts, "FAILED {name}: {error}");
                }
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

fn of_all(runs: &[Figures]) -> Vec<Value> {
    runs.iter().map(Figures::json).collect()
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// All runs on a volume, by side.
fn rounds(
    case: &Case,
    is_cold: bool,
    options: &super::Options,
    binary: &Path,
) -> Result<[Vec<Figures>; 3], String> {
    let memory = Scratch::new(Path::new("/dev/shm"), NAME)?;
    let disk = is_cold.then(|| Scratch::new(&target_folder(), NAME)).transpose()?;
    let image = disk.as_ref().unwrap_or(&memory).path().join("image");
    eprintln!("{}: making the volume", case.name);
    make(case, options.quick, &memory.path().join("source"), &image)?;
    let out = memory.path().join("out");
    let mut runs = [const { Vec::new() }; 3];
    for round in 0..options.pairs {
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for nr in order {
            if is_cold {
                evict(&image)?;
            }
            let figures = measured(SIDES[nr].command(binary, &image, &out)?, &image)?;
            let Figures { seconds, cpu, .. } = figures;
            let title = SIDES[nr].title();
            eprintln!("  round {}: {title}: {seconds:.2} s, of the processor {cpu:.2}", round + 1);
            runs[nr].push(figures);
            if out.exists() {
                fs::remove_dir_all(&out).map_err(failed)?;
            }
        }
    }
    Ok(runs)
}

/// Drops an image from the page cache.
fn evict(image: &Path) -> Result<(), String> {
    let file = File::open(image).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| error.to_string())
}

/// Makes a volume.
fn make(case: &Case, quick: bool, source: &Path, image: &Path) -> Result<(), String> {
    let files = if quick { case.files.div_ceil(50) } else { case.files };
    let mut state = 1_u64;
    let mut next = move || {
        state = state.wrapping_add(random::STEP);
        random::mixed(state)
    };
    let words: Vec<u8> = (0..case.len.1.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    for nr in 0..files {
        let dir = source.join(format!("d{}/s{}", nr / 1000, nr / 50));
        fs::create_dir_all(&dir).map_err(failed)?;
        let len = case.len.0 + next() % (case.len.1 - case.len.0 + 1);
        fs::write(dir.join(format!("file{nr}")), &words[words.len() - index_of(len)..]).map_err(failed)?;
    }
    let mut command = tool("mke2fs").ok_or("mke2fs is not installed")?;
    command.args(["-q", "-F", "-t", "ext4", "-N", "110000", "-d"]).arg(source).arg(image).arg(case.size);
    let line = line_of(&command);
    let status = command.stdout(Stdio::null()).status().map_err(|error| format!("{line}: {error}"))?;
    fs::remove_dir_all(source).map_err(failed)?;
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}")) }
}

fn values(runs: &[Figures], of: fn(&Figures) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(of).collect()
}

/// The time of `cat` to that of a side, round by round.
fn ratio(runs: &[Vec<Figures>; 3], side: usize) -> Option<Spread> {
    let seconds = |run: &Figures| Some(run.seconds);
    Spread::of_ratios(&values(&runs[0], seconds), &values(&runs[side], seconds))
}

/// Prints the claims, and says whether all are met.
fn judge(name: &str, runs: &[Vec<Figures>; 3], text: &mut String) -> bool {
    let mut good = true;
    for (side, of) in SIDES.iter().enumerate().skip(1) {
        let found = ratio(runs, side).map_or(0.0, |spread| spread.median);
        let met = found >= RATIO;
        good &= met;
        let verdict = if met { "met" } else { "MISSED" };
        let (title, found) = (of.title(), shown(found));
        let _ =
            writeln!(text, "{verdict}: {name}, {title}: at least {RATIO} of the speed of reading: {found}");
    }
    good
}

const HEADINGS: [&str; 6] =
    ["volume", "program", "seconds", "speed to reading", "processor seconds", "peak MiB"];

fn table(name: &str, runs: &[Vec<Figures>; 3]) -> Vec<Vec<String>> {
    let cell = |spread: Option<Spread>| spread.map_or("-".to_owned(), told);
    let row = |(side, of): (usize, &Side)| {
        let of_side = |figure: fn(&Figures) -> Option<f64>| cell(Spread::of(&values(&runs[side], figure)));
        vec![
            name.to_owned(),
            of.title().to_owned(),
            of_side(|run| Some(run.seconds)),
            if side > 0 { cell(ratio(runs, side)) } else { "-".to_owned() },
            of_side(|run| Some(run.cpu)),
            of_side(|run| run.memory_mib),
        ]
    };
    SIDES.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_of_the_pairs() {
        let run = |seconds: f64| {
            let figures =
                Figures { seconds, cpu: seconds, memory_mib: None, written: 0.0, writes: 0.0, taken: 0.0 };
            vec![figures; 3]
        };
        let mut text = String::new();
        assert!(judge("x", &[run(8.0), run(10.0), run(4.0)], &mut text), "{text}");
        assert!(!judge("x", &[run(7.0), run(10.0), run(4.0)], &mut text));
        assert_eq!(text.matches("MISSED").count(), 1, "{text}");
    }
}
