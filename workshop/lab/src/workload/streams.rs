//! `streams`: few large files, in large chunks or at random.
//!
//! On a volume with fragmented free space, sequential chunks of 16 MiB need more than any free run holds;
//! that is what this is for. Mixed, every other thread writes its file once over in 4 KiB blocks in random
//! order, into a file without allocated blocks.
//!
//! The best-available series was measured with 5 GiB written sequentially, and 5 GiB written as a mix of
//! random and sequential writes, by fio; its jobs were not published. With two threads half of the bytes are
//! written at random here. fio preallocates a file by one fallocate before it writes, unless its job says
//! otherwise: [`Options::allocate`] does so.

use crate::target::{Target, TargetFile};
use crate::workload::worker_threads::{Count, Stop, measure, seconds, share, together};
use crate::workload::{Ran, payload, size};
use hectare_tools::error::{Error, Result};
use hectare_units::random::SplitMix64;
use serde::Serialize;

/// How the files are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// From front to back.
    #[default]
    Sequential,
    /// Every other thread at random, beginning with the first; the rest from front to back.
    Mixed,
}

/// What the threads do together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How.
    pub pattern: Pattern,
    /// Bytes in all.
    pub total: u64,
    /// Bytes of a sequential write.
    pub piece: u64,
    /// Bytes of a random write.
    pub block: u64,
    /// Whether each file is given its space by one fallocate first, which is not measured.
    pub allocate: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (total, piece, block) = (5 << 30, 16 << 20, 4 << 10);
        Self { pattern: Pattern::Sequential, total, piece, block, allocate: false }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        let random = match self.pattern {
            Pattern::Sequential => String::new(),
            Pattern::Mixed => format!(" and {} at random", size(self.block)),
        };
        let allocated = if self.allocate { ", into allocated files" } else { "" };
        format!("{} in {} pieces{random}{allocated}", size(self.total), size(self.piece))
    }

    /// Whether this many threads can do it.
    pub(super) fn check(&self, threads: u32) -> Result<()> {
        if self.pattern == Pattern::Mixed && threads < 2 {
            return Err(Error::Invalid("mixed streams need at least two threads".into()));
        }
        Ok(())
    }
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str, threads: u32) -> Result<Ran> {
    options.check(threads)?;
    let bytes = payload(options.piece.max(options.block));
    let files: Result<Vec<_>> = (0..threads).map(|nr| target.create(&format!("{folder}/{nr:03}"))).collect();
    let files = files?;
    for (nr, file) in (0..).zip(files.iter().filter(|_| options.allocate)) {
        file.allocate(0, share(options.total, threads, nr))?;
    }
    let work = |nr: u32, stop: &Stop| {
        let file = files[hectare_units::usize_of(nr)].as_ref();
        let len = share(options.total, threads, nr);
        if options.pattern == Pattern::Mixed && nr.is_multiple_of(2) {
            return at_random(file, len, options.block, u64::from(nr), &bytes, stop);
        }
        sequentially(file, len, options.piece, &bytes, stop)
    };
    let worked = together(threads, None, work)?;
    let measure = measure("writes", &worked);
    Ok(Ran { threads, measure, jobs: Vec::new(), wall_seconds: seconds(worked.iter()), ..Ran::default() })
}

fn sequentially(file: &dyn TargetFile, len: u64, piece: u64, bytes: &[u8], stop: &Stop) -> Result<Count> {
    let mut count = Count::default();
    while count.bytes < len && !stop.is_set() {
        let now = piece.min(len - count.bytes);
        file.write_at(count.bytes, &bytes[..hectare_units::index_of(now)])?;
        count.add(now);
    }
    Ok(count)
}

/// Every block once, in an order that follows from the seed.
fn at_random(
    file: &dyn TargetFile,
    len: u64,
    block: u64,
    seed: u64,
    bytes: &[u8],
    stop: &Stop,
) -> Result<Count> {
    let mut order: Vec<u64> = (0..len.div_ceil(block)).collect();
    let mut random = SplitMix64::new(seed);
    for last in (1..order.len()).rev() {
        let other = random.draw() % hectare_units::u64_of(last + 1);
        order.swap(last, hectare_units::index_of(other));
    }
    let mut count = Count::default();
    for nr in order {
        if stop.is_set() {
            break;
        }
        let now = block.min(len - nr * block);
        file.write_at(nr * block, &bytes[..hectare_units::index_of(now)])?;
        count.add(now);
    }
    Ok(count)
}
