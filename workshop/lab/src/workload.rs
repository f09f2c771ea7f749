//! The workloads: what is done to a target.
//!
//! Each is a value with its options; running it does the work in one directory and returns measurements.
//! Setup, the final sync, the allocator's counts and the inspection of the result are the same for all and
//! lie in [`crate::bench()`]. A workload knows nothing of the target but [`Target`]'s calls.
//!
//! The parameters are those of the programs the kernel's developers measured with, so that results can be
//! compared with theirs.

pub mod fallocate2;
pub mod fragmentation;
pub mod fsync_append;
pub mod jobs;
pub mod many_appenders;
pub mod processes;
pub mod random_overwrite;
pub mod small_files;
pub mod streams;
mod worker_threads;

use crate::run::{JobFigures, Measure};
use crate::stats::AllocatorStats;
use crate::target::Target;
use hectare_tools::error::{Error, Result};
use hectare_units::random::SplitMix64;
use serde::Serialize;

pub use streams::Pattern as Streams;

/// What to do, with its options.
#[derive(Clone, PartialEq, Debug)]
pub enum Workload {
    /// Allocation in small steps, freed at once.
    Fallocate2(fallocate2::Options),
    /// Many small files in one directory.
    SmallFiles(small_files::Options),
    /// One of the six that mix files of different sizes and lifetimes.
    Fragmentation(fragmentation::Options),
    /// Many files that grow side by side.
    ManyAppenders(many_appenders::Options),
    /// Few large files, written in large chunks or at random.
    Streams(streams::Options),
    /// Random blocks, in existing files.
    RandomOverwrite(random_overwrite::Options),
    /// Small appends, each made durable.
    FsyncAppend(fsync_append::Options),
}

/// How a file is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// By fallocate; no data is written.
    #[default]
    Falloc,
    /// By writing.
    Write,
}

/// What running a workload returns.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ran {
    /// Threads that worked.
    pub threads: u32,
    /// What was done, by the threads that are measured.
    pub measure: Measure,
    /// Its parts, where there are several.
    pub jobs: Vec<JobFigures>,
    /// Seconds from the start to the end of the last thread.
    pub wall_seconds: f64,
    /// What the target counted while it was measured, where more was done than that.
    pub allocator: Option<AllocatorStats>,
}

impl Workload {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fallocate2(_) => "fallocate2",
            Self::SmallFiles(_) => "small-files",
            Self::Fragmentation(options) => options.mix.name(),
            Self::ManyAppenders(_) => "many-appenders",
            Self::Streams(_) => "streams",
            Self::RandomOverwrite(_) => "random-overwrite",
            Self::FsyncAppend(_) => "fsync-append",
        }
    }

    /// Its options in words, those that figures must not be compared across.
    #[must_use]
    pub fn variant(&self) -> String {
        match self {
            Self::Fallocate2(options) => options.variant(),
            Self::SmallFiles(options) => options.variant(),
            Self::Fragmentation(options) => options.variant(),
            Self::ManyAppenders(options) => options.variant(),
            Self::Streams(options) => options.variant(),
            Self::RandomOverwrite(options) => options.variant(),
            Self::FsyncAppend(options) => options.variant(),
        }
    }

    /// The number of threads if the workload itself says it.
    #[must_use]
    pub fn own_threads(&self) -> Option<u32> {
        match self {
            Self::Fragmentation(options) => Some(options.threads()),
            _ => None,
        }
    }

    /// Whether its files are left in place by default: where they lie is the result.
    #[must_use]
    pub fn leaves_files(&self) -> bool {
        matches!(self, Self::Fragmentation(_) | Self::ManyAppenders(_))
    }

    /// The same as it can be run on a target, with unspecified sizes chosen. Nothing is changed there.
    ///
    /// # Errors
    /// In one line why it can't be run there: the target is of the wrong kind, or too small.
    pub fn fitted(&self, target: &dyn Target, threads: u32) -> Result<Self> {
        let fitted = match self {
            Self::RandomOverwrite(options) => Self::RandomOverwrite(options.fitted(target)?),
            other => other.clone(),
        };
        match &fitted {
            Self::Streams(options) => options.check(threads)?,
            Self::Fallocate2(options) => options.check(target)?,
            _ => {}
        }
        let (needed, room) = (fitted.bytes(threads), target.room().unwrap_or(u64::MAX));
        if needed > room {
            let (needed, room) = (size(needed), size(room));
            let reason = format!("too small for this: the files take {needed}, and {room} are free");
            return Err(Error::at(target.name(), reason));
        }
        Ok(fitted)
    }

    /// Bytes of its files when they are largest; 0 where that depends on how long it runs, or is little.
    fn bytes(&self, threads: u32) -> u64 {
        match self {
            Self::Fallocate2(options) => options.file.saturating_mul(threads.into()),
            Self::SmallFiles(options) => options.size.saturating_mul(options.files),
            Self::ManyAppenders(options) if options.time.is_none() => {
                options.size.saturating_mul(threads.into())
            }
            Self::Streams(options) => options.total,
            Self::RandomOverwrite(options) => options.size.saturating_mul(options.files.into()),
            Self::ManyAppenders(_) | Self::Fragmentation(_) | Self::FsyncAppend(_) => 0,
        }
    }

    /// Does it in an existing and empty directory of the target.
    ///
    /// # Errors
    /// The first failure of any thread; all stop then.
    pub fn run(&self, target: &dyn Target, folder: &str, threads: u32) -> Result<Ran> {
        match self {
            Self::Fallocate2(options) => fallocate2::run(options, target, folder, threads),
            Self::SmallFiles(options) => small_files::run(options, target, folder, threads),
            Self::Fragmentation(options) => fragmentation::run(options, target, folder),
            Self::ManyAppenders(options) => many_appenders::run(options, target, folder, threads),
            Self::Streams(options) => streams::run(options, target, folder, threads),
            Self::RandomOverwrite(options) => random_overwrite::run(options, target, folder, threads),
            Self::FsyncAppend(options) => fsync_append::run(options, target, folder, threads),
        }
    }
}

/// Bytes to write that no storage can take for zeros or for a repetition.
pub(crate) fn payload(len: u64) -> Vec<u8> {
    let len = hectare_units::index_of(len);
    let mut bytes = Vec::with_capacity(len + 8);
    let mut random = SplitMix64::new(0x6865_6374_6172_6521);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.draw().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// `64 KiB`, `1 MiB`, `100 bytes`: a size in the largest unit that has no fraction.
#[must_use]
pub fn size(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}
