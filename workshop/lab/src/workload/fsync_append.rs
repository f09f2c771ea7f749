//! `fsync-append`: each thread repeatedly appends a block to a file of its own and syncs it, as a database
//! writes its log.
//!
//! One append with its fsync is one operation, and its latency is that of both. What counts is how many
//! fsyncs of several threads share one commit. A file that has become large is truncated to zero; that costs
//! time and counts nothing.

use crate::latency::Histogram;
use crate::run::Measure;
use crate::target::Target;
use crate::workload::worker_threads::{Count, Stop, Worked, seconds, together};
use crate::workload::{Ran, payload, size};
use hectare_tools::error::Result;
use hectare_units::usize_of;
use std::time::{Duration, Instant};

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of an append.
    pub append: u64,
    /// Bytes a file is never larger than, unless one append is.
    pub size: u64,
    /// How long.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { append: 4 << 10, size: 64 << 20, time: Duration::from_secs(5) }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        format!("{} + fsync to {}", size(self.append), size(self.size))
    }
}

/// What a thread did.
#[derive(Default)]
struct Done {
    count: Count,
    whole: Histogram,
    syncs: Histogram,
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str, threads: u32) -> Result<Ran> {
    let files: Result<Vec<_>> = (0..threads).map(|nr| target.create(&format!("{folder}/{nr:03}"))).collect();
    let files = files?;
    target.sync()?;
    let bytes = payload(options.append);
    let work = |nr: u32, stop: &Stop| {
        let (file, mut done, mut at) = (&files[usize_of(nr)], Done::default(), 0);
        loop {
            if at > 0 && at + options.append > options.size {
                file.set_len(0)?;
                at = 0;
            }
            let started = Instant::now();
            file.write_at(at, &bytes)?;
            let written = Instant::now();
            file.sync()?;
            done.syncs.add(written.elapsed());
            done.whole.add(started.elapsed());
            done.count.add(options.append);
            at += options.append;
            if stop.is_set() {
                return Ok(done);
            }
        }
    };
    let worked = together(threads, Some(options.time), work)?;
    Ok(Ran {
        threads,
        measure: figures(&worked),
        jobs: Vec::new(),
        wall_seconds: seconds(worked.iter()),
        ..Ran::default()
    })
}

fn figures(worked: &[Worked<Done>]) -> Measure {
    let (mut whole, mut syncs) = (Histogram::default(), Histogram::default());
    for Worked { work, .. } in worked {
        whole.merge(&work.whole);
        syncs.merge(&work.syncs);
    }
    let counts = || worked.iter().map(|worked| worked.work.count);
    Measure {
        what: "durable appends".to_owned(),
        operations: counts().map(|count| count.operations).sum(),
        bytes: counts().map(|count| count.bytes).sum(),
        seconds: seconds(worked.iter()),
        latency: whole.figures(),
        sync_latency: syncs.figures(),
        per_thread: counts().map(|count| count.operations).collect(),
    }
}
