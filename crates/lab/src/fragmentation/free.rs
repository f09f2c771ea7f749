//! Free extents and their histogram, as e2freefrag counts them.

use hectare_engine::{Result, Volume};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Free extents of one class of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bucket {
    /// The shortest that belongs to it, in bytes: a power of two. The class ends below twice that.
    pub from_bytes: u64,
    /// How many there are.
    pub runs: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// The free extents of a volume.
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
    /// By powers of two; classes without extents are left out.
    pub histogram: Vec<Bucket>,
}

impl FreeExtents {
    /// Counts the free extents of a volume.
    ///
    /// # Errors
    /// Those of reading descriptors and bitmaps.
    pub fn of(volume: &Volume) -> Result<Self> {
        let block = volume.superblock().geometry().block_size.bytes().get();
        Ok(Self::count(&super::free_runs(volume)?, block))
    }

    pub(super) fn count(runs: &[Range<u64>], block: u64) -> Self {
        let mut counted = Self::default();
        runs.iter().for_each(|run| counted.add(run.end - run.start, block));
        counted
    }

    /// Adds one of so many blocks (none for 0) of `block` bytes each.
    pub fn add(&mut self, blocks: u64, block: u64) {
        let Some(class) = blocks.checked_ilog2() else { return };
        let (bytes, from_bytes) = (blocks.saturating_mul(block), block << class);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two_blocks() {
        let counted = FreeExtents::count(&[0..1, 2..5, 6..8, 10..74], 4096);
        let bucket = |from_bytes, runs, bytes| Bucket { from_bytes, runs, bytes };
        assert_eq!(
            counted.histogram,
            [bucket(4096, 1, 4096), bucket(8192, 2, 5 * 4096), bucket(64 * 4096, 1, 64 * 4096)]
        );
        assert_eq!((counted.extents, counted.bytes), (4, 70 * 4096));
        assert_eq!((counted.shortest, counted.longest), (4096, 64 * 4096));
        assert!((counted.mean() - 17.5 * 4096.0).abs() < 1e-9);
        assert_eq!(FreeExtents::count(&[], 4096), FreeExtents::default());
    }
}
