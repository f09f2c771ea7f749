//! The summary of a group that has been touched, loaded or not: a lock, and a few numbers that can be read
//! without it.
//!
//! The numbers are written under the lock and read without it, to pass over groups that can't serve a
//! request. They are hints, and are checked again under the lock, with one exception that the proof of "no
//! space" rests on: [`GroupInfo::longest`] is never below the length of the longest free run. A group that is
//! *set aside*, since it can't be loaded, has no run for a request.
//!
//! Not here: the class of a group, which belongs to a whole flex group (see `size_class`).

use crate::contention::Contention;
use crate::group::Group;
use crate::index::Orders;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

/// One group as all threads see it, on a cache line of its own: files that grow side by side often do so in
/// neighbouring groups.
#[repr(align(64))]
pub(crate) struct GroupInfo {
    pub(crate) group: Mutex<Option<Box<Group>>>,
    free: AtomicU32,
    fragments: AtomicU32,
    longest: AtomicU32,
    state: AtomicU32,
}

// A page of 64 groups, 4 KiB.
#[cfg(not(any(feature = "shuttle", feature = "loom")))]
const _: () = assert!(size_of::<GroupInfo>() <= 64);

/// The fragments of a group that is set aside: on average its runs have no length.
const SET_ASIDE: u32 = u32::MAX;

/// Bits of a group info's state word: the two orders, each plus one so that 0 is none, and two flags.
const AVERAGE_SHIFT: u32 = 8;
const ORDER_MASK: u32 = 0xff;
const WHOLE: u32 = 1 << 16;
const LOADED: u32 = 1 << 17;

/// The summary of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct GroupState {
    /// Its place in the index of loaded groups.
    pub(crate) orders: Orders,
    /// Nothing is in use but the volume's own metadata.
    pub(crate) whole: bool,
    /// The group is in memory.
    pub(crate) loaded: bool,
}

impl GroupState {
    /// That of a group in memory.
    pub(crate) fn of(group: &Group) -> Self {
        let buddy = group.buddy();
        let orders = Orders { largest: buddy.largest_order(), average: buddy.average_order() };
        Self { orders, whole: group.is_whole(), loaded: true }
    }

    fn pack(self) -> u32 {
        let order = |order: Option<u32>| order.map_or(0, |order| order + 1);
        let flag = |set, bit| if set { bit } else { 0 };
        order(self.orders.largest)
            | order(self.orders.average) << AVERAGE_SHIFT
            | flag(self.whole, WHOLE)
            | flag(self.loaded, LOADED)
    }

    fn unpack(word: u32) -> Self {
        let order = |shift: u32| (word >> shift & ORDER_MASK).checked_sub(1);
        Self {
            orders: Orders { largest: order(0), average: order(AVERAGE_SHIFT) },
            whole: word & WHOLE != 0,
            loaded: word & LOADED != 0,
        }
    }
}

impl GroupInfo {
    /// The info of a group that announces `free` free clusters of `len`.
    pub(crate) fn new(free: u32, len: u32, whole: bool) -> Self {
        let state = GroupState { whole, ..GroupState::default() };
        Self {
            group: Mutex::new(None),
            free: AtomicU32::new(free),
            fragments: AtomicU32::new(0),
            longest: AtomicU32::new(free.min(len)),
            state: AtomicU32::new(state.pack()),
        }
    }

    /// Whether the group's lock is held at this moment.
    pub(crate) fn is_locked(&self) -> bool {
        self.group.is_locked()
    }

    /// Locks the group, unless its lock is held.
    pub(crate) fn try_lock(&self, contention: &Contention) -> Option<MutexGuard<'_, Option<Box<Group>>>> {
        let place = self.group.try_lock()?;
        contention.got_at_once();
        Some(place)
    }

    /// Locks the group, waiting for it, and counts that if it had to wait.
    pub(crate) fn lock(
        &self,
        contention: &Contention,
        waits: &mut u32,
    ) -> MutexGuard<'_, Option<Box<Group>>> {
        self.try_lock(contention).unwrap_or_else(|| {
            contention.must_wait();
            *waits += 1;
            self.group.lock()
        })
    }

    /// Free clusters in memory: as announced until the group is loaded, exact from then on.
    pub(crate) fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// Mean length of the free runs, rounded down. Of a group that was never loaded the free clusters count
    /// as one run; 0 if nothing is free.
    pub(crate) fn average(&self) -> u32 {
        self.free() / self.fragments.load(Ordering::Relaxed).max(1)
    }

    /// Whether the group was never loaded (or has nothing free).
    pub(crate) fn is_new(&self) -> bool {
        self.fragments.load(Ordering::Relaxed) == 0
    }

    /// Whether the group could not be loaded when that was tried last.
    pub(crate) fn is_set_aside(&self) -> bool {
        self.fragments.load(Ordering::Relaxed) == SET_ASIDE
    }

    /// Under the lock: the group can't be loaded, so that it has nothing for a request. Its free clusters stay as
    /// announced, for when it can.
    pub(crate) fn set_aside(&self) {
        self.fragments.store(SET_ASIDE, Ordering::Relaxed);
        self.set_longest(0);
    }

    /// No free run of the group is longer than this.
    pub(crate) fn longest(&self) -> u32 {
        // A place in the one order of the counts that a refusal compares: see `search`.
        self.longest.load(Ordering::SeqCst)
    }

    /// What else is known. To be changed under the group's lock only.
    pub(crate) fn state(&self) -> GroupState {
        GroupState::unpack(self.state.load(Ordering::Relaxed))
    }

    /// Whether nothing is in use but the volume's own metadata, in the one order of `SeqCst`.
    pub(crate) fn is_whole(&self) -> bool {
        GroupState::unpack(self.state.load(Ordering::SeqCst)).whole
    }

    /// Under the lock: the free space has changed.
    pub(crate) fn set_space(&self, free: u32, fragments: u32) {
        self.free.store(free, Ordering::Relaxed);
        self.fragments.store(fragments, Ordering::Relaxed);
    }

    /// Under the lock.
    pub(crate) fn set_longest(&self, longest: u32) {
        self.longest.store(longest, Ordering::SeqCst);
    }

    /// Under the lock. What others rely on is the moment a group stops being whole.
    pub(crate) fn set_state(&self, from: GroupState, to: GroupState) {
        let order = if from.whole == to.whole { Ordering::Relaxed } else { Ordering::SeqCst };
        self.state.store(to.pack(), order);
    }
}

#[cfg(all(test, not(any(feature = "shuttle", feature = "loom"))))]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_word() {
        for largest in [None, Some(0), Some(17)] {
            for average in [None, Some(0), Some(17)] {
                for (whole, loaded) in [(false, true), (true, false)] {
                    let state = GroupState { orders: Orders { largest, average }, whole, loaded };
                    assert_eq!(GroupState::unpack(state.pack()), state);
                }
            }
        }
    }

    #[test]
    fn a_group_never_loaded_is_taken_for_one_run() {
        let info = GroupInfo::new(500, 400, false);
        assert_eq!((info.free(), info.average(), info.longest()), (500, 500, 400));
        info.set_space(90, 4);
        assert_eq!(info.average(), 22);
        info.set_aside();
        assert_eq!((info.free(), info.average(), info.longest()), (90, 0, 0));
    }
}
