//! A loaded group under its lock, and every change that can be made to it.
//!
//! Each change leaves the group, its slot, the index, the class of its unit and the volume's counters
//! consistent. Leaves of the lock order: the lists of dirty groups and of discards, and the classes'.

use crate::budget::Purse;
use crate::group::{Group, Home};
use crate::group_info::{Slot, State};
use crate::reservation::Reservation;
use crate::share::Share;
use crate::size_class::{Class, Stage};
use crate::sync::{MutexGuard, Ordering};
use hectare_units::{GroupNr, TxnId};
use std::ops::Range;

/// A loaded group under its lock.
pub(crate) struct Held<'a> {
    space: &'a Share,
    nr: GroupNr,
    slot: &'a Slot,
    guard: MutexGuard<'a, Option<Box<Group>>>,
}

/// How an attempt to take a run ended.
pub(crate) enum Taken {
    /// The run, or the part of it that could be paid.
    Done(Reservation),
    /// Not even the least length could be paid.
    CantPay,
    /// The unit has got another class meanwhile.
    WrongClass,
}

impl<'a> Held<'a> {
    /// `guard` is the lock of group `nr`, in its slot, and the group is loaded.
    pub(crate) fn new(
        space: &'a Share,
        nr: GroupNr,
        slot: &'a Slot,
        guard: MutexGuard<'a, Option<Box<Group>>>,
    ) -> Self {
        debug_assert!(guard.is_some(), "group {nr} is in memory");
        Self { space, nr, slot, guard }
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

    /// Brings the slot and the index up to date with the group.
    pub(crate) fn note(&mut self) {
        let (slot, buddy) = (self.slot, self.group().buddy());
        slot.set_space(buddy.free(), buddy.fragments());
        let (from, to) = (slot.state(), self.group().state());
        if from != to {
            self.space.index.update(self.nr, from.orders, to.orders);
            slot.set_state(from, to);
        }
    }

    /// No free run is as long as `len`, as a scan has found.
    pub(crate) fn note_none_of(&self, len: u32) {
        let slot = self.slot;
        slot.set_longest(slot.longest().min(len.saturating_sub(1)));
    }

    /// Reserves the start of a free range, as much as the budget allows, for a request of `class` if it has
    /// one.
    pub(crate) fn take(
        &mut self,
        range: &Range<u32>,
        least: u32,
        purse: &mut Purse<'_>,
        class: Option<(Class, Stage)>,
    ) -> Taken {
        if let Some((class, stage)) = class
            && !self.enter(class, stage)
        {
            return Taken::WrongClass;
        }
        let most = u64::from(range.end - range.start);
        let Some(paid) = purse.pay(&self.space.counters, most, u64::from(least)) else {
            self.leave();
            return Taken::CantPay;
        };
        let paid = u32::try_from(paid).expect("no more is paid than the range is long");
        let range = range.start..range.start + paid;
        self.group_mut().reserve(range.clone());
        self.note();
        Taken::Done(Reservation::new(self.space.clone(), self.nr, range))
    }

    /// Makes sure that the group's unit is one for this class. For the order see `size_class`.
    fn enter(&self, class: Class, stage: Stage) -> bool {
        let Some(classes) = &self.space.classes else { return true };
        let (slot, state) = (self.slot, self.slot.state());
        if state.whole {
            slot.set_state(state, State { whole: false, ..state });
        }
        let entered = classes.enter(self.nr, class, stage == Stage::Any);
        if !entered {
            self.leave();
        }
        entered
    }

    /// Nothing was taken after all.
    fn leave(&self) {
        let (slot, from) = (self.slot, self.slot.state());
        let to = State { whole: self.group().is_whole(), ..from };
        if from != to {
            slot.set_state(from, to);
            self.unset_class();
        }
    }

    /// If the group has nothing in use now, its unit may have none either.
    fn unset_class(&self) {
        if let Some(classes) = &self.space.classes
            && self.group().is_whole()
        {
            classes.became_whole(self.nr, &**self.space);
        }
    }

    /// Reserved -> free.
    pub(crate) fn give_back(&mut self, range: &Range<u32>) {
        self.space.moves.begin();
        self.group_mut().unreserve(range);
        self.note_freed(range);
        self.note();
        self.unset_class();
        self.space.counters.give_back(u64::from(range.end - range.start));
        self.space.moves.complete();
    }

    /// Reserved -> used.
    pub(crate) fn publish(&mut self, range: &Range<u32>) {
        self.group_mut().publish(range);
        self.mark_dirty();
        self.space.counters.publish(u64::from(range.end - range.start));
    }

    /// Used -> pending. The range holds used clusters only.
    pub(crate) fn free(&mut self, txn: TxnId, range: Range<u32>) {
        let len = u64::from(range.end - range.start);
        self.group_mut().free_in(txn, range);
        self.mark_dirty();
        self.space.counters.free(len);
    }

    /// The durable bitmap for transaction `txn`, and its free clusters.
    pub(crate) fn render(&mut self, txn: TxnId, words: &mut Vec<u64>) -> u32 {
        let group = self.group_mut();
        group.home = Home::Rendered(txn);
        group.render(words)
    }

    /// Pending -> free for all transactions up to `txn`; what was rendered for them is now in the source.
    pub(crate) fn committed(&mut self, txn: TxnId) {
        self.space.moves.begin();
        let released = self.group_mut().release(txn);
        for range in &released {
            self.note_freed(range);
        }
        self.note();
        if !released.is_empty() {
            self.unset_class();
        }
        let clusters = released.iter().map(|range| u64::from(range.end - range.start)).sum();
        self.space.counters.release(clusters);
        self.space.moves.complete();
        if self.space.discarding.load(Ordering::Relaxed) {
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
                self.space.discards.lock().push(self.nr);
            }
        }
    }

    /// Free -> used without a reservation; `false` if that many are not available.
    pub(crate) fn mark_used(&mut self, range: &Range<u32>) -> bool {
        let fresh = u64::from(self.group().free_in_range(range));
        if fresh == 0 {
            return true;
        }
        if self.space.counters.take(fresh, fresh, 0).is_none() {
            return false;
        }
        self.group_mut().mark_used(range);
        self.note();
        self.mark_dirty();
        self.space.counters.publish(fresh);
        true
    }

    /// A range became free: perhaps the longest run has grown.
    fn note_freed(&self, range: &Range<u32>) {
        let (slot, group) = (self.slot, self.group());
        let bound = slot.longest();
        // A bound that covers all free clusters covers any run of them: no need to measure.
        if bound < group.free() {
            slot.set_longest(bound.max(group.run_around(range)));
        }
    }

    fn mark_dirty(&mut self) {
        let group = self.group_mut();
        if group.home != Home::Dirty {
            group.home = Home::Dirty;
            self.space.dirty.lock().push(self.nr);
            self.space.dirty_groups.fetch_add(1, Ordering::Relaxed);
        }
    }
}
