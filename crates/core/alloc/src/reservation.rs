//! Space as a value: a run that is reserved, and clusters that are claimed without a place.
//!
//! Both own their space: dropping them gives it back, so an error path needs no code. Neither borrows the
//! allocator, so both can be kept in long-lived structures and sent between threads.

use crate::budget::Budget;
use crate::layout::Run;
use crate::locked_group::{LockedGroup, NotTaken};
use crate::request::Transaction;
use crate::share::Share;
use crate::size_class::{Class, Stage};
use crate::sync::{Cost, charge};
use hectare_units::{Clusters, GroupNr, low32};
use std::fmt;
use std::ops::Range;

/// A contiguous run inside one group that no other request can get. In the durable bitmap it is free, until
/// it is [published](Self::publish). Dropping it gives the space back.
#[must_use = "dropping a reservation gives its space back"]
pub struct Reservation {
    state: Share,
    group: GroupNr,
    range: Range<u32>,
}

impl Reservation {
    const fn new(state: Share, group: GroupNr, range: Range<u32>) -> Self {
        Self { state, group, range }
    }

    /// Takes the start of a free range of a group, as much as the budget allows, for a request of `class` if
    /// it has one.
    pub(crate) fn take(
        group: &mut LockedGroup<'_>,
        range: &Range<u32>,
        least: u32,
        budget: &mut Budget<'_>,
        class: Option<(Class, Stage)>,
    ) -> Result<Self, NotTaken> {
        let range = group.reserve(range, least, budget, class)?;
        Ok(Self::new(group.share().clone(), group.nr(), range))
    }

    /// The clusters it holds.
    #[must_use]
    pub fn run(&self) -> Run {
        self.state.run(self.group, &self.range)
    }

    /// How many clusters it holds.
    #[must_use]
    pub fn len(&self) -> Clusters {
        Clusters::new(u64::from(self.range.end - self.range.start))
    }

    /// Whether it holds none (all were split off or given back).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The position in the group after the first `n` clusters, or the end if there are fewer.
    fn after(&self, n: Clusters) -> u32 {
        let n = n.min(self.len());
        self.range.start + low32(n.get())
    }

    /// Keeps the first `at` clusters and returns the others as a reservation of their own, which is empty if
    /// there are no others.
    pub fn split_off(&mut self, at: Clusters) -> Self {
        charge(Cost::Split, 1);
        let middle = self.after(at);
        let rest = middle..self.range.end;
        self.range.end = middle;
        Self::new(self.state.clone(), self.group, rest)
    }

    /// Keeps the first `n` clusters and gives the others back.
    pub fn shrink_to(&mut self, n: Clusters) {
        let middle = self.after(n);
        if middle < self.range.end {
            LockedGroup::of(&self.state, self.group).give_back(&(middle..self.range.end));
            self.range.end = middle;
        }
    }

    /// Makes the clusters used in the durable bitmap, as part of a transaction, and returns them.
    ///
    /// The data they are to hold must be written before: from here on metadata may point at them.
    pub fn publish(mut self, txn: &mut impl Transaction) -> Run {
        // The id itself is not needed: an open transaction keeps the commit from rendering half of a change.
        let _: &mut _ = txn;
        let run = self.run();
        if !self.is_empty() {
            LockedGroup::of(&self.state, self.group).publish(&self.range);
            self.range.end = self.range.start;
        }
        run
    }

    /// Publishes the first `n` clusters (all if there are fewer) and keeps the others. The same as splitting
    /// them off and publishing them, but cheaper: this is how a window is used up.
    pub fn publish_front(&mut self, n: Clusters, txn: &mut impl Transaction) -> Run {
        let _: &mut _ = txn;
        let middle = self.after(n);
        let front = self.range.start..middle;
        if !front.is_empty() {
            LockedGroup::of(&self.state, self.group).publish(&front);
            self.range.start = middle;
        }
        self.state.run(self.group, &front)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_empty() {
            LockedGroup::of(&self.state, self.group).give_back(&self.range);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservation").field(&self.run()).finish()
    }
}

/// Clusters that are promised but not placed: they can't be taken by others, and are turned into reservations
/// with [`Allocator::reserve_claimed`](crate::Allocator::reserve_claimed). Dropping it gives them back.
#[must_use = "dropping a claim gives its clusters back"]
pub struct Claim {
    state: Share,
    left: u64,
}

impl Claim {
    pub(crate) fn new(state: Share, left: u64) -> Self {
        Self { state, left }
    }

    /// Clusters still promised.
    #[must_use]
    pub const fn left(&self) -> Clusters {
        Clusters::new(self.left)
    }

    /// Makes the clusters of another claim on the same volume part of this one.
    pub fn absorb(&mut self, mut more: Self) {
        debug_assert!(std::ptr::eq(&*self.state, &*more.state), "both claims are on one volume");
        self.left += std::mem::take(&mut more.left);
    }

    /// Keeps `n` of the clusters and gives the others back.
    pub fn shrink_to(&mut self, n: Clusters) {
        let surplus = self.left.saturating_sub(n.get());
        self.left -= surplus;
        self.state.counters.unclaim(surplus);
    }

    pub(crate) fn left_mut(&mut self) -> &mut u64 {
        &mut self.left
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.state.counters.unclaim(self.left);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("left", &self.left).finish_non_exhaustive()
    }
}
