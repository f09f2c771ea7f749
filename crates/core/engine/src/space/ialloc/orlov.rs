//! Orlov's rule for the placement of new directories.
//!
//! Directories that begin a tree spread over the volume, others stay with their parent as long as there is
//! room for their future content.
//!
//! Everything here is in flex groups and decided from counts alone, without locks, so that it can be tested
//! with numbers. The counts of a flex group not used yet may have to be read: no rule examines more than
//! [`LOOKED_MAX`]. A choice is a suggestion: when the inode is allocated, the flex group may be full.

use crate::stores::groups::flex::FlexCounts;
use hectare_units::usize_of;

/// Flex groups that a rule examines before it gives up, or takes the best so far: with a start that differs
/// each time, more would not spread directories any better.
const LOOKED_MAX: u32 = 256;

/// The volume, as far as placement needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Flex groups; at least one.
    pub(super) flexes: u32,
    /// Inodes of a full flex group.
    pub(super) inodes: u64,
    /// Clusters of a full flex group.
    pub(super) clusters: u64,
    /// Sums over all flex groups.
    pub(super) totals: Totals,
}

/// Sums over all flex groups.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Totals {
    pub(super) free_inodes: u64,
    pub(super) free_clusters: u64,
    pub(super) directories: u64,
}

impl Shape {
    fn average(&self, total: u64) -> u64 {
        total / u64::from(self.flexes)
    }

    /// The flex groups from one on and around, all or enough of them.
    fn from(&self, start: u32) -> impl Iterator<Item = u32> {
        let flexes = self.flexes;
        (start % flexes..flexes).chain(0..start % flexes).take(usize_of(LOOKED_MAX))
    }

    fn at_least_average(&self, counts: FlexCounts) -> bool {
        counts.free_inodes > 0
            && u64::from(counts.free_inodes) >= self.average(self.totals.free_inodes)
            && counts.free_clusters >= self.average(self.totals.free_clusters)
    }

    /// The flex group for a directory that begins a tree: of those with at least the average of free inodes
    /// and clusters the one with the fewest directories; the first one from `start` on among equals.
    pub(super) fn top_directory(&self, start: u32, counts: impl Fn(u32) -> FlexCounts) -> Option<u32> {
        let mut best: Option<(u32, u32)> = None;
        for flex in self.from(start) {
            let now = counts(flex);
            if self.at_least_average(now) && best.is_none_or(|(fewest, _)| now.directories < fewest) {
                best = Some((now.directories, flex));
            }
            if best.is_some_and(|(fewest, _)| fewest == 0) {
                break;
            }
        }
        best.map(|(_, flex)| flex)
    }

    /// Whether a flex group can take another directory of a tree that lives there: not when it has many more
    /// directories than others, or much less free space.
    fn can_take(&self, counts: FlexCounts) -> bool {
        let directories_max = self.average(self.totals.directories).saturating_add(self.inodes / 16);
        let inodes_min = self.average(self.totals.free_inodes).saturating_sub(self.inodes / 4).max(1);
        let clusters_min = self.average(self.totals.free_clusters).saturating_sub(self.clusters / 4);
        u64::from(counts.directories) < directories_max
            && u64::from(counts.free_inodes) >= inodes_min
            && counts.free_clusters >= clusters_min
    }

    /// The flex group for a directory inside a tree: the parent's, else the first one that can take it from
    /// `start` on.
    pub(super) fn subdirectory(
        &self,
        parent: u32,
        start: u32,
        counts: impl Fn(u32) -> FlexCounts,
    ) -> Option<u32> {
        std::iter::once(parent).chain(self.from(start)).find(|flex| self.can_take(counts(*flex)))
    }

    /// The flex group for a directory when no other rule found one: the first one from `start` on with at
    /// least the average of free inodes, else with any.
    pub(super) fn any(&self, start: u32, counts: impl Fn(u32) -> FlexCounts) -> Option<u32> {
        let average = self.average(self.totals.free_inodes).max(1);
        let has = |flex: u32, min: u64| u64::from(counts(flex).free_inodes) >= min;
        self.from(start)
            .find(|flex| has(*flex, average))
            .or_else(|| self.from(start).find(|flex| has(*flex, 1)))
    }
}

/// Groups to try for a file, one after the other: steps of 1, 2, 4, 8... from a place that differs between
/// directories of one group, so that they don't all overflow into the same next group.
pub(super) fn probes(groups: u32, group: u32, directory: u32) -> impl Iterator<Item = u32> {
    let groups = u64::from(groups.max(1));
    let start = (u64::from(group) + u64::from(directory)) % groups;
    let steps =
        std::iter::successors(Some(1u64), |step| Some(step << 1)).take_while(move |step| *step < groups);
    steps
        .scan(start, move |at, step| {
            *at = (*at + step) % groups;
            Some(*at)
        })
        .filter_map(|at| u32::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(free_inodes: u32, free_clusters: u64, directories: u32) -> FlexCounts {
        FlexCounts { free_inodes, free_clusters, directories }
    }

    fn shape(all: &[FlexCounts]) -> Shape {
        let sum = |of: fn(&FlexCounts) -> u64| all.iter().map(of).sum();
        Shape {
            flexes: u32::try_from(all.len()).unwrap(),
            inodes: 1600,
            clusters: 32_000,
            totals: Totals {
                free_inodes: sum(|flex| u64::from(flex.free_inodes)),
                free_clusters: sum(|flex| flex.free_clusters),
                directories: sum(|flex| u64::from(flex.directories)),
            },
        }
    }

    fn top(all: &[FlexCounts], start: u32) -> Option<u32> {
        shape(all).top_directory(start, |flex| all[flex as usize])
    }

    #[test]
    fn a_tree_begins_where_directories_are_fewest_and_room_is_average() {
        let mut all = vec![counts(1600, 32_000, 3); 5];
        assert_eq!(top(&all, 2), Some(2), "among equals the start");
        all[4].directories = 1;
        assert_eq!(top(&all, 2), Some(4));
        all[0].directories = 0;
        assert_eq!(top(&all, 2), Some(0), "around the end");
        all[0].free_inodes -= 100;
        assert_eq!(top(&all, 2), Some(4), "fewer inodes than the average");
        all[4].free_clusters -= 100;
        assert_eq!(top(&all, 2), Some(2), "fewer clusters than the average");
        assert_eq!(top(&[counts(0, 0, 0); 3], 0), None);
    }

    #[test]
    fn trees_spread_evenly_whatever_the_start() {
        let mut all = vec![counts(1600, 32_000, 0); 16];
        for n in 0..160u32 {
            let flex = top(&all, n.wrapping_mul(0x9e37_79b9) >> 7).unwrap();
            all[flex as usize].directories += 1;
        }
        assert!(all.iter().all(|flex| flex.directories == 10), "{all:?}");
    }

    #[test]
    fn not_all_of_a_big_volume_is_compared() {
        let looked = std::cell::Cell::new(0);
        let shape = Shape { flexes: 100_000, ..shape(&[counts(1600, 32_000, 5)]) };
        let found = shape.top_directory(99_990, |_| {
            looked.set(looked.get() + 1);
            counts(1600, 32_000, 5)
        });
        assert_eq!(found, Some(99_990));
        assert!(looked.get() <= LOOKED_MAX, "{looked:?}");
    }

    fn sub(all: &[FlexCounts], parent: u32) -> Option<u32> {
        shape(all).subdirectory(parent, parent, |flex| all[flex as usize])
    }

    #[test]
    fn a_directory_stays_with_its_parent_until_that_is_too_full() {
        let mut all = vec![counts(1600, 32_000, 0); 4];
        assert_eq!(sub(&all, 1), Some(1));
        // Room for 100 directories more than the average, which grows with them.
        all[1].directories = 133;
        assert_eq!(sub(&all, 1), Some(2));
        all[1].directories = 132;
        assert_eq!(sub(&all, 1), Some(1));
        // A quarter of the inodes less than the average is too few: the average is (4800 + x) / 4.
        all[1].free_inodes = 1067;
        assert_eq!(sub(&all, 1), Some(1));
        all[1].free_inodes = 1065;
        assert_eq!(sub(&all, 1), Some(2));
        all[1].free_inodes = 1600;
        all[1].free_clusters = 21_332;
        assert_eq!(sub(&all, 1), Some(2));
        all[2].free_inodes = 0;
        assert_eq!(sub(&all, 1), Some(3));
    }

    #[test]
    fn the_parents_flex_group_comes_before_the_one_remembered() {
        let all = [counts(1600, 32_000, 0); 4];
        let look = |flex: u32| all[flex as usize];
        assert_eq!(shape(&all).subdirectory(3, 1, look), Some(3));
    }

    #[test]
    fn when_nothing_suits_inodes_decide() {
        let all = [counts(0, 9, 0), counts(2, 0, 900), counts(30, 0, 900), counts(0, 0, 0)];
        let look = |flex: u32| all[flex as usize];
        assert_eq!(shape(&all).any(1, look), Some(2), "at least the average of 8");
        let all = [counts(0, 9, 0), counts(0, 0, 0), counts(0, 0, 0), counts(1, 0, 0)];
        assert_eq!(shape(&all).any(1, |flex| all[flex as usize]), Some(3));
        assert_eq!(shape(&all[..3]).any(1, |flex| all[flex as usize]), None);
    }

    #[test]
    fn probes_double_their_steps() {
        let all: Vec<u32> = probes(100, 3, 7).collect();
        assert_eq!(all, [11, 13, 17, 25, 41, 73, 37]);
        assert_eq!(probes(1, 0, 2).count(), 0);
        assert!(probes(u32::MAX, u32::MAX - 1, u32::MAX).all(|group| group < u32::MAX));
    }
}
