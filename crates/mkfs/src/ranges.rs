//! A set of block ranges: sorted, disjoint, neighbours joined.
//!
//! Small by design: it holds the metadata of one flex group, not of a volume.

use std::ops::Range;

/// Sorted, disjoint ranges of blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    pub(crate) fn as_slice(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The first range that ends after `at`.
    fn first_after(&self, at: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= at)
    }

    pub(crate) fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|range| range.end < new.start);
        let to = self.ranges.partition_point(|range| range.start <= new.end);
        if from == to {
            self.ranges.insert(from, new);
            return;
        }
        let joined = new.start.min(self.ranges[from].start)..new.end.max(self.ranges[to - 1].end);
        self.ranges.splice(from..to, [joined]);
    }

    pub(crate) fn is_free(&self, wanted: &Range<u64>) -> bool {
        self.ranges.get(self.first_after(wanted.start)).is_none_or(|range| range.start >= wanted.end)
    }

    /// The start of the first free run of `len` blocks inside `within`.
    pub(crate) fn first_fit(&self, within: Range<u64>, len: u64) -> Option<u64> {
        let mut at = within.start;
        for range in &self.ranges[self.first_after(at)..] {
            if at.checked_add(len)? <= range.start {
                break;
            }
            at = at.max(range.end);
        }
        (at.checked_add(len)? <= within.end).then_some(at)
    }

    /// The parts of the ranges that lie inside `within`.
    pub(crate) fn inside(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges[self.first_after(within.start)..]
            .iter()
            .map(move |range| range.start.max(within.start)..range.end.min(within.end))
            .take_while(|range| range.start < range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one range is what is meant
    fn ranges_join_and_gaps_are_found() {
        let mut set = RangeSet::default();
        for range in [10..20, 30..40, 20..25, 5..6, 6..10] {
            set.insert(range);
        }
        assert_eq!(set.as_slice(), [5..25, 30..40]);
        assert!(set.is_free(&(25..30)) && !set.is_free(&(24..26)) && set.is_free(&(40..90)));
        assert_eq!(set.first_fit(0..100, 5), Some(0));
        assert_eq!(set.first_fit(1..100, 5), Some(25));
        assert_eq!(set.first_fit(1..100, 6), Some(40));
        assert_eq!(set.first_fit(1..45, 6), None);
        assert_eq!(set.inside(20..35).collect::<Vec<_>>(), [20..25, 30..35]);
        set.insert(0..100);
        assert_eq!(set.as_slice(), [0..100]);
    }
}
