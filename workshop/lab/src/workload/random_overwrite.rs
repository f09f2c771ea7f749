//! `random-overwrite`: threads read and write random blocks of existing, full files.
//!
//! The files are written from front to back and synced before the clock starts, so that every block is mapped
//! and written: this measures the path of a request through the file system, which has nothing to allocate
//! and nothing to log. All threads share all files. The numbers are those of the fio job with which the
//! kernel's overwrites without a transaction were measured: 4 KiB, half of them reads, 16 threads, 32 files
//! of 512 MiB, blocks drawn independently (`norandommap`), 120 seconds after a ramp of 30. If half of the
//! free space does not hold such files they are smaller, by halves, and the variant says so.
//!
//! Reads and writes are counted separately. The target's own counts (journal handles above all) are those of
//! the measured time alone: neither laying out the files nor the ramp is included.
//!
//! In a directory the host's page cache is bypassed where the file system can, and a fallback is reported.
//! Memory for direct requests has to be aligned, so each thread has an aligned buffer.

use crate::run::{JobFigures, Measure};
use crate::stats::AllocatorStats;
use crate::target::{Access, Target, TargetFile};
use crate::workload::worker_threads::{Count, Ramp, Stop, Worked, digits, measure, ramped, seconds};
use crate::workload::{Ran, payload, size};
use hectare_tools::error::{Error, Result};
use hectare_units::random::SplitMix64;
use hectare_units::{index_of, u64_of, usize_of};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What direct requests must be multiples of on any disk we meet, in bytes.
const SECTOR: u64 = 512;
/// What their memory must be aligned to, in bytes; more than any disk asks for.
const ALIGN: usize = 4096;
/// Bytes of a write while the files are made.
const PIECE: u64 = 1 << 20;
/// Of the random sequence; thread n has the n-th after it.
const SEED: u64 = 12_345;

/// Files are not made smaller than this to fit, in bytes.
const LEAST_FITTED: u64 = 1 << 20;

/// Whether the files are as long as said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fit {
    /// Exactly.
    Exactly,
    /// Or as much shorter as the place needs it.
    #[default]
    AtMost,
    /// They were made shorter.
    Shrunk,
}

/// What the threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of a request.
    pub block: u64,
    /// Reads among a hundred requests.
    pub reads: u32,
    /// Files.
    pub files: u32,
    /// Bytes of each.
    pub size: u64,
    /// Whether they may be smaller.
    pub fit: Fit,
    /// How long the threads work before anything counts.
    pub ramp: Duration,
    /// How long what counts lasts.
    pub time: Duration,
    /// Whether the host's page cache is used.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        let (ramp, time, access) = (Duration::ZERO, Duration::from_secs(5), Access::Direct);
        Self { block: 4 << 10, reads: 50, files: 32, size: 512 << 20, fit: Fit::AtMost, ramp, time, access }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        let cached = if self.access == Access::Cached { ", through the page cache" } else { "" };
        let (block, file) = (size(self.block), size(self.size));
        let fit = if self.fit == Fit::Shrunk { ", the most that fits" } else { "" };
        format!("{block}, {} % reads, {} files of {file}{fit}{cached}", self.reads, self.files)
    }

    /// With files of a size that half of the target's room holds, if they may be smaller.
    pub(super) fn fitted(&self, target: &dyn Target) -> Result<Self> {
        let mut fitted = *self;
        fitted.blocks()?;
        let room = target.sure_room().map_or(u64::MAX, |room| room / 2) / u64::from(self.files);
        while self.fit != Fit::Exactly && fitted.size > room {
            let half = fitted.size / 2 / self.block * self.block;
            if half < LEAST_FITTED {
                break; // whether that much fits is seen by all workloads alike
            }
            (fitted.size, fitted.fit) = (half, Fit::Shrunk);
        }
        Ok(fitted)
    }

    /// Blocks of a file.
    fn blocks(&self) -> Result<u32> {
        let whole = self.block > 0 && self.size.is_multiple_of(self.block);
        let blocks = u32::try_from(self.size.checked_div(self.block).unwrap_or(0)).unwrap_or(0);
        if !whole || blocks == 0 || self.files == 0 {
            return Err(Error::Invalid("files hold a whole number of blocks, at least one".into()));
        }
        if self.access == Access::Direct && !self.block.is_multiple_of(SECTOR) {
            let reason =
                format!("past the page cache a block is a multiple of {SECTOR} bytes; see --buffered");
            return Err(Error::Invalid(reason));
        }
        Ok(blocks)
    }
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str, threads: u32) -> Result<Ran> {
    let blocks = options.blocks()?;
    let files = lay_out(options, target, folder)?;
    let work = |nr: u32, stop: &Stop| {
        let mut random = SplitMix64::new(SEED + u64::from(nr));
        let mut buffer = Buffer::holding(&payload(options.block));
        let mut done: Option<Done> = None;
        loop {
            if done.is_none() && stop.counts() {
                done =
                    Some(Done { since: Instant::now(), reads: Count::default(), writes: Count::default() });
            }
            let file = files[usize_of(random.below32(options.files))].as_ref();
            let at = u64::from(random.below32(blocks)) * options.block;
            let is_read = random.below32(100) < options.reads;
            if is_read {
                file.read_at(at, buffer.bytes())?;
            } else {
                file.write_at(at, buffer.bytes())?;
            }
            let Some(done) = &mut done else { continue };
            if is_read { &mut done.reads } else { &mut done.writes }.add(options.block);
            if stop.is_set() {
                return Ok(*done);
            }
        }
    };
    let before = OnceLock::new();
    let over = || {
        before.get_or_init(|| target.allocator_stats().unwrap_or_default());
    };
    let ramp = Ramp { time: options.ramp, over: &over };
    let worked = ramped(threads, &ramp, Some(options.time), work)?;
    let before: AllocatorStats = before.into_inner().unwrap_or_default();
    let allocator = target.allocator_stats().map(|after| after.since(&before));
    Ok(figures(threads, &worked, allocator))
}

/// What one thread did since the end of the ramp.
#[derive(Clone, Copy)]
struct Done {
    since: Instant,
    reads: Count,
    writes: Count,
}

/// All requests, and reads and writes by themselves.
fn figures(threads: u32, worked: &[Worked<Done>], allocator: Option<AllocatorStats>) -> Ran {
    let part = |what: &str, count: fn(&Done) -> Count| -> Measure {
        let counted: Vec<_> = worked
            .iter()
            .map(|one| Worked { started: one.work.since, ended: one.ended, work: count(&one.work) })
            .collect();
        Measure { seconds: seconds(counted.iter()), ..measure(what, &counted) }
    };
    let job =
        |what: &str, count| JobFigures { name: what.to_owned(), measured: true, measure: part(what, count) };
    let both = |done: &Done| Count {
        operations: done.reads.operations + done.writes.operations,
        bytes: done.reads.bytes + done.writes.bytes,
    };
    let measure = part("requests", both);
    let jobs = vec![job("reads", |done| done.reads), job("writes", |done| done.writes)];
    Ran { threads, wall_seconds: measure.seconds, measure, jobs, allocator }
}

/// Makes the files and writes them from front to back.
fn lay_out(options: &Options, target: &dyn Target, folder: &str) -> Result<Vec<Box<dyn TargetFile>>> {
    let width = digits(options.files.into());
    let mut piece = Buffer::holding(&payload(PIECE.min(options.size)));
    let mut files = Vec::new();
    for nr in 0..options.files {
        let file = target.create_for(&format!("{folder}/{nr:0width$}"), options.size, options.access)?;
        let mut at = 0;
        while at < options.size {
            let now = PIECE.min(options.size - at);
            file.write_at(at, &piece.bytes()[..index_of(now)])?;
            at += now;
        }
        files.push(file);
    }
    target.sync()?;
    Ok(files)
}

/// Aligned memory.
struct Buffer {
    room: Vec<u8>,
    skip: usize,
    len: usize,
}

impl Buffer {
    fn holding(bytes: &[u8]) -> Self {
        let mut room = vec![0; bytes.len() + ALIGN];
        // usize::MAX (alignment unknown) is out of the question for bytes outside constant evaluation.
        let skip = room.as_ptr().align_offset(ALIGN).min(ALIGN);
        room[skip..skip + bytes.len()].copy_from_slice(bytes);
        Self { room, skip, len: bytes.len() }
    }

    fn bytes(&mut self) -> &mut [u8] {
        debug_assert!(u64_of(self.len) <= u64_of(self.room.len()));
        &mut self.room[self.skip..self.skip + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_divide_is_refused() {
        let good = Options::default();
        assert_eq!(good.blocks().ok(), Some(131_072));
        assert_eq!(good.variant(), "4 KiB, 50 % reads, 32 files of 512 MiB");
        for bad in [
            Options { block: 0, ..good },
            Options { block: 3 << 10, ..good },
            Options { block: 1 << 30, ..good },
            Options { files: 0, ..good },
            Options { block: 256, ..good },
        ] {
            assert!(bad.blocks().is_err(), "{bad:?}");
        }
        let cached = Options { block: 256, access: Access::Cached, ..good };
        assert!(cached.blocks().is_ok() && cached.variant().ends_with("through the page cache"));
    }

    #[test]
    fn buffers_are_aligned_and_hold_what_they_were_given() {
        for len in [1, 512, 4096, 5000] {
            let bytes = payload(len);
            let mut buffer = Buffer::holding(&bytes);
            assert_eq!(buffer.bytes(), bytes);
            assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGN), 0);
        }
    }
}
