//! A set of positions kept as sorted, merged ranges.
//!
//! Used for what is reserved and what is being freed in a group: usually a handful of ranges, so a sorted
//! vector beats a tree, and the vector keeps its memory from one reservation to the next.

use std::ops::Range;

/// Disjoint, non-adjacent, non-empty ranges in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<u32>>,
    len: u32,
}

impl RangeSet {
    /// How many positions are in the set.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// The ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u32>> {
        self.ranges.iter()
    }

    /// The index of the first range that ends after `at`.
    fn first_after(&self, at: u32) -> usize {
        self.ranges.partition_point(|range| range.end <= at)
    }

    /// The first position of `range` that is in the set.
    pub(crate) fn first_in(&self, range: &Range<u32>) -> Option<u32> {
        let candidate = self.ranges.get(self.first_after(range.start))?;
        let first = candidate.start.max(range.start);
        (first < range.end).then_some(first)
    }

    /// Adds a range.
    ///
    /// # Panics
    /// If some of it is in the set.
    pub(crate) fn insert(&mut self, range: Range<u32>) {
        assert!(self.first_in(&range).is_none(), "positions {range:?} are already in the set");
        if range.is_empty() {
            return;
        }
        self.len += range.end - range.start;
        let at = self.first_after(range.start);
        let joins_left = at > 0 && self.ranges[at - 1].end == range.start;
        let joins_right = self.ranges.get(at).is_some_and(|next| next.start == range.end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[at - 1].end = self.ranges[at].end;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].end = range.end,
            (false, true) => self.ranges[at].start = range.start,
            (false, false) => self.ranges.insert(at, range),
        }
    }

    /// Takes a range out.
    ///
    /// # Panics
    /// If not all of it is in the set.
    pub(crate) fn remove(&mut self, range: &Range<u32>) {
        if range.is_empty() {
            return;
        }
        let at = self.first_after(range.start);
        let whole = self.ranges.get(at).filter(|have| have.start <= range.start && range.end <= have.end);
        let whole = whole.cloned().expect("a range that was inserted before");
        self.len -= range.end - range.start;
        match (whole.start < range.start, range.end < whole.end) {
            (false, false) => {
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at].end = range.start,
            (false, true) => self.ranges[at].start = range.end,
            (true, true) => {
                self.ranges[at].end = range.start;
                self.ranges.insert(at + 1, range.end..whole.end);
            }
        }
    }

    /// Takes out what of a range is in the set.
    pub(crate) fn subtract(&mut self, range: &Range<u32>) {
        while let Some(first) = self.first_in(range) {
            let end = self.ranges[self.first_after(first)].end.min(range.end);
            self.remove(&(first..end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_positions(steps in prop::collection::vec((0_u32..80, 0_u32..20), 1..60)) {
            let mut ranges = RangeSet::default();
            let mut model = BTreeSet::new();
            for (start, len) in steps {
                let range = start..start + len;
                prop_assert_eq!(ranges.first_in(&range), range.clone().find(|at| model.contains(at)));
                if range.clone().all(|at| model.contains(&at)) {
                    ranges.remove(&range);
                    model.retain(|at| !range.contains(at));
                } else if ranges.first_in(&range).is_none() {
                    ranges.insert(range.clone());
                    model.extend(range);
                }
                let flat: Vec<u32> = ranges.iter().cloned().flatten().collect();
                prop_assert_eq!(flat, model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(ranges.len() as usize, model.len());
                let merged = ranges.ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
                prop_assert!(merged, "ranges are merged: {:?}", ranges.ranges);
            }
        }
    }

    #[test]
    fn subtracting_takes_what_is_there() {
        let mut ranges = RangeSet::default();
        for range in [2..5, 8..10, 12..20] {
            ranges.insert(range);
        }
        ranges.subtract(&(4..14));
        ranges.subtract(&(30..40));
        assert_eq!(ranges.iter().cloned().collect::<Vec<_>>(), [2..4, 14..20]);
        assert_eq!(ranges.len(), 8);
    }

    #[test]
    #[should_panic(expected = "already in the set")]
    fn inserting_twice_is_a_bug() {
        let mut ranges = RangeSet::default();
        ranges.insert(3..5);
        ranges.insert(4..6);
    }
}
