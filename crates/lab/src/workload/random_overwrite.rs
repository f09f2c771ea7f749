//! `random-overwrite`: threads read and write blocks at random in files that are there and full.
//!
//! The files are written from front to back and synced before the clock starts, so that every block is mapped
//! and written: what is measured is the way of a request through the file system, which has nothing to
//! allocate and nothing to log. All threads share all files. The numbers are those of the fio job with which
//! the kernel's shared lock for direct overwrites was measured: 4 KiB, half of them reads, 16 threads, 32
//! files; the files are smaller.
//!
//! In a folder the host's page cache is bypassed where the file system can, and a fallback is told. Memory
//! for direct requests has to be aligned, so each thread has a buffer that is.

use crate::error::{Error, Result};
use crate::random::Random;
use crate::target::{Access, Target, TargetFile};
use crate::workload::crew::{Count, Stop, digits, measure, seconds, together};
use crate::workload::{Ran, payload, size};
use hectare_units::{index_of, u64_of, usize_of};
use std::time::Duration;

/// What direct requests must be multiples of on any disk we meet, in bytes.
const SECTOR: u64 = 512;
/// What their memory must be aligned to, in bytes; more than any disk asks for.
const ALIGN: usize = 4096;
/// Bytes of a write while the files are made.
const PIECE: u64 = 1 << 20;
/// Of the random sequence; thread n has the n-th after it.
const SEED: u64 = 12_345;

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
    /// How long.
    pub time: Duration,
    /// Whether the host's page cache is used.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        let time = Duration::from_secs(5);
        Self { block: 4 << 10, reads: 50, files: 32, size: 64 << 20, time, access: Access::Direct }
    }
}

impl Options {
    pub(super) fn variant(&self) -> String {
        let cached = if self.access == Access::Cached { ", through the page cache" } else { "" };
        let (block, file) = (size(self.block), size(self.size));
        format!("{block}, {} % reads, {} files of {file}{cached}", self.reads, self.files)
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
        let mut random = Random::new(SEED + u64::from(nr));
        let mut buffer = Buffer::holding(&payload(options.block));
        let mut count = Count::default();
        loop {
            let file = files[usize_of(random.below(options.files))].as_ref();
            let at = u64::from(random.below(blocks)) * options.block;
            if random.below(100) < options.reads {
                file.read_at(at, buffer.bytes())?;
            } else {
                file.write_at(at, buffer.bytes())?;
            }
            count.add(options.block);
            if stop.is_set() {
                return Ok(count);
            }
        }
    };
    let worked = together(threads, Some(options.time), work)?;
    let measure = measure("requests", &worked);
    Ok(Ran { threads, measure, jobs: Vec::new(), wall_seconds: seconds(worked.iter()) })
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
        // usize::MAX ("can't be told") is out of the question for bytes outside constant evaluation.
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
        assert_eq!(good.blocks().ok(), Some(16_384));
        assert_eq!(good.variant(), "4 KiB, 50 % reads, 32 files of 64 MiB");
        for bad in [
            Options { block: 0, ..good },
            Options { block: 3 << 10, ..good },
            Options { block: 128 << 20, ..good },
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
