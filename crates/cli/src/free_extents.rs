//! How the free space of a volume is cut up: what e2freefrag counts.
//!
//! Every run of free blocks is one extent; runs go on over the borders of groups. Extents are counted by size
//! in powers of two blocks, the last class taking all that is larger. The average is a whole number of blocks
//! (cut, not rounded), and percentages are of the superblock's free count, as e2freefrag has it.
//!
//! Hazard: e2freefrag 1.47 misreads volumes with `bigalloc`: it divides the block's number by the cluster's
//! blocks twice, so that it sees only the first part of the volume, stretched, and its histogram does not add
//! up to the free blocks. [`Reading::LikeE2freefrag`] gives its figures for comparison; [`Reading::True`]
//! gives the right ones. On all other volumes the two are the same.

use crate::failure::LeftOut;
use crate::image::Image;
use hectare_units::index_of;
use std::ops::Range;

/// Classes of extent sizes.
const CLASSES: usize = 32;

/// How bitmaps of `bigalloc` volumes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// As they are.
    True,
    /// As e2freefrag 1.47 reads them.
    LikeE2freefrag,
}

/// Extents of one class of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Class {
    /// Extents in it.
    pub(crate) extents: u64,
    /// Blocks in them.
    pub(crate) blocks: u64,
}

/// The free extents of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FreeSpace {
    /// Class `i` holds extents of `2^i` to `2^(i + 1) - 1` blocks.
    pub(crate) classes: [Class; CLASSES - 1],
    /// The shortest, in blocks; 0 if there is none.
    pub(crate) shortest: u64,
    /// The longest.
    pub(crate) longest: u64,
    /// Extents.
    pub(crate) extents: u64,
    /// Blocks in all of them.
    pub(crate) blocks: u64,
    /// Wholly free chunks, if chunks were asked for.
    pub(crate) free_chunks: u64,
    chunk: Option<u64>,
    open: Range<u64>,
}

impl FreeSpace {
    /// Nothing yet; `chunk` is the length of a chunk in blocks.
    pub(crate) fn new(chunk: Option<u64>) -> Self {
        Self {
            classes: [Class::default(); CLASSES - 1],
            shortest: 0,
            longest: 0,
            extents: 0,
            blocks: 0,
            free_chunks: 0,
            chunk,
            open: 0..0,
        }
    }

    /// Counts the free extents of a volume. Groups that can't be read count as full and are told.
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
        if run.is_empty() {
            return;
        }
        if run.start == self.open.end {
            self.open.end = run.end;
        } else {
            self.finish();
            self.open = run;
        }
    }

    /// No more runs come.
    pub(crate) fn finish(&mut self) {
        let run = std::mem::replace(&mut self.open, 0..0);
        let len = run.end - run.start;
        if len == 0 {
            return;
        }
        let class = index_of(u64::from(len.ilog2())).min(CLASSES - 2);
        self.classes[class].extents += 1;
        self.classes[class].blocks += len;
        self.shortest = if self.extents == 0 { len } else { self.shortest.min(len) };
        self.longest = self.longest.max(len);
        self.extents += 1;
        self.blocks += len;
        if let Some(chunk) = self.chunk {
            self.free_chunks += (run.end / chunk).saturating_sub(run.start.div_ceil(chunk));
        }
    }

    /// The average length in blocks, cut.
    pub(crate) fn average(&self) -> u64 {
        self.blocks.checked_div(self.extents).unwrap_or(0)
    }
}

/// Whether a class is the last, which has no upper end.
pub(crate) const fn is_last(class: usize) -> bool {
    class == CLASSES - 2
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
        assert_eq!((space.extents, space.blocks, space.shortest, space.longest), (3, 16, 1, 8));
        assert_eq!(space.classes[3], Class { extents: 1, blocks: 8 });
        assert_eq!(space.classes[2], Class { extents: 1, blocks: 7 });
        assert_eq!(space.classes[0], Class { extents: 1, blocks: 1 });
        assert_eq!(space.free_chunks, 2 + 1);
        assert_eq!(space.average(), 5);
    }
}
