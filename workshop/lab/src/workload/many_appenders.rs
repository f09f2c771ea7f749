//! `many-appenders`: many threads append small records, each to a file of its own, until every file has its
//! size or the time is over.
//!
//! What counts is the placement of the records: an allocator that serves requests in order of arrival
//! interleaves the files, and KiB per extent measures how finely. The kernel's series was measured with 4
//! KiB, 64 threads, 1 GiB a file, by fallocate.

use crate::target::Target;
use crate::workload::worker_threads::{Count, Stop, measure, seconds, together};
use crate::workload::{How, Ran, payload, size};
use hectare_tools::error::Result;
use std::time::Duration;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// By fallocate or by writing.
    pub how: How,
    /// Bytes of an append.
    pub piece: u64,
    /// Bytes of a finished file.
    pub size: u64,
    /// The longest it may take.
    pub time: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { how: How::Falloc, piece: 4 << 10, size: 64 << 20, time: None }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        let how = match self.how {
            How::Falloc => "fallocate",
            How::Write => "write",
        };
        format!("{how} {} to {} each", size(self.piece), size(self.size))
    }
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str, threads: u32) -> Result<Ran> {
    let bytes = match options.how {
        How::Falloc => Vec::new(),
        How::Write => payload(options.piece),
    };
    let files: Result<Vec<_>> = (0..threads).map(|nr| target.create(&format!("{folder}/{nr:03}"))).collect();
    let files = files?;
    let work = |nr: u32, stop: &Stop| {
        let (file, mut count) = (&files[hectare_units::usize_of(nr)], Count::default());
        while count.bytes < options.size && !stop.is_set() {
            let now = options.piece.min(options.size - count.bytes);
            match options.how {
                How::Falloc => file.allocate(count.bytes, now)?,
                How::Write => file.write_at(count.bytes, &bytes[..hectare_units::index_of(now)])?,
            }
            count.add(now);
        }
        Ok(count)
    };
    let worked = together(threads, options.time, work)?;
    let measure = measure("appends", &worked);
    Ok(Ran { threads, measure, jobs: Vec::new(), wall_seconds: seconds(worked.iter()), ..Ran::default() })
}
