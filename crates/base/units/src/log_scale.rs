//! Buckets on a logarithmic scale: the arithmetic of latency histograms.
//!
//! A bucket is a power of two, or an equal part of one, so that finding it takes a few instructions and a value read
//! back from it is too high by at most the width of a part. Who counts, and how (atomically, by thread, over a
//! socket), is up to the users of the scale: it holds no counts.

use crate::{index_of, u64_of, usize_of};

/// A scale of buckets for the values 0 to 2^64 - 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogScale {
    /// Values are looked at in units of 2^`unit`: all below one unit are in the first bucket.
    unit: u32,
    /// A power of two of units has 2^`fine` buckets.
    fine: u32,
    /// How many buckets there are. The last takes all values beyond.
    buckets: usize,
}

impl LogScale {
    /// A scale with a resolution of 2^`unit`, 2^`fine` buckets in each power of two, and `buckets` of them.
    ///
    /// # Panics
    /// If there are no buckets.
    #[must_use]
    pub const fn new(unit: u32, fine: u32, buckets: usize) -> Self {
        assert!(buckets > 0, "a scale has a bucket");
        Self { unit, fine, buckets }
    }

    /// How many buckets there are.
    #[must_use]
    pub const fn buckets(self) -> usize {
        self.buckets
    }

    /// The bucket of a value.
    #[must_use]
    pub fn bucket(self, value: u64) -> usize {
        let units = (value >> self.unit).max(1 << self.fine);
        let coarse = units.ilog2() - self.fine;
        let part = index_of(units >> coarse) & ((1 << self.fine) - 1);
        ((usize_of(coarse) << self.fine) + part).min(self.buckets - 1)
    }

    /// What the values of a bucket are below, but for those that the last has from beyond its end; at most 2^64 - 1.
    #[must_use]
    pub fn end(self, bucket: usize) -> u64 {
        let (coarse, part) = (bucket >> self.fine, u64_of(bucket) & ((1 << self.fine) - 1));
        let end = ((1_u128 << self.fine) + u128::from(part) + 1) << coarse.min(64) << self.unit;
        u64::try_from(end).unwrap_or(u64::MAX)
    }
}

/// Where among counts the value of a rank lies: the bucket, and its place in it from 1. The rank is that of
/// `per_mille` of 1000 values; `None` if nothing was counted.
#[must_use]
pub fn quantile(counts: &[u64], per_mille: u64) -> Option<(usize, u64)> {
    let total = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let rank = total.saturating_mul(per_mille).div_ceil(1000).max(1);
    let mut seen = 0_u64;
    for (bucket, count) in counts.iter().copied().enumerate() {
        if seen.saturating_add(count) >= rank && count > 0 {
            return Some((bucket, rank - seen));
        }
        seen = seen.saturating_add(count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_below_the_end_of_its_bucket_and_not_below_the_one_before() {
        for scale in [LogScale::new(7, 3, 240), LogScale::new(0, 3, 488), LogScale::new(10, 0, 26)] {
            let values = (0..64).map(|power| 1_u64 << power).flat_map(|n| [n - 1, n, n + n / 3, n + n / 2]);
            for value in values.chain([u64::MAX]) {
                let bucket = scale.bucket(value);
                let is_last = bucket + 1 == scale.buckets();
                assert!(is_last || value < scale.end(bucket), "{scale:?} {value}");
                assert!(bucket == 0 || value >= scale.end(bucket - 1), "{scale:?} {value}");
                if !is_last {
                    let width = (value >> scale.fine) + (1 << (scale.unit + scale.fine + 1));
                    assert!(scale.end(bucket) - value <= width, "{scale:?} {value}");
                }
            }
        }
    }

    #[test]
    fn a_rank_is_found_in_its_bucket() {
        assert_eq!(quantile(&[0, 0], 500), None);
        assert_eq!(quantile(&[0, 3, 0, 1], 0), Some((1, 1)));
        assert_eq!(quantile(&[0, 3, 0, 1], 500), Some((1, 2)));
        assert_eq!(quantile(&[0, 3, 0, 1], 1000), Some((3, 1)));
        assert_eq!(quantile(&[u64::MAX, u64::MAX], 1000), Some((0, u64::MAX.div_ceil(1000))));
    }
}
