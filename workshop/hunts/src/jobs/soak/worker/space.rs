//! Operations on the space of a file: `fallocate(2)` in all its modes.

use super::{BLOCK, FILE_MAX, WRITE_MAX, Worker};
use crate::jobs::soak::owned::{Owned, Step, told};
use hectare_engine::{FallocateMode, OpenFile};
use std::ops::Range;

impl Worker {
    /// Allocates a range, which reads as before.
    pub(super) fn allocate(&mut self) -> Step {
        let keep_size = self.odds(2);
        self.give_space(FallocateMode::Allocate { keep_size }, keep_size)
    }

    /// The same, as no two files share blocks.
    pub(super) fn unshare(&mut self) -> Step {
        let keep_size = self.odds(2);
        self.give_space(FallocateMode::Unshare { keep_size }, keep_size)
    }

    fn give_space(&mut self, mode: FallocateMode, keep_size: bool) -> Step {
        self.with_open(|worker, open, file| {
            let range = worker.any_range(2 * WRITE_MAX);
            let result = open.fallocate(mode, range.start, range.end - range.start);
            let done = worker.unless_full("fallocate", &file.path, result)?.is_some();
            if !keep_size {
                // A volume that became full on the way leaves the file as long as it got.
                let reached = told("stat", &file.path, open.metadata())?.size;
                file.content.extend(if done { range.end } else { reached.min(range.end) });
            }
            Ok(())
        })
    }

    /// Frees the blocks of a range.
    pub(super) fn punch(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let range = worker.any_range(2 * WRITE_MAX);
            if worker.change_space(open, file, FallocateMode::PunchHole, &range)? {
                file.content.clear(range.start, range.end - range.start);
                no_data(open, file, &range)?;
            }
            Ok(())
        })
    }

    /// Makes a range zeros, with blocks allocated.
    pub(super) fn zero_range(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let (range, keep_size) = (worker.any_range(2 * WRITE_MAX), worker.odds(2));
            if worker.change_space(open, file, FallocateMode::ZeroRange { keep_size }, &range)? {
                file.content.clear(range.start, range.end - range.start);
                if !keep_size {
                    file.content.extend(range.end);
                }
                no_data(open, file, &range)?;
            }
            Ok(())
        })
    }

    /// Removes blocks; what follows moves down.
    pub(super) fn collapse(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let blocks = u32::try_from(file.content.len().saturating_sub(1) / u64::from(BLOCK)).unwrap_or(0);
            if blocks == 0 {
                return Ok(());
            }
            let first = worker.random.below32(blocks);
            let count = 1 + worker.random.below32((blocks - first).min(WRITE_MAX / BLOCK));
            let range = blocks_from(first, count);
            if worker.change_space(open, file, FallocateMode::CollapseRange, &range)? {
                file.content.collapse(range.start, range.end - range.start);
            }
            Ok(())
        })
    }

    /// Inserts blocks of zeros; what follows moves up.
    pub(super) fn insert(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let blocks = u32::try_from(file.content.len().div_ceil(BLOCK.into())).unwrap_or(0);
            let room = (FILE_MAX / BLOCK).saturating_sub(blocks).min(WRITE_MAX / BLOCK);
            if blocks == 0 || room == 0 {
                return Ok(());
            }
            let range = blocks_from(worker.random.below32(blocks), 1 + worker.random.below32(room));
            if worker.change_space(open, file, FallocateMode::InsertRange, &range)? {
                file.content.insert(range.start, range.end - range.start);
                no_data(open, file, &range)?;
            }
            Ok(())
        })
    }

    /// A range of at most `most` bytes, half of the time of whole blocks.
    fn any_range(&mut self, most: u32) -> Range<u64> {
        let unit = if self.odds(2) { BLOCK } else { 1 };
        let at = self.random.below32(FILE_MAX) / unit * unit;
        let len = (1 + self.random.below32(most)).next_multiple_of(unit).min(FILE_MAX - at);
        u64::from(at)..u64::from(at + len)
    }

    /// Whether it was done. On a full volume it may have been done in part: the file is truncated before it.
    fn change_space(
        &mut self,
        open: &OpenFile,
        file: &mut Owned,
        mode: FallocateMode,
        range: &Range<u64>,
    ) -> Result<bool, String> {
        let result = open.fallocate(mode, range.start, range.end - range.start);
        if self.unless_full(&format!("{mode:?} {range:?} of"), &file.path, result)?.is_some() {
            return Ok(true);
        }
        let len = range.start.min(file.content.len());
        told("truncate", &file.path, open.set_len(len))?;
        file.content.set_len(len);
        Ok(false)
    }
}

fn blocks_from(first: u32, count: u32) -> Range<u64> {
    u64::from(first) * u64::from(BLOCK)..u64::from(first + count) * u64::from(BLOCK)
}

/// The whole blocks of a range are no data.
fn no_data(open: &OpenFile, file: &Owned, range: &Range<u64>) -> Step {
    let block = u64::from(BLOCK);
    let (start, end) = (range.start.next_multiple_of(block), range.end - range.end % block);
    let found = told("seek data in", &file.path, open.seek_data(start))?;
    match found.filter(|found| start < end && *found < end) {
        Some(found) => Err(format!("{}: byte {found} is still data, of {range:?} cleared", file.path)),
        None => Ok(()),
    }
}
