//! Comparison of `hectare salvage` with reading the image in sequence: `cargo benchmark salvage [--only
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
use super::rounds::{Outcome, Runs, Sides, Step, is_wanted, verdict};
use hectare_oracle::tool;
use hectare_oracle::tool::line_of;
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::target_folder;
use hectare_units::{index_of, random};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "hectare-bench-salvage";
/// The claimed ratio on cold images.
const RATIO: f64 = 0.8;

/// A volume.
pub(super) struct Case {
    pub(super) name: &'static str,
    files: u64,
    /// Bytes of the shortest and of the longest file.
    len: (u64, u64),
    size: &'static str,
}

pub(super) const CASES: [Case; 2] = [
    Case { name: "small-files", files: 100_000, len: (200, 16_000), size: "1300M" },
    Case { name: "large-files", files: 12, len: (100 << 20, 100 << 20), size: "1400M" },
];

/// What runs.
const SIDES: Sides = Sides {
    titles: ["cat", "salvage -o DIR", "salvage -o tar:-"],
    peer: 0,
    headings: ["volume", "speed to reading"],
};

/// Readings of an image.
struct Readings<'a> {
    binary: &'a Path,
    image: &'a Path,
    out: &'a Path,
    is_cold: bool,
}

impl Step for Readings<'_> {
    fn command(&mut self, side: usize) -> Result<Command, String> {
        if self.is_cold {
            evict(self.image)?;
        }
        let mut command = match side {
            0 => tool("cat").ok_or("cat is not installed")?,
            _ => Command::new(self.binary),
        };
        match side {
            0 => command.arg(self.image),
            1 => command.arg("salvage").arg(self.image).arg("-o").arg(self.out),
            _ => command.arg("salvage").arg(self.image).args(["-o", "tar:-"]),
        };
        command.stderr(Stdio::null());
        Ok(command)
    }

    fn after(&mut self, _: usize) -> Result<String, String> {
        if self.out.exists() {
            fs::remove_dir_all(self.out).map_err(failed)?;
        }
        Ok(String::new())
    }
}

/// The names of all cases.
pub(super) fn list() {
    CASES.iter().for_each(|case| println!("{:<25} {} files", case.name, case.files));
}

/// Runs the job; returns whether everything ran and was as claimed.
pub(super) fn run(options: &super::Options, binary: &Path) -> bool {
    let mut outcome = Outcome::new(&SIDES);
    for case in CASES.iter().filter(|case| is_wanted(options, case.name)) {
        for is_cold in [true, false] {
            let name = format!("{}, {}", case.name, if is_cold { "cold" } else { "hot" });
            let is_judged = is_cold && !options.quick;
            let judged = |runs: &Runs, text: &mut String| !is_judged || judge(&name, runs, text);
            outcome.take(&name, rounds(case, is_cold, options, binary), judged);
        }
    }
    outcome.finish(options)
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// All runs on a volume, by side.
fn rounds(case: &Case, is_cold: bool, options: &super::Options, binary: &Path) -> Result<Runs, String> {
    let memory = Scratch::new(Path::new("/dev/shm"), NAME)?;
    let disk = is_cold.then(|| Scratch::new(&target_folder(), NAME)).transpose()?;
    let image = disk.as_ref().unwrap_or(&memory).path().join("image");
    eprintln!("{}: making the volume", case.name);
    make(case, options.quick, &memory.path().join("source"), &image)?;
    let out = memory.path().join("out");
    SIDES.rounds(options.pairs, &image, &mut Readings { binary, image: &image, out: &out, is_cold })
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

/// Prints the claims, and says whether all are met.
fn judge(name: &str, runs: &Runs, text: &mut String) -> bool {
    let mut good = true;
    for side in [1, 2] {
        let (title, found) = (SIDES.titles[side], SIDES.median_times(runs, side));
        let claim = format!("{name}, {title}: at least {RATIO} of the speed of reading: {}", shown(found));
        good &= verdict(text, found >= RATIO, &claim);
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::mkfs::measure::Figures;

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
