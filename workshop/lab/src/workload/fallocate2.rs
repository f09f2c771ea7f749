//! `fallocate2`: each job has a file, allocates in steps of 8 KiB up to 1 MiB, truncates it to zero, and
//! begins again.
//!
//! A step is one operation; the truncate costs time and counts nothing, as in will-it-scale's test of that
//! name. There all jobs make their files in one directory, and so do those here: all start at one group,
//! which is what they contend for, as containers on one volume do. [`Options::apart`] gives each a directory
//! of its own, which ext4 may put into different groups.
//!
//! Jobs are threads, or processes as the containers were ([`Options::processes`]): those need a directory of
//! the host to work in, such as a mount.

use crate::target::directory::Directory;
use crate::target::{Target, TargetFile};
use crate::workload::processes::{Worker, apart, child};
use crate::workload::worker_threads::{Count, Stop, measure, seconds, together};
use crate::workload::{Ran, size};
use hectare_tools::error::{Error, Result};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// What the jobs do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of a step.
    pub step: u64,
    /// Bytes at which the file is truncated to zero.
    pub file: u64,
    /// How long.
    pub time: Duration,
    /// Whether each job has a directory of its own.
    pub apart: bool,
    /// How to start the processes, if the jobs are processes; their work is passed as [`work_alone`]'s
    /// arguments, in decimal digits.
    pub processes: Option<Worker>,
}

impl Default for Options {
    fn default() -> Self {
        let time = Duration::from_secs(5);
        Self { step: 8 << 10, file: 1 << 20, time, apart: false, processes: None }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        let place = if self.apart { "a directory each" } else { "in one directory" };
        let kind = if self.processes.is_some() { ", processes" } else { "" };
        format!("{} steps to {}, {place}{kind}", size(self.step), size(self.file))
    }
}

impl Options {
    /// Whether it can be run on a target.
    pub(super) fn check(&self, target: &dyn Target) -> Result<()> {
        if self.processes.is_some() && target.directory().is_none() {
            let reason = "an image has one process; processes work in a directory, such as a mount";
            return Err(Error::at(target.name(), reason));
        }
        Ok(())
    }
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str, jobs: u32) -> Result<Ran> {
    let mut paths = Vec::new();
    for nr in 0..jobs {
        let path = format!("{folder}/{nr:03}");
        if options.apart {
            target.create_dir(&path)?;
        }
        paths.push(if options.apart { format!("{path}/file") } else { path });
    }
    let worked = match &options.processes {
        Some(worker) => processes(options, worker, target, &paths)?,
        None => threads(options, target, &paths)?,
    };
    let measure = measure("fallocate calls", &worked);
    Ok(Ran {
        threads: jobs,
        measure,
        jobs: Vec::new(),
        wall_seconds: seconds(worked.iter()),
        ..Ran::default()
    })
}

type Worked = Vec<crate::workload::worker_threads::Worked<Count>>;

fn threads(options: &Options, target: &dyn Target, paths: &[String]) -> Result<Worked> {
    let files: Result<Vec<_>> = paths.iter().map(|path| target.create(path)).collect();
    let files = files?;
    let work = |nr: u32, stop: &Stop| {
        steps(files[hectare_units::usize_of(nr)].as_ref(), options.step, options.file, stop)
    };
    together(hectare_units::low32(hectare_units::u64_of(files.len())), Some(options.time), work)
}

fn processes(options: &Options, worker: &Worker, target: &dyn Target, paths: &[String]) -> Result<Worked> {
    options.check(target)?;
    let base = target.directory().unwrap_or(Path::new("."));
    let work = paths.iter().map(|path| {
        let numbers = [options.step, options.file].map(|number| OsString::from(number.to_string()));
        [base.as_os_str().to_owned(), path.into()].into_iter().chain(numbers).collect()
    });
    apart(worker, work, options.time)
}

/// The work of one process: it makes its file at `path` in a directory, works on it until the parent closes
/// its standard input, and reports its counts on standard output.
pub fn work_alone(directory: &Path, path: &str, step: u64, file: u64) {
    let prepare = || Directory::open(directory)?.create(path);
    child(prepare, |made, stop| steps(made.as_ref(), step, file, stop));
}

/// Allocates and truncates a file until it is time to stop.
fn steps(file: &dyn TargetFile, step: u64, len: u64, stop: &Stop) -> Result<Count> {
    let mut count = Count::default();
    loop {
        let mut at = 0;
        while at < len {
            file.allocate(at, step)?;
            count.add(step);
            at += step;
            if stop.is_set() {
                break;
            }
        }
        file.set_len(0)?;
        if stop.is_set() {
            return Ok(count);
        }
    }
}
