//! `bench build`: builds an image from a directory, by Hectare and by today's common methods.
//!
//! In every round each method runs once, after the others of the previous round, on the same directory and
//! into the same work directory: `hectare build`, `mke2fs -d` into an image of the same size, and the kernel
//! (mkfs, loop mount, `cp -a`, unmount). Images are checked with `e2fsck -fn` once, after the last round, so
//! that a fast and wrong image would not count.
//!
//! A method that can't run here (no root, tool missing) is left out and named, not guessed.

use crate::paired_stats::Spread;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `hectare` program.
    pub hectare: PathBuf,
    /// The directory to build from.
    pub source: PathBuf,
    /// Where images are made: memory measures the programs, a disk measures the disk.
    pub work: PathBuf,
    /// Rounds; at least 1.
    pub rounds: u32,
    /// Methods to leave out, by name.
    pub without: Vec<String>,
}

/// The results of one method.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// Its name.
    pub name: String,
    /// The wall time of each round in seconds.
    pub seconds: Vec<f64>,
    /// Their spread.
    pub wall: Option<Spread>,
    /// Its time divided by Hectare's of the same round.
    pub ratio: Option<Spread>,
    /// Bytes of the image.
    pub image_bytes: Option<u64>,
    /// Bytes of the image that are stored (holes left out).
    pub stored_bytes: Option<u64>,
    /// Its peak memory, in KiB.
    pub peak_kib: Option<u64>,
    /// Whether `e2fsck -fn` found the last image clean.
    pub clean: Option<bool>,
    /// Why it was left out.
    pub left_out: Option<String>,
}

/// All measurements of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The directory.
    pub source: PathBuf,
    /// Files, directories and everything else in it.
    pub entries: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Rounds.
    pub rounds: u32,
    /// The methods, Hectare first.
    pub ways: Vec<Way>,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory.
    #[error("{path}: {cause}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {said}")]
    Failed {
        /// Which.
        program: String,
        /// The last line of its output.
        said: String,
    },
}

const HECTARE: &str = "hectare build";
const MKE2FS: &str = "mke2fs -d";
const KERNEL: &str = "mkfs, mount, cp -a, umount";

/// Runs the comparison.
///
/// # Errors
/// If the directory can't be read, or a method that should run fails.
pub fn run(options: &Options, mut told: impl FnMut(&str)) -> Result<Report, Error> {
    let (entries, bytes) = measure(&options.source)?;
    // mke2fs gives one inode for 16 KiB, which trees of small files exceed.
    let inodes = entries + entries / 10 + 1000;
    let work = tempfile::Builder::new()
        .prefix("hectare-bench.")
        .tempdir_in(&options.work)
        .map_err(|cause| Error::Io { path: options.work.clone(), cause })?;
    let image = work.path().join("image");
    let mut ways: Vec<Way> = [HECTARE, MKE2FS, KERNEL].iter().map(|name| Way::new(name, options)).collect();
    let mut size = 0;
    for round in 1..=options.rounds.max(1) {
        for way in ways.iter_mut().filter(|way| way.left_out.is_none()) {
            let _ = fs::remove_file(&image);
            let start = Instant::now();
            let peak = way.once(options, &image, Shape { size, inodes })?;
            let seconds = start.elapsed().as_secs_f64();
            told(&format!("round {round}: {} {seconds:.2} s", way.name));
            way.seconds.push(seconds);
            way.peak_kib = way.peak_kib.max(peak);
            way.look_at(&image, round == options.rounds.max(1));
            if way.name == HECTARE {
                size = way.image_bytes.map_or(0, |bytes| bytes + bytes / 10);
            }
        }
    }
    let ours = ways[0].seconds.clone();
    for way in &mut ways {
        way.wall = Spread::of(&way.seconds);
        way.ratio = Spread::of_ratios(&way.seconds, &ours);
    }
    Ok(Report { source: options.source.clone(), entries, bytes, rounds: options.rounds.max(1), ways })
}

/// The format of the peers' volumes: a tenth larger than Hectare's, which finds its size by itself.
#[derive(Clone, Copy)]
struct Shape {
    size: u64,
    inodes: u64,
}

impl Shape {
    fn arguments(self) -> Vec<String> {
        let inodes = self.inodes.to_string();
        ["-q", "-F", "-t", "ext4", "-b", "4096", "-N", &inodes].map(str::to_owned).to_vec()
    }
}

impl Way {
    fn new(name: &str, options: &Options) -> Self {
        let needed: &[&str] = match name {
            MKE2FS => &["mke2fs"],
            KERNEL => &["mke2fs", "mount", "umount", "cp"],
            _ => &[],
        };
        let missing = needed.iter().find(|tool| program(tool).is_none());
        let left_out = if options.without.iter().any(|without| name.starts_with(without.as_str())) {
            Some("left out as asked".to_owned())
        } else if let Some(tool) = missing {
            Some(format!("{tool} is not installed"))
        } else if name == KERNEL && !is_root() {
            Some("needs root for a loop mount".to_owned())
        } else {
            None
        };
        Self {
            name: name.to_owned(),
            seconds: Vec::new(),
            wall: None,
            ratio: None,
            image_bytes: None,
            stored_bytes: None,
            peak_kib: None,
            clean: None,
            left_out,
        }
    }

    /// Makes the image once; returns the peak memory, where that is known.
    fn once(&self, options: &Options, image: &Path, shape: Shape) -> Result<Option<u64>, Error> {
        match self.name.as_str() {
            MKE2FS => {
                let mut command = tool("mke2fs");
                command.args(shape.arguments()).arg("-d").arg(&options.source).arg(image);
                command.arg(format!("{}k", shape.size.div_ceil(1024)));
                run_quietly(&mut command)?;
                Ok(None)
            }
            KERNEL => by_kernel(&options.source, image, shape).map(|()| None),
            _ => {
                let mut command = Command::new(&options.hectare);
                command.args(["build", "--json", "--from"]).arg(&options.source).arg(image);
                let said = run_quietly(&mut command)?;
                Ok(peak_of(&said))
            }
        }
    }

    fn look_at(&mut self, image: &Path, last: bool) {
        use std::os::unix::fs::MetadataExt;
        if let Ok(data) = image.metadata() {
            self.image_bytes = Some(data.len());
            self.stored_bytes = Some(data.blocks() * 512);
        }
        if last && program("e2fsck").is_some() {
            let clean =
                tool("e2fsck").arg("-fn").arg(image).stdout(Stdio::null()).stderr(Stdio::null()).status();
            self.clean = clean.ok().map(|status| status.success());
        }
    }
}

/// The peak memory that `hectare build --json` reports.
fn peak_of(said: &Output) -> Option<u64> {
    let text = String::from_utf8_lossy(&said.stdout);
    let after = text.split("\"peak_kib\":").nth(1)?;
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn by_kernel(source: &Path, image: &Path, shape: Shape) -> Result<(), Error> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| Error::Io { path, cause }
    };
    fs::File::create(image).and_then(|file| file.set_len(shape.size)).map_err(io(image))?;
    run_quietly(tool("mke2fs").args(shape.arguments()).arg(image))?;
    let target = image.with_extension("mounted");
    fs::create_dir_all(&target).map_err(io(&target))?;
    run_quietly(tool("mount").args(["-o", "loop"]).arg(image).arg(&target))?;
    let copied = run_quietly(tool("cp").arg("-a").arg(source.join(".")).arg(&target));
    // Unmounting is part of the method, and must happen whatever the copy did.
    let unmounted = run_quietly(tool("umount").arg(&target));
    let _ = fs::remove_dir(&target);
    copied.and(unmounted).map(drop)
}

/// The path of a tool, searched also where only root looks.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn tool(name: &str) -> Command {
    Command::new(program(name).unwrap_or_else(|| name.into()))
}

fn run_quietly(command: &mut Command) -> Result<Output, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| Error::Io { path: program.clone().into(), cause })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
    Err(Error::Failed { program, said })
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

/// The number of entries and the bytes of files in a directory; also brings its metadata into the host's
/// caches before the first round.
fn measure(source: &Path) -> Result<(u64, u64), Error> {
    let (mut entries, mut bytes) = (0, 0);
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = |cause| Error::Io { path: folder.clone(), cause };
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let data = entry.metadata().map_err(failed)?;
            entries += 1;
            if data.is_dir() {
                folders.push(entry.path());
            } else if data.is_file() {
                bytes += data.len();
            }
        }
    }
    Ok((entries, bytes))
}

impl Report {
    /// The figures as a Markdown table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} entries, {:.0} MB in files, {} rounds\n\n\
             | way | seconds: median (min to max) | times Hectare's | image MB | peak MiB | e2fsck -fn |\n\
             |---|---|---|---|---|---|\n",
            self.entries,
            megabytes(self.bytes),
            self.rounds
        );
        for way in &self.ways {
            text.push_str(&way.row());
        }
        text
    }
}

impl Way {
    fn row(&self) -> String {
        if let Some(reason) = &self.left_out {
            return format!("| {} | left out: {reason} | | | | |\n", self.name);
        }
        let spread = |spread: Option<Spread>, digits: usize| {
            spread.map_or("-".to_owned(), |s| {
                format!("{:.digits$} ({:.digits$} to {:.digits$})", s.median, s.min, s.max)
            })
        };
        let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
        format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            self.name,
            spread(self.wall, 2),
            spread(self.ratio, 1),
            or_dash(self.image_bytes.map(|bytes| format!("{:.0}", megabytes(bytes)))),
            or_dash(self.peak_kib.map(|kib| (kib / 1024).to_string())),
            or_dash(self.clean.map(|clean| if clean { "clean".into() } else { "NOT CLEAN".to_owned() })),
        )
    }
}

#[allow(clippy::cast_precision_loss)] // figures for people
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
