//! Small reads through `libhectare` beside the same reads from Rust: `cargo benchmark c [--pairs N]
//! [--seconds S] [--only BYTES]`.
//!
//! A file of 64 MiB in an image in memory, read at random by one thread, in pieces of 64, 512 and 4,096 bytes.
//! The programs are `crates/bind/capi/examples/small_reads.c` (compiled by gcc, against the shared library) and
//! `small_reads.rs`, both optimised. They take turns, the order alternates, and the median of the pairs' ratios
//! counts. The goal is 0.95: what the border costs (a handle looked up, a panic caught) is less than a twentieth
//! of a read.

use hectare_lab::paired_stats::Spread;
use hectare_tools::ended::Exit;
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::{cargo, parsed, root, shown, target_folder, understood, went_well};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "usage: cargo benchmark c [--pairs N] [--seconds S] [--only BYTES]";
const GOAL: f64 = 0.95;

struct Options {
    pairs: u32,
    seconds: f64,
    lengths: Vec<u32>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { pairs: 7, seconds: 2.0, lengths: vec![64, 512, 4096] };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().copied().ok_or(format!("{word} needs a value"))?;
            match *word {
                "--pairs" => options.pairs = parsed::<u32>(word, value)?.max(1),
                "--seconds" => options.seconds = parsed(word, value)?,
                "--only" => options.lengths = vec![parsed(word, value)?],
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

/// Runs the comparison; it ends well if it met its goal.
pub(super) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    went_well("bench c", compare(&options)).into()
}

fn compare(options: &Options) -> Result<(), String> {
    let mut build = cargo();
    build.args(["build", "--release", "-p", "hectare-capi", "--lib", "--example", "small_reads"]);
    if !shown(&mut build) {
        return Err("the library can't be built".to_owned());
    }
    let scratch = Scratch::new(Path::new("/dev/shm"), "hectare-bench-c")?;
    let sides = [in_c(scratch.path())?, target_folder().join("release/examples/small_reads")];
    let image = image(scratch.path())?;
    let mut worst = f64::INFINITY;
    for len in &options.lengths {
        let mut speeds = [Vec::new(), Vec::new()];
        for pair in 0..=options.pairs {
            for side in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
                let speed = speed(&sides[side], &image, *len, options.seconds, scratch.path())?;
                if pair > 0 {
                    speeds[side].push(speed); // the first warms up
                }
            }
        }
        let ratio = Spread::of_ratios(&speeds[0], &speeds[1]).ok_or("no pair was measured")?;
        let [c, rust] = speeds.map(|speeds| Spread::of(&speeds).map_or(0.0, |spread| spread.median));
        println!(
            "{len:>5} bytes: C {c:.0}/s, Rust {rust:.0}/s, ratio {:.3} ({:.3} to {:.3}) of {} pairs",
            ratio.median, ratio.min, ratio.max, options.pairs
        );
        worst = worst.min(ratio.median);
    }
    if worst >= GOAL { Ok(()) } else { Err(format!("the smallest ratio is {worst:.3}, the goal {GOAL}")) }
}

/// The program in C, and the library beside it.
fn in_c(folder: &Path) -> Result<PathBuf, String> {
    let (capi, program) = (root().join("crates/bind/capi"), folder.join("small_reads"));
    let placed = fs::copy(target_folder().join("release/libhectare_c.so"), folder.join("libhectare.so.0"));
    placed.map_err(|error| error.to_string())?;
    symlink("libhectare.so.0", folder.join("libhectare.so")).map_err(|error| error.to_string())?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-std=c11", "-D_GNU_SOURCE", "-I"]).arg(capi.join("include")).arg("-L").arg(folder);
    gcc.arg("-o").arg(&program).arg(capi.join("examples/small_reads.c")).arg("-lhectare");
    if shown(&mut gcc) { Ok(program) } else { Err("gcc can't compile it".to_owned()) }
}

/// A volume with the file, made by the library's own program.
fn image(folder: &Path) -> Result<PathBuf, String> {
    let (source, image) = (folder.join("source"), folder.join("disk.img"));
    fs::create_dir(&source).map_err(|error| error.to_string())?;
    let content: Vec<u8> =
        (0..64_u32 << 20).map(|at| at.wrapping_mul(0x9e37_79b1).to_le_bytes()[3]).collect();
    fs::write(source.join("data"), content).map_err(|error| error.to_string())?;
    hectare::build::Image::new().folder(&source).create(&image).map_err(|error| error.to_string())?;
    fs::remove_dir_all(&source).map_err(|error| error.to_string())?;
    Ok(image)
}

/// Reads a second.
fn speed(program: &Path, image: &Path, len: u32, seconds: f64, library: &Path) -> Result<f64, String> {
    let mut command = Command::new(program);
    command.arg(image).args([len.to_string(), seconds.to_string()]).env("LD_LIBRARY_PATH", library);
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let speed = text.split_whitespace().next().and_then(|word| word.parse().ok());
    speed.filter(|_| output.status.success()).ok_or(format!("{} said nothing", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood() {
        let options = Options::parse(&["--pairs", "5", "--only", "512"]).unwrap();
        assert_eq!((options.pairs, options.lengths), (5, vec![512]));
        for wrong in [&["--pairs"][..], &["--only", "x"], &["--nothing", "1"]] {
            assert!(Options::parse(wrong).is_err());
        }
    }
}
