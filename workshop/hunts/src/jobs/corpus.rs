//! Runs every reading command on every image of a directory: `cargo hunt corpus DIR`.
//!
//! Images are files that end with `.img` or `.img.gz`. Each command runs under a limit of [`MEMORY_KIB`] of
//! memory of its own (`RLIMIT_DATA`) and of [`PATIENCE`] seconds, and ends with 0, or with 1 and a reason: a
//! signal, a panic, another exit code and a timeout are failures. The output is a line per command: the peak
//! memory and the longest time over all images, and the count of each exit code. The peak memory is that of
//! the resident set, the program's own text and the image's pages included (GNU `time`).
//!
//! What this is not: a check of the commands' output; `make test` has the corpus for that, too.

use super::{LIMITED, TIMED_OUT};
use hectare_oracle::tool::need;
use hectare_oracle::unpacked;
use hectare_tools::built::built;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::understood;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo hunt corpus DIR";
const MEMORY_KIB: u64 = 256 << 10;
/// Far longer than any command takes, on a busy machine.
const PATIENCE: &str = "60";
/// `IMAGE` stands for the image, `OUT` for a place to write to.
const COMMANDS: [&[&str]; 13] = [
    &["info", "IMAGE"],
    &["info", "--groups", "--json", "IMAGE"],
    &["check", "IMAGE"],
    &["check", "--json", "IMAGE"],
    &["freefrag", "IMAGE"],
    &["map", "IMAGE", "-o", "OUT.svg"],
    &["ls", "-laiR", "IMAGE:/"],
    &["ls", "-R", "--json", "IMAGE:/"],
    &["tree", "-a", "IMAGE:/"],
    &["tree", "--json", "IMAGE:/"],
    &["stat", "--json", "IMAGE:/"],
    &["xattr", "list", "--json", "IMAGE:/"],
    &["cp", "-a", "IMAGE:/", "OUT"],
];

/// A command's results on all images.
#[derive(Default)]
struct Row {
    /// KiB, and the image.
    memory: (u64, String),
    time: (Duration, String),
    /// How often each exit code came.
    codes: BTreeMap<i32, u32>,
}

/// The result of one run.
struct Ran {
    code: i32,
    memory_kib: u64,
    time: Duration,
}

/// Runs the job with its arguments; it ends well if no command failed.
pub(crate) fn run(words: &[&str]) -> Exit {
    let folder = match words {
        [folder] => Ok(Path::new(folder)),
        _ => Err("a directory has to be given".to_owned()),
    };
    let Some(folder) = understood(folder, USAGE) else { return Exit::Usage };
    let Some(hectare) = built(false) else { return Exit::NotHere };
    Exit::of("corpus", all(folder, hectare))
}

fn all(folder: &Path, hectare: PathBuf) -> Result<(), Ended> {
    let images = images(folder)?;
    let runner = Runner { hectare, time: program("time")?, timeout: program("timeout")? };
    let mut rows: Vec<Row> = COMMANDS.iter().map(|_| Row::default()).collect();
    let mut failures = 0;
    for image in &images {
        let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let scratch = Scratch::new(&std::env::temp_dir(), "hectare-corpus")?;
        let unpacked = runner.place(image, scratch.path())?;
        for (command, row) in COMMANDS.iter().zip(&mut rows) {
            match runner.run(command, &unpacked, scratch.path()) {
                Ok(ran) => row.add(&name, &ran),
                Err(reason) => {
                    failures += 1;
                    println!("FAILED {name}: {}: {reason}", command.join(" "));
                }
            }
        }
    }
    for (command, row) in COMMANDS.iter().zip(&rows) {
        println!("{}", row.line(command));
    }
    println!("{} images, {} commands each, {failures} failures", images.len(), COMMANDS.len());
    if failures == 0 { Ok(()) } else { Err(format!("{failures} commands failed").into()) }
}

fn program(name: &str) -> Result<PathBuf, Ended> {
    Ok(PathBuf::from(need(name)?.get_program()))
}

fn images(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut images = paths.map_err(failed)?;
    images.retain(|path| [".img", ".img.gz"].iter().any(|end| path.to_string_lossy().ends_with(end)));
    images.sort();
    if images.is_empty() { Err(format!("{} has no image", folder.display())) } else { Ok(images) }
}

/// How commands are run.
struct Runner {
    hectare: PathBuf,
    time: PathBuf,
    timeout: PathBuf,
}

impl Runner {
    /// The image as a plain file.
    fn place(&self, image: &Path, scratch: &Path) -> Result<PathBuf, String> {
        if !image.to_string_lossy().ends_with(".gz") {
            return Ok(image.to_owned());
        }
        let place = scratch.join("disk.img");
        fs::write(&place, unpacked(image)).map_err(|error| format!("{}: {error}", place.display()))?;
        Ok(place)
    }

    /// Runs a command; returns what is wrong with its end, if anything.
    fn run(&self, command: &[&str], image: &Path, scratch: &Path) -> Result<Ran, String> {
        let (out, used, said) = (scratch.join("out"), scratch.join("used"), scratch.join("said"));
        let place = |word: &&str| {
            word.replace("IMAGE", &image.to_string_lossy()).replace("OUT", &out.to_string_lossy())
        };
        let script = format!("ulimit -d {MEMORY_KIB} && exec \"$0\" \"$@\"");
        let mut timed = Command::new(&self.time);
        timed.args(["-q", "-f", "%M", "-o"]).arg(&used);
        timed.arg(&self.timeout).args(LIMITED).arg(PATIENCE).args(["sh", "-c", &script]).arg(&self.hectare);
        timed.args(command.iter().map(place)).env("TZ", "UTC").stdin(Stdio::null()).stdout(Stdio::null());
        let started = Instant::now();
        let status = File::create(&said).and_then(|said| timed.stderr(said).status());
        let code = status.map_err(|error| error.to_string())?.code().unwrap_or(-1);
        if code == TIMED_OUT {
            return Err(format!("it took {PATIENCE} seconds"));
        }
        let (time, text) = (started.elapsed(), |path: &Path| fs::read(path).unwrap_or_default());
        let said = String::from_utf8_lossy(&text(&said)).into_owned();
        if said.contains("panicked") || !matches!(code, 0 | 1) {
            return Err(format!("it ended with {code}: {}", said.trim_end()));
        }
        if code == 1 && said.trim().is_empty() {
            return Err("it gave no reason".into());
        }
        let used = String::from_utf8_lossy(&text(&used)).into_owned();
        let memory_kib = used.lines().last().and_then(|line| line.parse().ok()).ok_or("time said nothing")?;
        Ok(Ran { code, memory_kib, time })
    }
}

impl Row {
    fn add(&mut self, image: &str, ran: &Ran) {
        if ran.memory_kib > self.memory.0 {
            self.memory = (ran.memory_kib, image.to_owned());
        }
        if ran.time > self.time.0 {
            self.time = (ran.time, image.to_owned());
        }
        *self.codes.entry(ran.code).or_default() += 1;
    }

    fn line(&self, command: &[&str]) -> String {
        let ((kib, largest), (time, longest)) = (&self.memory, &self.time);
        let (command, mib, seconds) = (command.join(" "), kib.div_ceil(1 << 10), time.as_secs_f64());
        let codes: Vec<String> = self.codes.iter().map(|(code, count)| format!("{count} x {code}")).collect();
        let codes = codes.join(", ");
        format!("{command:<28} {mib:>4} MiB ({largest})  {seconds:.2} s ({longest})  exit {codes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_most_of_each() {
        let mut row = Row::default();
        for (image, code, memory_kib, seconds) in [("a", 0, 2048, 3), ("b", 1, 1024, 4), ("c", 0, 100, 1)] {
            row.add(image, &Ran { code, memory_kib, time: Duration::from_secs(seconds) });
        }
        assert_eq!(
            row.line(&["ls"]).split_whitespace().collect::<Vec<_>>().join(" "),
            "ls 2 MiB (a) 4.00 s (b) exit 2 x 0, 1 x 1"
        );
    }

    #[test]
    fn only_images_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        assert!(images(folder.path()).is_err());
        for name in ["b.img.gz", "a.img", "c.txt"] {
            File::create(folder.path().join(name)).unwrap();
        }
        let found = images(folder.path()).unwrap();
        assert_eq!(found, ["a.img", "b.img.gz"].map(|name| folder.path().join(name)));
    }
}
