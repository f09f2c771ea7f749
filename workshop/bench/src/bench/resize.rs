//! Comparison of making a volume as small as can be, `hectare resize IMAGE min` against `resize2fs -f -M`:
//! `cargo benchmark resize [--only NAME] [--pairs N] [--quick] [--binary FILE] [--json FILE] [--list]`.
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
use super::rounds::{Outcome, Runs, Sides, Step, is_wanted, verdict};
use hectare_oracle::{KernelMount, assert_clean, mke2fs, tool};
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::target_folder;
use hectare_units::random::SplitMix64;
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
pub(super) struct Case {
    pub(super) name: &'static str,
    /// How many times faster than resize2fs ours without checks is claimed to be.
    times: f64,
}

pub(super) const CASES: [Case; 2] = [Case { name: "disk", times: 3.0 }, Case { name: "memory", times: 1.0 }];

/// Who shrinks.
const SIDES: Sides = Sides {
    titles: ["hectare", "hectare --no-check", "resize2fs -f -M"],
    peer: 2,
    headings: ["image on", "times as fast"],
};

/// Shrinking of copies of a volume.
struct Shrinking<'a> {
    binary: &'a Path,
    base: &'a Path,
    image: &'a Path,
}

impl Step for Shrinking<'_> {
    fn command(&mut self, side: usize) -> Result<Command, String> {
        copy(self.base, self.image)?;
        let mut command = match side {
            0 | 1 => Command::new(self.binary),
            _ => tool("resize2fs").ok_or("resize2fs is not installed")?,
        };
        match side {
            0 => command.arg("resize").arg(self.image).arg("min"),
            1 => command.args(["resize", "--no-check"]).arg(self.image).arg("min"),
            _ => command.args(["-f", "-M"]).arg(self.image),
        };
        command.stderr(Stdio::null());
        Ok(command)
    }

    fn after(&mut self, _: usize) -> Result<String, String> {
        let blocks = fs::metadata(self.image).map_err(|error| error.to_string())?.len() >> 12;
        assert_clean(self.image).map_err(|skip| skip.to_string())?;
        Ok(format!(", {blocks} blocks"))
    }
}

/// The names of all cases.
pub(super) fn list() {
    CASES.iter().for_each(|case| println!("{:<25} {FILES} files, half of them removed", case.name));
}

/// Runs the job; returns whether everything ran, was clean and was as claimed.
pub(super) fn run(options: &super::Options, binary: &Path) -> bool {
    let mut outcome = Outcome::new(&SIDES);
    for case in CASES.iter().filter(|case| is_wanted(options, case.name)) {
        let judged = |runs: &Runs, text: &mut String| options.quick || judge(case, runs, text);
        outcome.take(case.name, rounds(case, options, binary), judged);
    }
    outcome.finish(options)
}

/// All runs in one place, by side.
fn rounds(case: &Case, options: &super::Options, binary: &Path) -> Result<Runs, String> {
    let place = if case.name == "disk" { target_folder() } else { PathBuf::from("/dev/shm") };
    let scratch = Scratch::new(&place, NAME)?;
    let (base, image) = (scratch.path().join("base"), scratch.path().join("image"));
    eprintln!("{}: making the volume", case.name);
    make(&base, if options.quick { FILES / 20 } else { FILES })?;
    SIDES.rounds(options.pairs, &image, &mut Shrinking { binary, base: &base, image: &image })
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

/// Prints the claim, and says whether it is met.
fn judge(case: &Case, runs: &Runs, text: &mut String) -> bool {
    let (name, claimed, found) = (case.name, case.times, SIDES.median_times(runs, 1));
    let claim = format!("{name}: at least {claimed} times as fast as resize2fs: {}", shown(found));
    verdict(text, found >= claimed, &claim)
}
