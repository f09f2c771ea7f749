//! Hands out the free space of an empty volume from its start to its end.

use hectare_ext4::geometry::Geometry;
use hectare_units::{BlockNr, Blocks};
use std::ops::Range;

/// Hands out free blocks in ascending order, whole clusters at a time.
pub(crate) struct Cursor<I> {
    ranges: I,
    /// What is left of the range at hand.
    rest: Range<u64>,
    cluster: u64,
    /// What was given out, sorted and joined.
    used: Vec<Range<u64>>,
    taken: u64,
}

impl<I: Iterator<Item = Range<u64>>> Cursor<I> {
    pub(crate) fn new(ranges: I, geometry: &Geometry) -> Self {
        Self { ranges, rest: 0..0, cluster: geometry.cluster_blocks().into(), used: Vec::new(), taken: 0 }
    }

    /// The next run of at most `want` blocks, rounded up to whole clusters; `None` when the volume is full.
    pub(crate) fn take(&mut self, want: Blocks) -> Option<(BlockNr, Blocks)> {
        while self.rest.is_empty() {
            self.rest = self.ranges.next()?;
        }
        let len = want.get().next_multiple_of(self.cluster).min(self.rest.end - self.rest.start);
        let start = self.rest.start;
        self.rest.start += len;
        match self.used.last_mut() {
            Some(last) if last.end == start => last.end += len,
            _ => self.used.push(start..start + len),
        }
        self.taken += len;
        Some((BlockNr::new(start), Blocks::new(len)))
    }

    /// Blocks given out.
    pub(crate) fn taken(&self) -> Blocks {
        Blocks::new(self.taken)
    }

    /// All that was given out, sorted and joined, and how many free blocks were not.
    pub(crate) fn finish(self) -> (Vec<Range<u64>>, Blocks) {
        let rest = self.rest.end - self.rest.start;
        let left = rest + self.ranges.map(|range| range.end - range.start).sum::<u64>();
        (self.used, Blocks::new(left))
    }
}
