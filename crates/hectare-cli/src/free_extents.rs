//! The free-space fragmentation of a volume, as e2freefrag counts it.
//!
//! Every run of free blocks is one extent; runs continue across group boundaries. Extents are counted by size
//! in powers of two blocks, the last class taking all that is larger. The average is a whole number of blocks
//! (rounded down), and percentages are of the superblock's free count, as in e2freefrag.
//!
//! Hazard: e2freefrag 1.47 misreads volumes with `bigalloc`: it divides the block's number by the cluster's
//! blocks twice, so that it sees only the first part of the volume, stretched, and its histogram does not add
//! up to the free blocks. [`Reading::LikeE2freefrag`] gives its numbers for comparison; [`Reading::True`]
//! gives the right ones. On all other volumes the two are the same.

use crate::failure::LeftOut;
use crate::image::Image;
use hectare_engine::{FreeExtents, RunJoiner};
use hectare_units::usize_of;
use std::ops::Range;

/// Classes of extent sizes.
const CLASSES: usize = 31;

/// How bitmaps of `bigalloc` volumes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// As they are.
    True,
    /// As e2freefrag 1.47 reads them.
    LikeE2freefrag,
}

/// The free extents of a volume, in blocks.
#[derive(Clone, Debug)]
pub(crate) struct FreeSpace {
    /// Their lengths, with blocks of one byte.
    counted: FreeExtents,
    /// Wholly free chunks, if chunks were asked for.
    pub(crate) free_chunks: u64,
    chunk: Option<u64>,
    joiner: RunJoiner,
}

/// Extents of one class of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Class {
    /// Extents in it.
    pub(crate) extents: u64,
    /// Blocks in them.
    pub(crate) blocks: u64,
}

impl FreeSpace {
    /// Nothing yet; `chunk` is the length of a chunk in blocks.
    pub(crate) fn new(chunk: Option<u64>) -> Self {
        Self { counted: FreeExtents::default(), free_chunks: 0, chunk, joiner: RunJoiner::default() }
    }

    /// Counts the free extents of a volume. Groups that can't be read count as full and are reported.
    pub(crate) fn of(image: &Image, chunk: Option<u64>, reading: Reading, left_out: &LeftOut) -> Self {
        let volume = image.volume();
        let geometry = volume.superblock().geometry();
        let shift = match reading {
            Reading::True => 0,
            Reading::LikeE2freefrag => geometry.cluster_ratio_shift,
        };
        let end = geometry.blocks_count.get();
        let mut space = Self::new(chunk);
        for group in image.groups(left_out) {
            if geometry.first_block(group).get() > end >> shift {
                break;
            }
            match volume.free_runs(group) {
                Ok(runs) => {
                    for run in runs {
                        let stretched =
                            (run.start.get() << shift).min(end)..(run.end.get() << shift).min(end);
                        space.add(stretched);
                    }
                }
                Err(error) => left_out.tell(image.name(), error),
            }
        }
        space.finish();
        space
    }

    /// Adds the next free run; runs come in order.
    pub(crate) fn add(&mut self, run: Range<u64>) {
        let complete = self.joiner.push(run);
        self.count(complete);
    }

    /// No more runs come.
    pub(crate) fn finish(&mut self) {
        let last = std::mem::take(&mut self.joiner).finish();
        self.count(last);
    }

    fn count(&mut self, extent: Option<Range<u64>>) {
        let Some(extent) = extent else { return };
        self.counted.add(extent.end - extent.start, 1);
        if let Some(chunk) = self.chunk {
            self.free_chunks += (extent.end / chunk).saturating_sub(extent.start.div_ceil(chunk));
        }
    }

    /// Class `i` holds extents of `2^i` to `2^(i + 1) - 1` blocks, the last all longer ones, too.
    pub(crate) fn classes(&self) -> [Class; CLASSES] {
        let mut classes = [Class::default(); CLASSES];
        for bucket in &self.counted.histogram {
            let class = &mut classes[usize_of(bucket.from_bytes.ilog2()).min(CLASSES - 1)];
            class.extents += bucket.runs;
            class.blocks += bucket.bytes;
        }
        classes
    }

    /// How many extents there are.
    pub(crate) fn extents(&self) -> u64 {
        self.counted.extents
    }

    /// Blocks in all of them.
    pub(crate) fn blocks(&self) -> u64 {
        self.counted.bytes
    }

    /// Blocks of the shortest; 0 if there is none.
    pub(crate) fn shortest(&self) -> u64 {
        self.counted.shortest
    }

    /// Blocks of the longest.
    pub(crate) fn longest(&self) -> u64 {
        self.counted.longest
    }

    /// The average length in blocks, rounded down.
    pub(crate) fn average(&self) -> u64 {
        self.blocks().checked_div(self.extents()).unwrap_or(0)
    }
}

/// Whether a class is the last, which has no upper end.
pub(crate) const fn is_last(class: usize) -> bool {
    class == CLASSES - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_are_counted_by_size() {
        let mut space = FreeSpace::new(Some(4));
        space.add(0..3);
        space.add(3..8);
        space.add(9..10);
        space.add(11..18);
        space.finish();
        let lengths = (space.extents(), space.blocks(), space.shortest(), space.longest());
        assert_eq!(lengths, (3, 16, 1, 8));
        assert_eq!(space.classes()[3], Class { extents: 1, blocks: 8 });
        assert_eq!(space.classes()[2], Class { extents: 1, blocks: 7 });
        assert_eq!(space.classes()[0], Class { extents: 1, blocks: 1 });
        assert_eq!(space.free_chunks, 2 + 1);
        assert_eq!(space.average(), 5);
    }
}
