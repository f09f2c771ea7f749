//! How the clusters of a volume are divided into groups.

use hectare_units::{ClusterNr, Clusters, GroupNr};
use std::ops::Range;

/// Clusters that lie next to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// The first cluster.
    pub start: ClusterNr,
    /// How many there are.
    pub len: Clusters,
}

impl Run {
    /// The `len` clusters from `start` on.
    #[must_use]
    pub const fn new(start: ClusterNr, len: Clusters) -> Self {
        Self { start, len }
    }

    /// The cluster after the last one.
    #[must_use]
    pub fn end(&self) -> ClusterNr {
        self.start + self.len
    }
}

/// The most clusters a group may have; keeps every position in a group, rounded up to a word, within 32 bits.
const GROUP_MAX: u32 = 1 << 31;

/// The shape of a volume: equal groups from cluster 0 on, the last one possibly shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    clusters_per_group: u32,
    total: Clusters,
    groups: u32,
}

impl Layout {
    /// A volume of `total` clusters in groups of `clusters_per_group`.
    ///
    /// `None` if a group would hold nothing or over 2^31 clusters, or if there would be more than 2^32 - 1
    /// groups.
    #[must_use]
    pub fn new(clusters_per_group: u32, total: Clusters) -> Option<Self> {
        if clusters_per_group == 0 || clusters_per_group > GROUP_MAX {
            return None;
        }
        let groups = u32::try_from(total.get().div_ceil(u64::from(clusters_per_group))).ok()?;
        Some(Self { clusters_per_group, total, groups })
    }

    /// Clusters in every group but the last.
    #[must_use]
    pub const fn clusters_per_group(&self) -> u32 {
        self.clusters_per_group
    }

    /// Clusters of the volume.
    #[must_use]
    pub const fn total(&self) -> Clusters {
        self.total
    }

    /// Number of groups.
    #[must_use]
    pub const fn groups(&self) -> u32 {
        self.groups
    }

    /// Clusters in one group; 0 for a group that does not exist.
    #[must_use]
    pub fn group_len(&self, group: GroupNr) -> u32 {
        let left = self.total.saturating_sub(Clusters::new(self.group_start(group).get())).get();
        u32::try_from(left).unwrap_or(u32::MAX).min(self.clusters_per_group)
    }

    /// The first cluster of a group.
    #[must_use]
    pub fn group_start(&self, group: GroupNr) -> ClusterNr {
        ClusterNr::new(u64::from(group.get()) * u64::from(self.clusters_per_group))
    }

    /// The group of a cluster and the position in it; `None` beyond the end.
    #[must_use]
    pub fn locate(&self, cluster: ClusterNr) -> Option<(GroupNr, u32)> {
        if cluster.get() >= self.total.get() {
            return None;
        }
        let per_group = u64::from(self.clusters_per_group);
        let group = u32::try_from(cluster.get() / per_group).ok()?;
        let at = u32::try_from(cluster.get() % per_group).ok()?;
        Some((GroupNr::new(group), at))
    }

    /// The cluster at a position of a group.
    pub(crate) fn cluster(&self, group: GroupNr, at: u32) -> ClusterNr {
        self.group_start(group) + Clusters::new(u64::from(at))
    }

    /// A run split at group boundaries; `None` if it reaches beyond the end of the volume.
    pub(crate) fn pieces(&self, run: Run) -> Option<impl Iterator<Item = (GroupNr, Range<u32>)> + use<>> {
        let end = run.start.checked_add(run.len).filter(|end| end.get() <= self.total.get())?;
        let layout = *self;
        let mut next = run.start;
        Some(std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let (group, at) = layout.locate(next)?;
            let left = u32::try_from((end - next).get()).unwrap_or(u32::MAX);
            let len = left.min(layout.group_len(group) - at);
            next += Clusters::new(u64::from(len));
            Some((group, at..at + len))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u64) -> Run {
        Run::new(ClusterNr::new(start), Clusters::new(len))
    }

    #[test]
    fn the_last_group_may_be_short() {
        let layout = Layout::new(100, Clusters::new(250)).unwrap();
        assert_eq!(layout.groups(), 3);
        assert_eq!(layout.group_len(GroupNr::new(1)), 100);
        assert_eq!(layout.group_len(GroupNr::new(2)), 50);
        assert_eq!(layout.group_len(GroupNr::new(3)), 0);
        assert_eq!(layout.locate(ClusterNr::new(249)), Some((GroupNr::new(2), 49)));
        assert_eq!(layout.locate(ClusterNr::new(250)), None);
    }

    #[test]
    fn runs_are_cut_at_group_boundaries() {
        let layout = Layout::new(100, Clusters::new(250)).unwrap();
        let pieces: Vec<_> = layout.pieces(run(90, 120)).unwrap().collect();
        assert_eq!(pieces, [(GroupNr::new(0), 90..100), (GroupNr::new(1), 0..100), (GroupNr::new(2), 0..10)]);
        assert_eq!(layout.pieces(run(250, 0)).unwrap().count(), 0);
        assert!(layout.pieces(run(249, 2)).is_none());
        assert!(layout.pieces(run(u64::MAX, 2)).is_none());
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert!(Layout::new(0, Clusters::new(1)).is_none());
        assert!(Layout::new(1, Clusters::new(1 << 33)).is_none());
        assert!(Layout::new(GROUP_MAX + 1, Clusters::new(1)).is_none());
    }
}
