//! Jobs: what a thread does repeatedly to one file, as data, and the one executor for all of them.
//!
//! A job fills its file block by block, by fallocate or by writing, may sync each block and think after it,
//! may remove the file and begin again. Several jobs of different kinds run side by side, each in its own
//! number of threads; those that are only a disturbance are not measured.
//!
//! A file holds the whole blocks that fit its size: the rest is left out, as fio does.

use crate::latency::Histogram;
use crate::run::{JobFigures, Measure};
use crate::target::{Target, TargetFile};
use crate::workload::worker_threads::{Count, Stop, Worked, scaled, seconds, together};
use crate::workload::{How, Ran, payload};
use hectare_tools::error::Result;
use std::thread;
use std::time::{Duration, Instant};

/// One job.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Job {
    /// Its name.
    pub name: &'static str,
    /// By fallocate or by writing.
    pub how: How,
    /// Bytes of a block.
    pub block: u64,
    /// Bytes of the file.
    pub file: u64,
    /// Threads, each with a file of its own.
    pub threads: u32,
    /// How often the file is filled.
    pub loops: u64,
    /// Whether the file is removed each time it is full.
    pub unlink: bool,
    /// The pause after each block.
    pub think: Duration,
    /// Whether each block is made durable before the next.
    pub fdatasync: bool,
    /// The longest it may take.
    pub runtime: Option<Duration>,
    /// Whether it is what is measured, or the disturbance beside it.
    pub measured: bool,
}

impl Job {
    /// Allocates by fallocate and removes, repeatedly: one thread, no pause.
    #[must_use]
    pub const fn churn(name: &'static str, block: u64, file: u64, loops: u64) -> Self {
        Self {
            name,
            how: How::Falloc,
            block,
            file,
            threads: 1,
            loops,
            unlink: true,
            think: Duration::ZERO,
            fdatasync: false,
            runtime: None,
            measured: false,
        }
    }

    /// Files that are appended to and stay: 32 threads, each append durable, a pause of 1 ms after it.
    #[must_use]
    pub const fn append(name: &'static str, block: u64, file: u64) -> Self {
        Self {
            name,
            how: How::Write,
            block,
            file,
            threads: 32,
            loops: 1,
            unlink: false,
            think: Duration::from_millis(1),
            fdatasync: true,
            runtime: None,
            measured: true,
        }
    }

    /// The same at a smaller scale (0 to 1): smaller files, fewer loops, a shorter runtime. Blocks stay as
    /// they are unless the file is now smaller than one.
    #[must_use]
    pub fn scaled(mut self, scale: f64) -> Self {
        self.file = scaled(self.file >> 10, scale) << 10;
        self.block = self.block.min(self.file);
        self.loops = scaled(self.loops, scale);
        self.runtime = self.runtime.map(|runtime| runtime.mul_f64(scale));
        self.think = if scale < 1.0 { self.think.mul_f64(scale) } else { self.think };
        self
    }
}

/// What a thread of a job did.
struct Done {
    count: Count,
    latency: Histogram,
    sync_latency: Histogram,
}

/// Runs jobs side by side in a directory.
pub(super) fn run(jobs: &[Job], target: &dyn Target, folder: &str) -> Result<Ran> {
    let roster: Vec<(&Job, u32)> =
        jobs.iter().flat_map(|job| (0..job.threads).map(move |nr| (job, nr))).collect();
    let largest = jobs.iter().filter(|job| job.how == How::Write).map(|job| job.block).max();
    let bytes = payload(largest.unwrap_or(0));
    let work = |nr: u32, stop: &Stop| {
        let (job, nr) = roster[hectare_units::usize_of(nr)];
        let path = format!("{folder}/{}-{nr:02}", job.name);
        Worker { job, target, path, bytes: &bytes, stop, started: Instant::now() }.run()
    };
    let threads = u32::try_from(roster.len()).unwrap_or(u32::MAX);
    let worked = together(threads, None, work)?;
    let of = |job: &Job| {
        let name = job.name;
        worked.iter().zip(&roster).filter(move |(_, (job, _))| job.name == name).map(|(worked, _)| worked)
    };
    let figures = |job: &Job| JobFigures {
        name: job.name.to_owned(),
        measured: job.measured,
        measure: figures(job.how, &of(job).collect::<Vec<_>>()),
    };
    let measured: Vec<&Worked<Done>> =
        worked.iter().zip(&roster).filter(|(_, (job, _))| job.measured).map(|(worked, _)| worked).collect();
    let how = jobs.iter().find(|job| job.measured).map_or(How::Write, |job| job.how);
    Ok(Ran {
        threads,
        measure: self::figures(how, &measured),
        jobs: jobs.iter().map(figures).collect(),
        wall_seconds: seconds(worked.iter()),
        ..Ran::default()
    })
}

fn figures(how: How, worked: &[&Worked<Done>]) -> Measure {
    let (mut latency, mut sync_latency) = (Histogram::default(), Histogram::default());
    for worked in worked {
        latency.merge(&worked.work.latency);
        sync_latency.merge(&worked.work.sync_latency);
    }
    let what = match how {
        How::Falloc => "fallocate calls",
        How::Write => "writes",
    };
    let counts = || worked.iter().map(|worked| worked.work.count);
    Measure {
        what: what.to_owned(),
        operations: counts().map(|count| count.operations).sum(),
        bytes: counts().map(|count| count.bytes).sum(),
        seconds: seconds(worked.iter().copied()),
        latency: latency.figures(),
        sync_latency: sync_latency.figures(),
        per_thread: counts().map(|count| count.operations).collect(),
    }
}

/// One thread of a job.
struct Worker<'r> {
    job: &'r Job,
    target: &'r dyn Target,
    path: String,
    bytes: &'r [u8],
    stop: &'r Stop,
    started: Instant,
}

impl Worker<'_> {
    fn run(&self) -> Result<Done> {
        let mut done = Done {
            count: Count::default(),
            latency: Histogram::default(),
            sync_latency: Histogram::default(),
        };
        let mut file: Option<Box<dyn TargetFile>> = None;
        for _ in 0..self.job.loops {
            if self.is_over() {
                break;
            }
            let open = match file.take() {
                Some(open) => open,
                None => self.target.create(&self.path)?,
            };
            self.fill(&*open, &mut done)?;
            if self.job.unlink {
                drop(open);
                self.target.remove_file(&self.path)?;
            } else {
                file = Some(open);
            }
        }
        Ok(done)
    }

    /// Fills the file once.
    fn fill(&self, file: &dyn TargetFile, done: &mut Done) -> Result<()> {
        let Job { block, think, .. } = *self.job;
        for nr in 0..self.job.file / block {
            if self.is_over() {
                break;
            }
            let before = Instant::now();
            match self.job.how {
                How::Falloc => file.allocate(nr * block, block)?,
                How::Write => file.write_at(nr * block, &self.bytes[..hectare_units::index_of(block)])?,
            }
            done.latency.add(before.elapsed());
            done.count.add(block);
            if self.job.fdatasync {
                let before = Instant::now();
                file.sync_data()?;
                done.sync_latency.add(before.elapsed());
            }
            if !think.is_zero() {
                thread::sleep(think.min(self.left().unwrap_or(think)));
            }
        }
        Ok(())
    }

    fn left(&self) -> Option<Duration> {
        self.job.runtime.map(|runtime| runtime.saturating_sub(self.started.elapsed()))
    }

    fn is_over(&self) -> bool {
        self.stop.is_set() || self.left().is_some_and(|left| left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_scale_keeps_blocks_while_files_hold_one() {
        let job = Job::churn("a", 8 << 20, 1 << 30, 100).scaled(0.25);
        assert_eq!((job.block, job.file, job.loops), (8 << 20, 256 << 20, 25));
        let tiny = job.scaled(1.0 / 64.0);
        assert_eq!((tiny.block, tiny.file, tiny.loops), (4 << 20, 4 << 20, 1));
        assert_eq!(job.scaled(1.0), job);
    }
}
