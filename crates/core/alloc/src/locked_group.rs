//! A loaded group under its lock, and every change that can be made to it.
//!
//! Each change leaves the group, its info, the index, the class of its unit and the volume's counters
//! consistent. Leaves of the lock order: the lists of dirty groups and of discards, and the classes'.

#[cfg(all(test, not(any(feature = "shuttle", feature = "loom", feature = "virtual"))))]
mod tests;

use crate::budget::Budget;
use crate::group::{Group, Home};
use crate::group_info::{GroupInfo, GroupState};
use crate::share::Share;
use crate::size_class::{Class, Stage};
use crate::sync::{MutexGuard, Ordering};
use hectare_units::{GroupNr, TxnId};
use std::ops::Range;

/// A loaded group under its lock.
pub(crate) struct LockedGroup<'a> {
    state: &'a Share,
    nr: GroupNr,
    info: &'a GroupInfo,
    guard: MutexGuard<'a, Option<Box<Group>>>,
}

/// Why a run could not be taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// Not even the least length could be paid.
    CantPay,
    /// The unit has got another class meanwhile.
    WrongClass,
}

impl<'a> LockedGroup<'a> {
    /// Locks a group that is known to be in memory.
    #[inline]
    pub(crate) fn of(state: &'a Share, nr: GroupNr) -> Self {
        let info = state.info(nr);
        Self::new(state, nr, info, info.lock(&state.contention, &mut 0))
    }

    /// `guard` is the lock of group `nr`, in its info, and the group is loaded.
    pub(crate) fn new(
        state: &'a Share,
        nr: GroupNr,
        info: &'a GroupInfo,
        guard: MutexGuard<'a, Option<Box<Group>>>,
    ) -> Self {
        debug_assert!(guard.is_some(), "group {nr} is in memory");
        Self { state, nr, info, guard }
    }

    /// The reference to the volume's state that it was locked with.
    pub(crate) const fn share(&self) -> &'a Share {
        self.state
    }

    pub(crate) const fn nr(&self) -> GroupNr {
        self.nr
    }

    pub(crate) fn group(&self) -> &Group {
        self.guard.as_ref().expect("a group is not evicted while it is held or has work in flight")
    }

    pub(crate) fn group_mut(&mut self) -> &mut Group {
        self.guard.as_mut().expect("a group is not evicted while it is held or has work in flight")
    }

    /// Brings the group info and the index up to date with the group.
    fn refresh(&mut self) {
        let (info, buddy) = (self.info, self.group().buddy());
        info.set_space(buddy.free(), buddy.fragments());
        let (from, to) = (info.state(), GroupState::of(self.group()));
        if from != to {
            self.state.index.update(self.nr, from.orders, to.orders);
            info.set_state(from, to);
        }
    }

    /// No free run is as long as `len`, as a scan has found.
    pub(crate) fn note_none_of(&self, len: u32) {
        let info = self.info;
        info.set_longest(info.longest().min(len.saturating_sub(1)));
    }

    /// Free -> reserved: the start of a range, as much as the budget allows, for a request of `class` if it
    /// has one. The caller has to make a [`Reservation`](crate::Reservation) of what it returns.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        range: &Range<u32>,
        least: u32,
        budget: &mut Budget<'_>,
        class: Option<(Class, Stage)>,
    ) -> Result<Range<u32>, NotTaken> {
        if let Some((class, stage)) = class
            && !self.enter_class(class, stage)
        {
            return Err(NotTaken::WrongClass);
        }
        let most = u64::from(range.end - range.start);
        let Some(paid) = budget.pay(&self.state.counters, most, u64::from(least)) else {
            self.leave();
            return Err(NotTaken::CantPay);
        };
        let paid = u32::try_from(paid).expect("no more is paid than the range is long");
        let range = range.start..range.start + paid;
        self.group_mut().reserve(range.clone());
        self.refresh();
        Ok(range)
    }

    /// Makes sure that the group's unit is one for this class. For the order see `size_class`.
    fn enter_class(&self, class: Class, stage: Stage) -> bool {
        let Some(classes) = &self.state.classes else { return true };
        let (info, state) = (self.info, self.info.state());
        if state.whole {
            info.set_state(state, GroupState { whole: false, ..state });
        }
        let entered = classes.enter(self.nr, class, stage == Stage::Any);
        if !entered {
            self.leave();
        }
        entered
    }

    /// Nothing was taken after all.
    fn leave(&self) {
        let (info, from) = (self.info, self.info.state());
        let to = GroupState { whole: self.group().is_whole(), ..from };
        if from != to {
            info.set_state(from, to);
            self.unset_class();
        }
    }

    /// If the group has nothing in use now, its unit may have none either.
    fn unset_class(&self) {
        if let Some(classes) = &self.state.classes
            && self.group().is_whole()
        {
            classes.became_whole(self.nr, &**self.state);
        }
    }

    /// Reserved -> free.
    pub(crate) fn give_back(&mut self, range: &Range<u32>) {
        self.state.release_epoch.begin();
        self.group_mut().unreserve(range);
        self.note_freed(range);
        self.refresh();
        self.unset_class();
        self.state.counters.give_back(u64::from(range.end - range.start));
        self.state.release_epoch.complete();
    }

    /// Reserved -> used.
    pub(crate) fn publish(&mut self, range: &Range<u32>) {
        self.group_mut().publish(range);
        self.mark_dirty();
        self.state.counters.publish(u64::from(range.end - range.start));
    }

    /// Used -> pending. The range holds used clusters only.
    pub(crate) fn free(&mut self, txn: TxnId, range: Range<u32>) {
        let len = u64::from(range.end - range.start);
        self.group_mut().free_in(txn, range);
        self.mark_dirty();
        self.state.counters.free(len);
    }

    /// The durable bitmap for transaction `txn`, and its free clusters.
    pub(crate) fn render(&mut self, txn: TxnId, words: &mut Vec<u64>) -> u32 {
        let group = self.group_mut();
        group.home = Home::Rendered(txn);
        group.render(words)
    }

    /// Pending -> free for all transactions up to `txn`; what was rendered for them is now in the source.
    pub(crate) fn committed(&mut self, txn: TxnId) {
        self.state.release_epoch.begin();
        let released = self.group_mut().release(txn);
        for range in &released {
            self.note_freed(range);
        }
        self.refresh();
        if !released.is_empty() {
            self.unset_class();
        }
        let clusters = released.iter().map(|range| u64::from(range.end - range.start)).sum();
        self.state.counters.release(clusters);
        self.state.release_epoch.complete();
        if self.state.discarding.load(Ordering::Relaxed) {
            self.queue_discards(released);
        }
        if let Home::Rendered(id) = self.group().home
            && !id.is_after(txn)
        {
            self.group_mut().home = Home::Clean;
        }
    }

    /// Remembers free ranges as not discarded yet.
    fn queue_discards(&mut self, ranges: impl IntoIterator<Item = Range<u32>>) {
        for range in ranges {
            if self.group_mut().queue_discard(range) {
                self.state.discards.lock().push(self.nr);
            }
        }
    }

    /// Free -> used without a reservation; `false` if that many are not available.
    pub(crate) fn mark_used(&mut self, range: &Range<u32>) -> bool {
        let fresh = u64::from(self.group().free_in_range(range));
        if fresh == 0 {
            return true;
        }
        if self.state.counters.take(fresh, fresh, 0).is_none() {
            return false;
        }
        self.group_mut().mark_used(range);
        self.refresh();
        self.mark_dirty();
        self.state.counters.publish(fresh);
        true
    }

    /// A range became free: perhaps the longest run has grown.
    fn note_freed(&self, range: &Range<u32>) {
        let (info, group) = (self.info, self.group());
        let bound = info.longest();
        // A bound that covers all free clusters covers any run of them: no need to measure.
        if bound < group.free() {
            info.set_longest(bound.max(group.run_around(range)));
        }
    }

    fn mark_dirty(&mut self) {
        let group = self.group_mut();
        if group.home != Home::Dirty {
            group.home = Home::Dirty;
            self.state.dirty.lock().push(self.nr);
            self.state.dirty_groups.fetch_add(1, Ordering::Relaxed);
        }
    }
}
