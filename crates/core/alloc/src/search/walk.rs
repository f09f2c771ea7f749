//! The candidates of a pass, one after the other.
//!
//! A walk goes over the groups from the goal's to the last, then from the first to the one before the goal's,
//! whatever it asks of the index: near the goal and after it comes before "better". Under a class filter it
//! leaps by turns: the next unit of the class, the next group of the index from there, the next unit from
//! there, until both name the same place. So it costs a few tree walks, however many groups there are.
//! Without an index of classes (`-class-index`) it looks at the class of each group instead.
//!
//! A walk of the index has *patience*: after a number of candidates that failed it gives up, and the
//! request continues with the next pass. Without that, averages just below a length, which share an order
//! with those just above, could turn the walk into one over all groups. Half-way it goes up one order, where
//! every group has the length asked for. Busy groups cost no patience: they say nothing of those behind them,
//! and there are no more of them than threads.

use super::Plan;
use crate::criteria::{Candidates, Pass, Scan};
use crate::mechanism::Mechanism;
use crate::size_class::{Class, Stage};
use crate::state::{State, average_order};
use hectare_units::GroupNr;
use std::ops::Range;

/// Candidates of an index walk that may fail; below, the limit of leaps from class to index.
const PATIENCE: u32 = 128;
const LEAPS_MAX: u32 = 256;

/// How the next candidate is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// Every group.
    Linear,
    /// Largest chunk of at least this order.
    Largest(u32),
    /// Average run of at least this order.
    Average(u32),
    /// No group: no order is high enough.
    Nothing,
}

impl Lookup {
    /// Groups with a chunk of `len` clusters.
    pub(crate) fn chunk(len: u32, orders: u32) -> Self {
        match len.checked_next_power_of_two().map(u32::ilog2) {
            Some(order) if order < orders => Self::Largest(order),
            _ => Self::Nothing,
        }
    }

    /// Groups whose average run may have `len` clusters; in the orders above the one named, it does.
    pub(crate) fn average(len: u32, orders: u32) -> Self {
        Self::Average(average_order(len.max(1).ilog2(), orders))
    }

    /// Groups that may have a run of `len` clusters, none of those that do left out: a run of 2^(k+1) - 1
    /// holds an aligned chunk of order k wherever it lies.
    pub(crate) fn may_fit(len: u32, orders: u32) -> Self {
        Self::Largest((len.saturating_add(1).ilog2().saturating_sub(1)).min(orders - 1))
    }

    /// Its order.
    pub(crate) const fn order(self) -> u32 {
        match self {
            Self::Largest(order) | Self::Average(order) => order,
            Self::Linear | Self::Nothing => 0,
        }
    }

    /// The first group in a range, and the same among the untouched ones: there only the number of free
    /// clusters is known, and any that could have such a group is one. Where not even that is known yet, any
    /// group is.
    #[inline]
    fn next(self, state: &State, groups: Range<u32>, untouched: bool) -> Option<GroupNr> {
        let orders = state.config.orders();
        let (loaded, average) = match self {
            Self::Nothing => return None,
            Self::Linear => return (!groups.is_empty()).then(|| GroupNr::new(groups.start)),
            Self::Largest(order) => {
                (state.index.next_largest(order, groups.clone()), average_order(order, orders))
            }
            Self::Average(order) => (state.index.next_average(order, groups.clone()), order),
        };
        if !untouched || loaded.is_some_and(|group| group.get() == groups.start) {
            return loaded;
        }
        Self::next_untouched(state, average, groups, loaded)
    }

    /// The first group in a range before one that is loaded, which may have what is looked for, or else that.
    #[inline(never)]
    fn next_untouched(
        state: &State,
        average: u32,
        groups: Range<u32>,
        loaded: Option<GroupNr>,
    ) -> Option<GroupNr> {
        let up_to = |found: Option<GroupNr>| groups.start..found.map_or(groups.end, GroupNr::get);
        let known = state.untouched.next_average(average, up_to(loaded)).or(loaded);
        state.table.next_unread(up_to(known)).or(known)
    }
}

/// A walk over candidates.
pub(crate) struct Walk {
    /// What is left of both ranges.
    ranges: [Range<u32>; 2],
    lookup: Lookup,
    /// Candidates to be taken in order before the index is asked.
    linear_left: u32,
    patience: u32,
    /// Whether the walk may go up one order and did not yet.
    may_rise: bool,
    /// Groups passed over one by one for their class.
    passed_over: u32,
}

impl Walk {
    pub(crate) fn new(state: &State, plan: &Plan, pass: &Pass, lookup: Lookup) -> Self {
        let groups = state.layout.groups();
        let start = plan.group.get().min(groups);
        let linear_left = match lookup {
            Lookup::Linear | Lookup::Nothing => 0,
            _ => state.tunables.mb_max_linear_groups(),
        };
        let exact = matches!(pass.scan, Scan::Shortest | Scan::FromGoal);
        Self {
            ranges: [start..groups, 0..start],
            lookup,
            linear_left,
            // First fit and best fit are what they say, whatever it takes.
            patience: if lookup == Lookup::Linear || exact { u32::MAX } else { PATIENCE },
            passed_over: 0,
            may_rise: matches!(lookup, Lookup::Average(_)) && pass.candidates != Candidates::Highest,
        }
    }

    /// What is left of it, from the goal on and before it.
    pub(crate) fn left(&self) -> [Range<u32>; 2] {
        self.ranges.clone()
    }

    /// The order that the index is asked for.
    pub(crate) const fn order(&self) -> u32 {
        self.lookup.order()
    }

    /// The next candidate; of untouched groups only if `untouched`.
    pub(crate) fn next(
        &mut self,
        state: &State,
        class: Option<(Class, Stage)>,
        untouched: bool,
    ) -> Option<GroupNr> {
        loop {
            self.wear();
            let range = self.ranges.iter().position(|range| !range.is_empty())?;
            let left = self.ranges[range].clone();
            let lookup = if self.linear_left > 0 { Lookup::Linear } else { self.lookup };
            if self.patience == 0 {
                return None;
            }
            match self.find(state, left, lookup, class, untouched) {
                Some(group) => {
                    self.linear_left = self.linear_left.saturating_sub(1);
                    self.ranges[range].start = group.get() + 1;
                    return Some(group);
                }
                None => self.ranges[range] = 0..0,
            }
        }
    }

    /// How many groups were passed over for their class since this was asked last.
    pub(crate) fn passed_over(&mut self) -> u32 {
        std::mem::take(&mut self.passed_over)
    }

    /// The last candidate was busy, so nothing is known of its space.
    pub(crate) fn excuse(&mut self) {
        self.patience = self.patience.saturating_add(1);
    }

    /// Another candidate is requested, so the last one failed.
    fn wear(&mut self) {
        if self.patience == u32::MAX {
            return;
        }
        self.patience -= u32::from(self.patience > 0);
        if self.may_rise && self.patience <= PATIENCE / 2 {
            self.may_rise = false;
            if let Lookup::Average(order) = self.lookup {
                self.lookup = Lookup::Average(order + 1);
            }
        }
    }

    /// The first group of a range that both the lookup and the class name.
    fn find(
        &mut self,
        state: &State,
        groups: Range<u32>,
        lookup: Lookup,
        class: Option<(Class, Stage)>,
        untouched: bool,
    ) -> Option<GroupNr> {
        let (Some(classes), Some((class, stage))) = (&state.classes, class) else {
            return lookup.next(state, groups, untouched);
        };
        let mut from = groups.start;
        if !state.config.policy.has(Mechanism::ClassIndex) {
            // As btrfs does it: groups of other classes are passed over one by one.
            while let Some(group) = lookup.next(state, from..groups.end, untouched) {
                if classes.admits(group, class, stage) {
                    return Some(group);
                }
                self.passed_over += 1;
                from = group.get() + 1;
            }
            return None;
        }
        for _ in 0..LEAPS_MAX {
            let unit = classes.next(class, stage, from..groups.end)?;
            let group = lookup.next(state, unit.start..groups.end, untouched)?;
            if group.get() < unit.end {
                return Some(group);
            }
            from = group.get();
        }
        None
    }
}

#[cfg(all(test, not(any(feature = "shuttle", feature = "loom"))))]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_the_run_is_never_left_out_by_the_index() {
        for len in 1_u32..300 {
            let Lookup::Largest(order) = Lookup::may_fit(len, 14) else { panic!("not by chunks") };
            for start in 0_u32..64 {
                let chunk = start.next_multiple_of(1 << order);
                assert!(chunk + (1 << order) <= start + len, "a run of {len} at {start} has order {order}");
            }
        }
    }

    #[test]
    fn averages_above_the_order_named_are_long_enough() {
        for len in 1_u32..300 {
            let order = Lookup::average(len, 14).order();
            assert!(order == 0 || 1 << (order + 1) <= len);
            assert!(1 << (order + 2) >= len, "{len} {order}");
        }
        assert_eq!(Lookup::chunk(9, 14), Lookup::Largest(4));
        assert_eq!(Lookup::chunk(16385, 14), Lookup::Nothing);
    }
}
