//! Where the blocks of a journal lie on its device.
//!
//! An internal journal is a file of the volume, whose blocks may lie anywhere: its map comes from the inode's
//! extents. An external journal is a device of its own, whose log blocks are the device's.
//!
//! Invariants: the map has no holes, lies inside its device, and no two of its blocks are the same block; so
//! a log is never longer than its device, which bounds all work on it.

use hectare_ext4::{Corrupt, Place};
use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, LogicalBlock, low32};

/// Log blocks that lie side by side on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRun {
    /// The first block in the log.
    pub first: LogicalBlock,
    /// The first block on the device.
    pub start: BlockNr,
    /// How many.
    pub len: Blocks,
}

impl LogRun {
    /// The log block after the last.
    fn end(&self) -> u64 {
        u64::from(self.first.get()).saturating_add(self.len.get())
    }
}

/// Where the blocks of a journal lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogMap {
    /// In the order of the log.
    runs: Vec<LogRun>,
    /// The same in the order of the volume; none for an external journal, which has no block of it.
    of_volume: Vec<LogRun>,
    block_size: BlockSize,
    superblock: LogicalBlock,
}

impl LogMap {
    /// The map of a journal inside its volume, by the extents of its inode in any order. `device` is the
    /// device's length.
    ///
    /// # Errors
    /// If a block of the journal has no place, two share one, or one lies outside the device.
    pub fn internal(block_size: BlockSize, mut runs: Vec<LogRun>, device: Bytes) -> Result<Self, Corrupt> {
        runs.retain(|run| !run.len.is_zero());
        runs.sort_unstable_by_key(|run| run.start);
        let mut free_from = Some(BlockNr::new(0));
        for run in &runs {
            if free_from.is_none_or(|free| run.start < free) {
                return Err(corrupt(format!("block {} of the device is in it twice", run.start)));
            }
            free_from = run.start.checked_add(run.len);
        }
        let blocks = device.get() >> block_size.shift();
        if free_from.is_none_or(|end| end.get() > blocks) {
            return Err(corrupt(format!("it reaches beyond the device, which has {blocks} blocks")));
        }
        let of_volume = runs.clone();
        runs.sort_unstable_by_key(|run| run.first);
        let mut mapped = 0;
        for run in &runs {
            if u64::from(run.first.get()) != mapped {
                return Err(corrupt(format!("its blocks have no place from block {mapped} on")));
            }
            mapped = run.end();
        }
        if mapped == 0 || u32::try_from(mapped).is_err() {
            return Err(corrupt(format!("it has {mapped} blocks")));
        }
        Ok(Self { runs, of_volume, block_size, superblock: LogicalBlock::ZERO })
    }

    /// The map of a device of `blocks` blocks that is a journal, with the journal's superblock in one of
    /// them.
    pub(super) fn device(block_size: BlockSize, blocks: u32, superblock: LogicalBlock) -> Self {
        let len = Blocks::new(blocks.into());
        let run = LogRun { first: LogicalBlock::ZERO, start: BlockNr::new(0), len };
        Self { runs: vec![run], of_volume: Vec::new(), block_size, superblock }
    }

    /// The size of a block.
    #[must_use]
    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// How many blocks the journal has.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.runs.last().map_or(0, LogRun::end))
    }

    /// The log block that holds the superblock: 0 but for external journals.
    #[must_use]
    pub const fn superblock(&self) -> LogicalBlock {
        self.superblock
    }

    /// Where on the device the superblock lies.
    #[must_use]
    pub fn superblock_offset(&self) -> Bytes {
        let place = self.locate(self.superblock).map_or(BlockNr::new(0), |(nr, _)| nr);
        place.offset(self.block_size)
    }

    /// The runs, in the order of the log.
    #[must_use]
    pub fn runs(&self) -> &[LogRun] {
        &self.runs
    }

    /// The block of the device where a log block lies, and how many log blocks from it on lie side by side;
    /// `None` outside the journal.
    #[must_use]
    pub fn locate(&self, at: LogicalBlock) -> Option<(BlockNr, u32)> {
        let after = self.runs.partition_point(|run| run.first <= at);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let into = u64::from(at.get() - run.first.get());
        let left = run.len.get().checked_sub(into).filter(|left| *left > 0)?;
        Some((run.start.checked_add(Blocks::new(into))?, low32(left)))
    }

    /// Whether a block of the volume is part of the journal. Never for an external journal.
    pub(super) fn is_target_inside(&self, nr: BlockNr) -> bool {
        let after = self.of_volume.partition_point(|run| run.start <= nr);
        let run = after.checked_sub(1).and_then(|i| self.of_volume.get(i));
        run.is_some_and(|run| nr.checked_since(run.start).is_some_and(|into| into < run.len))
    }
}

fn corrupt(reason: String) -> Corrupt {
    Corrupt::new("journal file", Place::Volume, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, start: u64, len: u64) -> LogRun {
        LogRun { first: LogicalBlock::new(first), start: BlockNr::new(start), len: Blocks::new(len) }
    }

    fn map(runs: &[LogRun]) -> Result<LogMap, String> {
        let map = LogMap::internal(BlockSize::KIB4, runs.to_vec(), Bytes::mib(4));
        map.map_err(|error| error.to_string())
    }

    #[test]
    fn blocks_are_found_in_their_runs() {
        let map = map(&[run(10, 500, 30), run(0, 700, 10)]).unwrap();
        let at = |n| map.locate(LogicalBlock::new(n)).map(|(nr, left)| (nr.get(), left));
        assert_eq!((at(0), at(9)), (Some((700, 10)), Some((709, 1))));
        assert_eq!((at(10), at(39), at(40)), (Some((500, 30)), Some((529, 1)), None));
        assert_eq!(map.blocks(), Blocks::new(40));
        assert_eq!(map.superblock_offset(), Bytes::new(700 << 12));
        let inside = |n| map.is_target_inside(BlockNr::new(n));
        assert!(inside(500) && inside(529) && inside(709));
        assert!(!inside(499) && !inside(530) && !inside(710));
    }

    #[test]
    fn what_is_no_journal_file_is_named() {
        assert!(map(&[]).unwrap_err().contains("it has 0 blocks"));
        assert!(map(&[run(0, 100, 10), run(10, 109, 10)]).unwrap_err().contains("block 109 of the device"));
        assert!(map(&[run(0, 100, 10), run(11, 200, 10)]).unwrap_err().contains("from block 10 on"));
        assert!(map(&[run(1, 100, 10)]).unwrap_err().contains("from block 0 on"));
        assert!(map(&[run(0, 100, 10), run(5, 200, 10)]).unwrap_err().contains("from block 10 on"));
        assert!(map(&[run(0, 1020, 5)]).unwrap_err().contains("beyond the device"));
        assert!(map(&[run(0, u64::MAX, 5)]).unwrap_err().contains("beyond the device"));
        assert!(map(&[run(0, 5, u64::MAX), run(9, 4, 1)]).unwrap_err().contains("beyond the device"));
    }
}
