//! `small-files`: threads make many small files in one directory, as fs_mark does: open, write in chunks of
//! 16 KiB, perhaps fsync, close.
//!
//! A file is one operation. Without `fsync_each` most of the work may be left to the final sync, which is why
//! reports give the rate with it as well.
//!
//! # The requests of the best-available series
//! Its tests made about one allocator call a file, each with a goal of 8 MiB for one block. A file of 64 KiB
//! does not make that request by itself: ext4's normalisation rounds it to 64 KiB, and as a file of up to
//! `mb_stream_req` blocks it takes an extent of a locality group, which one call in many fills. The table
//! gives a goal of 8 MiB to a short request of a file that *is* longer than 8 MiB, whatever part of it is
//! allocated. So [`Options::presize`] makes each file that long by a truncate before it is written, and
//! truncates it to its size afterwards, which frees what was preallocated. These are ordinary system calls: a
//! kernel's mount makes the same requests of them. The publication does not say how the published runs came
//! by their goal.

use crate::target::Target;
use crate::workload::worker_threads::{Count, Stop, digits, measure, seconds, share, together};
use crate::workload::{Ran, payload, size};
use hectare_tools::error::Result;

/// What the threads do together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Files in all.
    pub files: u64,
    /// Bytes of each.
    pub size: u64,
    /// Bytes of one write.
    pub write: u64,
    /// Whether each file is fsynced before it is closed.
    pub fsync_each: bool,
    /// Bytes a file has, as a hole, before it is written; it is truncated to its size afterwards. No more
    /// than its size means that it grows as it is written.
    pub presize: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { files: 40_000, size: 64 << 10, write: 16 << 10, fsync_each: false, presize: 0 }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        let sync = if self.fsync_each { ", fsync each" } else { "" };
        let long = if self.is_presized() {
            format!(", made {} long first", size(self.presize))
        } else {
            String::new()
        };
        format!("{} files of {}{long}{sync}", self.files, size(self.size))
    }

    fn is_presized(&self) -> bool {
        self.presize > self.size
    }
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str, threads: u32) -> Result<Ran> {
    let bytes = payload(options.write.min(options.size));
    let width = digits(options.files);
    let work = |nr: u32, stop: &Stop| {
        let mut count = Count::default();
        for n in 0..share(options.files, threads, nr) {
            if stop.is_set() {
                break;
            }
            make(options, target, &format!("{folder}/{nr:03}-{n:0width$}"), &bytes)?;
            count.add(options.size);
        }
        Ok(count)
    };
    let worked = together(threads, None, work)?;
    let measure = measure("files", &worked);
    Ok(Ran { threads, measure, jobs: Vec::new(), wall_seconds: seconds(worked.iter()), ..Ran::default() })
}

fn make(options: &Options, target: &dyn Target, path: &str, bytes: &[u8]) -> Result<()> {
    let file = target.create(path)?;
    if options.is_presized() {
        file.set_len(options.presize)?;
    }
    let mut at = 0;
    while at < options.size {
        let now = options.write.min(options.size - at);
        file.write_at(at, &bytes[..hectare_units::index_of(now)])?;
        at += now;
    }
    if options.is_presized() {
        file.set_len(options.size)?;
    }
    if options.fsync_each { file.sync() } else { Ok(()) }
}
