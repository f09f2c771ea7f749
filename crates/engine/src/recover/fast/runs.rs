//! A set of clusters, as runs that are as long as can be.

use hectare_alloc::Run;
use hectare_units::{ClusterNr, Clusters};
use std::collections::BTreeMap;

/// Clusters; disjoint runs that don't touch, by where they start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RunSet {
    ends: BTreeMap<ClusterNr, ClusterNr>,
}

impl RunSet {
    /// Adds the clusters from `start` to before `end`, whether some of them are in the set or not.
    pub(super) fn add(&mut self, mut start: ClusterNr, mut end: ClusterNr) {
        if start >= end {
            return;
        }
        // The last run that begins at or before the end, as long as it reaches the start.
        while let Some((first, behind)) = self.last_before(end).filter(|(_, behind)| *behind >= start) {
            self.ends.remove(&first);
            start = start.min(first);
            end = end.max(behind);
        }
        self.ends.insert(start, end);
    }

    fn last_before(&self, end: ClusterNr) -> Option<(ClusterNr, ClusterNr)> {
        self.ends.range(..=end).next_back().map(|(first, behind)| (*first, *behind))
    }

    /// Adds all clusters of another set.
    pub(super) fn add_all(&mut self, other: &Self) {
        other.ends.iter().for_each(|(start, end)| self.add(*start, *end));
    }

    /// How many clusters there are.
    pub(super) fn len(&self) -> Clusters {
        self.ends.iter().fold(Clusters::ZERO, |sum, (start, end)| sum + (*end - *start))
    }

    /// The runs in ascending order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        self.ends.iter().map(|(start, end)| Run::new(*start, *end - *start))
    }

    /// The clusters that another set does not have.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = Self::default();
        for (start, end) in &self.ends {
            let mut from = *start;
            let before = other.last_before(from).map_or(from, |(first, _)| first);
            for (first, behind) in other.ends.range(before..*end) {
                left.add(from, *first);
                from = from.max(*behind);
            }
            left.add(from, *end);
        }
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
            let ends: Vec<_> = left.ends.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{left:?}");
            let rest: BTreeSet<u64> = in_left.difference(&in_right).copied().collect();
            prop_assert_eq!(members(&left.without(&right)), rest);
            left.add_all(&right);
            in_left.extend(in_right);
            prop_assert_eq!(members(&left), in_left);
        }
    }
}
