//! The index of groups: which groups have a free chunk of at least some order, and which have free runs of
//! at least some order on average, found without a lock and without looking at the groups.
//!
//! For each order there are two hierarchical bitmaps over the groups ([`BitTree`], where the protocol is).
//! They are *cumulative*: a group's bit is set in the trees of all orders up to its own. So "a group with an
//! order of at least k" is one walk down one tree, whose cost is the depth of the tree; and a group that
//! changes order touches only the trees between the old order and the new one.
//!
//! Invariants: a group is in the trees as its last [`GroupIndex::update`] said; groups not loaded are in
//! none. Updates of one group are serialized by its lock; those of different groups may run in any order.
//!
//! Hazard: an answer is a hint. The group may have changed since, and during an update it may be in some
//! of the trees between two orders and not in others. Callers check under the group's lock.
//!
//! Memory: 28 trees over 3*10^7 groups span 108 MB of address space, which the system backs page by page as
//! groups are loaded.
//!
//! What it is not: a count of free space, or a promise about it.

mod tree;

pub(crate) use tree::{BitTree, Words};

use crate::stats::OrderCounts;
use hectare_units::{GroupNr, usize_of};
use std::ops::Range;

/// The orders of one group as the index knows them; `None`: the group is not in that part of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Orders {
    /// The highest order with a free chunk.
    pub(crate) largest: Option<u32>,
    /// The order of the average free run.
    pub(crate) average: Option<u32>,
}

/// The groups by their orders.
pub(crate) struct GroupIndex {
    largest: Vec<BitTree>,
    average: Vec<BitTree>,
}

/// Moves a group between the trees of one kind. A rise starts at the bottom and a fall at the top, so that
/// at every moment the group is in the trees up to some order.
fn shift(trees: &[BitTree], group: u32, from: Option<u32>, to: Option<u32>) {
    let trees_of = |order: Option<u32>| order.map_or(0, |order| (usize_of(order) + 1).min(trees.len()));
    let (from, to) = (trees_of(from), trees_of(to));
    for tree in trees.iter().take(to).skip(from) {
        tree.set(group);
    }
    for tree in trees.iter().take(from).skip(to).rev() {
        tree.clear(group);
    }
}

/// The first group of a range in the tree of an order.
fn first(trees: &[BitTree], order: u32, groups: Range<u32>) -> Option<GroupNr> {
    trees.get(usize_of(order))?.next_before(groups.start, groups.end).map(GroupNr::new)
}

/// The highest order whose tree is not empty.
fn highest(trees: &[BitTree]) -> Option<u32> {
    trees.iter().rposition(|tree| tree.next(0).is_some()).and_then(|order| u32::try_from(order).ok())
}

/// Groups of each order, from trees that count those of at least each order.
fn counts(trees: &[BitTree]) -> Vec<u32> {
    let mut counts: Vec<u32> = trees.iter().map(BitTree::count).collect();
    for order in 1..counts.len() {
        // While updates run, a tree may have got a group that the one below it had not when it was counted.
        counts[order - 1] = counts[order - 1].saturating_sub(counts[order]);
    }
    counts
}

impl GroupIndex {
    /// An index of `groups` groups whose chunks have `orders` orders; no group is in it yet.
    pub(crate) fn new(groups: u32, orders: u32) -> Self {
        let trees = || (0..orders).map(|_| BitTree::new(groups, false)).collect();
        Self { largest: trees(), average: trees() }
    }

    /// Moves a group from the orders it was last given to others. Called under the group's lock. Orders the
    /// index does not have count as its highest.
    ///
    /// # Panics
    /// If there is no such group.
    pub(crate) fn update(&self, group: GroupNr, from: Orders, to: Orders) {
        if from.largest != to.largest {
            shift(&self.largest, group.get(), from.largest, to.largest);
        }
        if from.average != to.average {
            shift(&self.average, group.get(), from.average, to.average);
        }
    }

    /// The first group in `groups` whose largest free chunk has an order of at least `order`.
    pub(crate) fn next_largest(&self, order: u32, groups: Range<u32>) -> Option<GroupNr> {
        first(&self.largest, order, groups)
    }

    /// The first group in `groups` whose free runs have an order of at least `order` on average.
    pub(crate) fn next_average(&self, order: u32, groups: Range<u32>) -> Option<GroupNr> {
        first(&self.average, order, groups)
    }

    /// The highest order that the largest free chunk of any group has.
    pub(crate) fn highest_largest(&self) -> Option<u32> {
        highest(&self.largest)
    }

    /// The highest order that the average free run of any group has.
    pub(crate) fn highest_average(&self) -> Option<u32> {
        highest(&self.average)
    }

    /// The number of groups of each order. Looks at the whole index.
    pub(crate) fn counts(&self) -> OrderCounts {
        OrderCounts { largest: counts(&self.largest), average: counts(&self.average) }
    }
}

#[cfg(test)]
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn orders() -> impl Strategy<Value = Option<u32>> {
        proptest::option::of(0..6_u32)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn lookups_agree_with_a_list_of_orders(
            changes in proptest::collection::vec((0..1500_u32, orders(), orders()), 1..120),
            lookups in proptest::collection::vec((0..7_u32, 0..1600_u32, 0..1600_u32), 1..60),
        ) {
            let index = GroupIndex::new(1500, 6);
            let mut model = vec![Orders::default(); 1500];
            for (group, largest, average) in changes {
                let to = Orders { largest, average };
                index.update(GroupNr::new(group), model[usize_of(group)], to);
                model[usize_of(group)] = to;
            }
            let at_least = |order: u32, of: fn(&Orders) -> Option<u32>, groups: Range<u32>| {
                groups.take_while(|group| *group < 1500)
                    .find(|group| of(&model[usize_of(*group)]) >= Some(order)).map(GroupNr::new)
            };
            for (order, start, end) in lookups {
                let largest = at_least(order, |o| o.largest, start..end);
                prop_assert_eq!(index.next_largest(order, start..end), largest);
                let average = at_least(order, |o| o.average, start..end);
                prop_assert_eq!(index.next_average(order, start..end), average);
            }
            prop_assert_eq!(index.highest_largest(), model.iter().filter_map(|o| o.largest).max());
            prop_assert_eq!(index.highest_average(), model.iter().filter_map(|o| o.average).max());
            let counts = index.counts();
            for order in 0..6 {
                let of = |f: fn(&Orders) -> Option<u32>| model.iter().filter(|o| f(o) == Some(order)).count();
                prop_assert_eq!(usize_of(counts.largest[usize_of(order)]), of(|o| o.largest));
                prop_assert_eq!(usize_of(counts.average[usize_of(order)]), of(|o| o.average));
            }
        }
    }

    #[test]
    fn a_volume_without_groups_has_no_group_to_offer() {
        let index = GroupIndex::new(0, 14);
        assert_eq!(index.next_largest(0, 0..u32::MAX), None);
        assert_eq!(index.highest_average(), None);
    }
}
