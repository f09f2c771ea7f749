//! A set of clusters, as maximal runs.

use hectare_alloc::Run;
use hectare_units::{ClusterNr, Clusters};
use rangemap::RangeSet;

/// Clusters, as runs that don't touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RunSet {
    ranges: RangeSet<ClusterNr>,
}

impl RunSet {
    /// Adds the clusters from `start` to before `end`, whether some of them are in the set or not.
    pub(super) fn add(&mut self, start: ClusterNr, end: ClusterNr) {
        if start < end {
            self.ranges.insert(start..end);
        }
    }

    /// Adds all clusters of another set.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.ranges.extend(other.ranges.iter().cloned());
    }

    /// The number of clusters.
    pub(super) fn len(&self) -> Clusters {
        self.ranges.iter().fold(Clusters::ZERO, |sum, range| sum + (range.end - range.start))
    }

    /// The runs in ascending order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        self.ranges.iter().map(|range| Run::new(range.start, range.end - range.start))
    }

    /// The clusters that another set does not have.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = self.clone();
        other.ranges.iter().for_each(|range| left.ranges.remove(range.clone()));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(ranges: &[(u64, u64)]) -> (RunSet, BTreeSet<u64>) {
        let (mut runs, mut model) = (RunSet::default(), BTreeSet::new());
        for (start, len) in ranges {
            runs.add(ClusterNr::new(*start), ClusterNr::new(start + len));
            model.extend(*start..start + len);
        }
        (runs, model)
    }

    fn members(runs: &RunSet) -> BTreeSet<u64> {
        runs.runs().flat_map(|run| run.start.get()..run.start.get() + run.len.get()).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            a in proptest::collection::vec((0..60u64, 0..12u64), 0..12),
            b in proptest::collection::vec((0..60u64, 0..12u64), 0..12),
        ) {
            let ((mut left, mut in_left), (right, in_right)) = (set(&a), set(&b));
            prop_assert_eq!(members(&left), in_left.clone());
            prop_assert_eq!(left.len().get(), in_left.len() as u64);
            let runs: Vec<_> = left.runs().collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].start), "{left:?}");
            let rest: BTreeSet<u64> = in_left.difference(&in_right).copied().collect();
            prop_assert_eq!(members(&left.without(&right)), rest);
            left.add_all(&right);
            in_left.extend(in_right);
            prop_assert_eq!(members(&left), in_left);
        }
    }
}
