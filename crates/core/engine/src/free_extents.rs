//! Free extents: how many there are, how long, and by which powers of two.
//!
//! Groups report their free runs one group after the other, and a free extent may span several groups. So
//! runs are joined first ([`RunJoiner`]), then counted ([`FreeExtents`]), as e2freefrag does. Everything that
//! shows free extents (`freefrag`, `map`, reports, a mount's metrics) counts them here.
//!
//! Not here: reading bitmaps ([`Volume::free_runs`](crate::Volume::free_runs)).

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Free extents of one power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bucket {
    /// The shortest length that belongs to it, in bytes; it ends below twice that.
    pub from_bytes: u64,
    /// How many extents there are.
    pub runs: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// The free extents of a volume, or of a part of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FreeExtents {
    /// How many there are.
    pub extents: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Bytes of the shortest; 0 if there is none.
    pub shortest: u64,
    /// Bytes of the longest.
    pub longest: u64,
    /// By powers of two blocks, ascending; without those that have no extents.
    pub histogram: Vec<Bucket>,
}

impl FreeExtents {
    /// Counts an extent of `blocks` blocks (none if that is 0) of `block` bytes each.
    pub fn add(&mut self, blocks: u64, block: u64) {
        let Some(power) = blocks.checked_ilog2() else { return };
        let (bytes, from_bytes) = (blocks.saturating_mul(block), block << power);
        self.shortest = if self.extents == 0 { bytes } else { self.shortest.min(bytes) };
        self.longest = self.longest.max(bytes);
        self.extents += 1;
        self.bytes += bytes;
        let found = self.histogram.binary_search_by_key(&from_bytes, |bucket| bucket.from_bytes);
        let at = found.unwrap_or_else(|at| {
            self.histogram.insert(at, Bucket { from_bytes, ..Bucket::default() });
            at
        });
        self.histogram[at].runs += 1;
        self.histogram[at].bytes += bytes;
    }

    /// The mean length in bytes; 0 of none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a mean needs no more than 52 bits
    pub fn mean(&self) -> f64 {
        if self.extents == 0 { 0.0 } else { self.bytes as f64 / self.extents as f64 }
    }
}

/// Joins free runs that touch, as they are reported in ascending order.
#[derive(Clone, Debug, Default)]
pub struct RunJoiner {
    open: Range<u64>,
}

impl RunJoiner {
    /// Takes the next run, of blocks; returns the extent before it if that ends here.
    pub fn push(&mut self, run: Range<u64>) -> Option<Range<u64>> {
        if run.is_empty() {
            return None;
        }
        if run.start == self.open.end && !self.open.is_empty() {
            self.open.end = run.end;
            return None;
        }
        Some(std::mem::replace(&mut self.open, run)).filter(|done| !done.is_empty())
    }

    /// The last extent.
    #[must_use]
    pub fn finish(self) -> Option<Range<u64>> {
        Some(self.open).filter(|done| !done.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two_blocks() {
        let mut counted = FreeExtents::default();
        [1, 3, 2, 64, 0].into_iter().for_each(|blocks| counted.add(blocks, 4096));
        let bucket = |from_bytes, runs, bytes| Bucket { from_bytes, runs, bytes };
        assert_eq!(
            counted.histogram,
            [bucket(4096, 1, 4096), bucket(8192, 2, 5 * 4096), bucket(64 * 4096, 1, 64 * 4096)]
        );
        assert_eq!((counted.extents, counted.bytes), (4, 70 * 4096));
        assert_eq!((counted.shortest, counted.longest), (4096, 64 * 4096));
        assert!((counted.mean() - 17.5 * 4096.0).abs() < 1e-9);
        assert!(FreeExtents::default().mean().abs() < 1e-9);
    }

    #[test]
    fn runs_over_the_borders_of_groups_are_one_extent() {
        let mut joiner = RunJoiner::default();
        let runs = [0..3, 3..8, 8..8, 9..10, 11..18];
        let mut extents: Vec<_> = runs.into_iter().filter_map(|run| joiner.push(run)).collect();
        extents.extend(joiner.finish());
        assert_eq!(extents, [0..8, 9..10, 11..18]);
        assert_eq!(RunJoiner::default().finish(), None);
    }
}
