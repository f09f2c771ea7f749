//! The groups and counters that an allocator, its reservations and its claims share.
//!
//! Every change of a group goes through [`Held`], which keeps the slot's two numbers, the volume's counters
//! and the list of dirty groups in step with the bitmap. Nothing here loads a bitmap: what a reservation or a
//! commit touches is in memory already, and stays there until it is done.

use crate::bits::Found;
use crate::counters::Counters;
use crate::group::{Group, Home, Slot};
use crate::layout::{Layout, Run};
use crate::reservation::Reservation;
use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use hectare_units::{Clusters, GroupNr, TxnId};
use std::ops::Range;

/// State shared by everything that holds space of one volume.
pub(crate) struct Space {
    pub(crate) layout: Layout,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) counters: Counters,
    /// Groups changed since they were last rendered, each once.
    pub(crate) dirty: Mutex<Vec<GroupNr>>,
    /// Groups rendered for transactions that have not committed yet.
    pub(crate) rendered: Mutex<Vec<(TxnId, Vec<GroupNr>)>>,
    /// Counts the times space became free, so that a search that found nothing knows whether to look again.
    pub(crate) given_back: AtomicU64,
    /// Groups in memory.
    pub(crate) loaded: AtomicU32,
}

/// Who pays for a run: the available clusters above a floor, or a claim made earlier.
pub(crate) enum Purse<'a> {
    /// Available clusters, leaving `floor` of them.
    Available {
        /// What must be left.
        floor: u64,
    },
    /// The clusters left in a claim.
    Claimed(&'a mut u64),
}

impl Purse<'_> {
    /// What could be paid now.
    pub(crate) fn holds(&self, counters: &Counters) -> u64 {
        match self {
            Self::Available { floor } => counters.spendable(*floor),
            Self::Claimed(left) => **left,
        }
    }

    /// Pays for up to `most` clusters but no fewer than `least`.
    fn pay(&mut self, counters: &Counters, most: u64, least: u64) -> Option<u64> {
        match self {
            Self::Available { floor } => counters.take(most, least, *floor),
            Self::Claimed(left) => {
                let paid = most.min(**left);
                if paid < least {
                    return None;
                }
                **left -= paid;
                counters.spend_claim(paid);
                Some(paid)
            }
        }
    }
}

impl Space {
    pub(crate) fn slot(&self, group: GroupNr) -> &Slot {
        &self.slots[group.index()]
    }

    /// Locks a group that is known to be in memory.
    pub(crate) fn hold(self: &Arc<Self>, group: GroupNr) -> Held<'_> {
        Held::new(self, group, self.slot(group).group.lock())
    }

    /// The clusters of a group as a run of the volume.
    pub(crate) fn run(&self, group: GroupNr, range: &Range<u32>) -> Run {
        let len = Clusters::new(u64::from(range.end - range.start));
        Run::new(self.layout.cluster(group, range.start), len)
    }
}

/// A loaded group under its lock.
pub(crate) struct Held<'a> {
    space: &'a Arc<Space>,
    nr: GroupNr,
    guard: MutexGuard<'a, Option<Box<Group>>>,
}

impl<'a> Held<'a> {
    /// `guard` is the lock of group `nr`, and the group is loaded.
    pub(crate) fn new(space: &'a Arc<Space>, nr: GroupNr, guard: MutexGuard<'a, Option<Box<Group>>>) -> Self {
        debug_assert!(guard.is_some(), "group {nr} is in memory");
        Self { space, nr, guard }
    }

    pub(crate) fn group(&mut self) -> &mut Group {
        self.guard.as_mut().expect("a group is not evicted while it is held or has work in flight")
    }

    fn slot(&self) -> &'a Slot {
        self.space.slot(self.nr)
    }

    /// Publishes the group's free count to those who look without the lock.
    fn note_free(&mut self) {
        let free = self.group().free();
        self.slot().free.store(free, Ordering::Relaxed);
    }

    /// Looks for a run as [`Group::find`] does, and remembers the longest one if that is too short.
    pub(crate) fn find(&mut self, from: u32, want: u32) -> Found {
        let found = self.group().find(from, want);
        if let Found::Longest(range) = &found {
            self.slot().longest.store(range.end - range.start, Ordering::Relaxed);
        }
        found
    }

    /// Reserves the start of a free range, as much as the purse pays for; `None` if that is under `least`.
    pub(crate) fn take(
        &mut self,
        range: &Range<u32>,
        least: u32,
        purse: &mut Purse<'_>,
    ) -> Option<Reservation> {
        let most = u64::from(range.end - range.start);
        let paid = purse.pay(&self.space.counters, most, u64::from(least))?;
        let paid = u32::try_from(paid).expect("no more is paid than the range is long");
        let range = range.start..range.start + paid;
        self.group().reserve(range.clone());
        self.note_free();
        Some(Reservation::new(Arc::clone(self.space), self.nr, range))
    }

    /// Reserved -> free.
    pub(crate) fn give_back(&mut self, range: &Range<u32>) {
        // Counted before the bits change: see `Allocator::search`.
        self.space.given_back.fetch_add(1, Ordering::SeqCst);
        self.group().unreserve(range);
        self.note_freed(range);
        self.space.counters.give_back(u64::from(range.end - range.start));
    }

    /// Reserved -> used.
    pub(crate) fn publish(&mut self, range: &Range<u32>) {
        self.group().publish(range);
        self.mark_dirty();
        self.space.counters.publish(u64::from(range.end - range.start));
    }

    /// Used -> pending. The range holds used clusters only.
    pub(crate) fn free(&mut self, txn: TxnId, range: Range<u32>) {
        let len = u64::from(range.end - range.start);
        self.group().free_in(txn, range);
        self.mark_dirty();
        self.space.counters.free(len);
    }

    /// The durable bitmap for transaction `txn`, and its free clusters.
    pub(crate) fn render(&mut self, txn: TxnId, words: &mut Vec<u64>) -> u32 {
        let group = self.group();
        group.home = Home::Rendered(txn);
        group.render(words)
    }

    /// Pending -> free for all transactions up to `txn`; what was rendered for them is now in the source.
    pub(crate) fn committed(&mut self, txn: TxnId) {
        self.space.given_back.fetch_add(1, Ordering::SeqCst);
        let released = self.group().release(txn);
        for range in &released {
            self.note_freed(range);
            self.space.counters.release(u64::from(range.end - range.start));
        }
        if let Home::Rendered(id) = self.group().home
            && !id.is_after(txn)
        {
            self.group().home = Home::Clean;
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
        self.group().mark_used(range);
        self.note_free();
        self.mark_dirty();
        self.space.counters.publish(fresh);
        true
    }

    /// A range became free: the free count and perhaps the longest run have grown.
    fn note_freed(&mut self, range: &Range<u32>) {
        self.note_free();
        let longest = &self.slot().longest;
        let bound = longest.load(Ordering::Relaxed);
        // A bound that covers all free clusters covers any run of them: no need to measure.
        if bound < self.group().free() {
            longest.store(bound.max(self.group().run_around(range)), Ordering::Relaxed);
        }
    }

    fn mark_dirty(&mut self) {
        let group = self.group();
        if group.home != Home::Dirty {
            group.home = Home::Dirty;
            self.space.dirty.lock().push(self.nr);
        }
    }
}
