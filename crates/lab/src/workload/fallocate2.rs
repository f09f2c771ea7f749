//! `fallocate2`: each thread has a file in a directory of its own, gives it space in steps of 8 KiB up to 1
//! MiB, cuts it to nothing, and begins again.
//!
//! A step is one operation; the cut costs time and counts nothing, as in will-it-scale's test of that name.

use crate::error::Result;
use crate::target::Target;
use crate::workload::crew::{Count, Stop, measure, seconds, together};
use crate::workload::{Ran, size};
use std::time::Duration;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of a step.
    pub step: u64,
    /// Bytes at which the file is cut to nothing.
    pub file: u64,
    /// How long.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { step: 8 << 10, file: 1 << 20, time: Duration::from_secs(5) }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        format!("{} steps to {}", size(self.step), size(self.file))
    }
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str, threads: u32) -> Result<Ran> {
    let directory = |nr: u32| format!("{folder}/{nr:03}");
    let mut files = Vec::new();
    for nr in 0..threads {
        target.create_dir(&directory(nr))?;
        files.push(target.create(&format!("{}/file", directory(nr)))?);
    }
    let work = |nr: u32, stop: &Stop| {
        let (file, mut count) = (&files[hectare_units::usize_of(nr)], Count::default());
        loop {
            let mut at = 0;
            while at < options.file {
                file.allocate(at, options.step)?;
                count.add(options.step);
                at += options.step;
                if stop.is_set() {
                    break;
                }
            }
            file.set_len(0)?;
            if stop.is_set() {
                return Ok(count);
            }
        }
    };
    let worked = together(threads, Some(options.time), work)?;
    let measure = measure("fallocate calls", &worked);
    Ok(Ran { threads, measure, jobs: Vec::new(), wall_seconds: seconds(worked.iter()) })
}
