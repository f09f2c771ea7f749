//! One group in memory: its in-use bitmap, and what of it is reserved or being freed.
//!
//! A [`Slot`] exists for every group of the volume and is all that an untouched group costs; the [`Group`]
//! behind it exists from the first touch until it is evicted. The two numbers beside the lock are written
//! under it and read without it, to pass over groups that can't serve a request; they are advice, and what
//! counts is looked at again under the lock.

use crate::bits::{self, Found};
use crate::ranges::RangeSet;
use crate::sync::{AtomicU32, Mutex};
use hectare_units::TxnId;
use std::ops::Range;

/// What every group costs, touched or not.
pub(crate) struct Slot {
    pub(crate) group: Mutex<Option<Box<Group>>>,
    /// Free clusters in memory: as announced until the group is loaded, exact from then on.
    pub(crate) free: AtomicU32,
    /// No free run of the group is longer than this.
    pub(crate) longest: AtomicU32,
}

// A million groups, 24 MB.
const _: () = assert!(size_of::<Slot>() <= 24);

impl Slot {
    /// The slot of a group that announces `free` free clusters of `len`.
    pub(crate) fn new(free: u32, len: u32) -> Self {
        Self { group: Mutex::new(None), free: AtomicU32::new(free), longest: AtomicU32::new(free.min(len)) }
    }
}

/// How a group in memory stands to its bitmap in the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// The source has it as it is here.
    Clean,
    /// Changed since it was last rendered; it is on the list of dirty groups.
    Dirty,
    /// Rendered for this transaction, which may not be committed yet, and unchanged since.
    Rendered(TxnId),
}

/// A loaded group.
pub(crate) struct Group {
    used: Box<[u64]>,
    len: u32,
    free: u32,
    reserved: RangeSet,
    /// What each transaction freed; at most the running and the committing one are here.
    pending: Vec<(TxnId, RangeSet)>,
    pub(crate) home: Home,
}

impl Group {
    /// A group of `len` clusters from the words of its durable bitmap. Words that are missing count as used,
    /// bits beyond the end are ignored.
    pub(crate) fn new(mut words: Vec<u64>, len: u32) -> Self {
        words.resize(bits::words_for(len), u64::MAX);
        let mut used = words.into_boxed_slice();
        bits::set(&mut used, &(len..len.next_multiple_of(64)));
        let free = len - bits::count(&used, &(0..len));
        Self { used, len, free, reserved: RangeSet::default(), pending: Vec::new(), home: Home::Clean }
    }

    /// Clusters free in memory.
    pub(crate) const fn free(&self) -> u32 {
        self.free
    }

    /// Whether the source could give the group back just as it is.
    pub(crate) fn is_idle(&self) -> bool {
        let clean = self.home == Home::Clean;
        debug_assert!(!clean || self.pending.is_empty(), "a group with pending frees is not clean");
        clean && self.reserved.len() == 0
    }

    /// `want` free clusters at `from` if they are free there, else the first such run after it, else the
    /// first one of the group, else the longest run of the group.
    pub(crate) fn find(&self, from: u32, want: u32) -> Found {
        match bits::find_clear(&self.used, from..self.len, want) {
            Found::Longest(_) if from > 0 => bits::find_clear(&self.used, 0..self.len, want),
            found => found,
        }
    }

    /// Free -> reserved.
    pub(crate) fn reserve(&mut self, range: Range<u32>) {
        debug_assert_eq!(bits::count(&self.used, &range), 0, "clusters {range:?} of a group are free");
        bits::set(&mut self.used, &range);
        self.free -= range.end - range.start;
        self.reserved.insert(range);
    }

    /// Reserved -> free.
    pub(crate) fn unreserve(&mut self, range: &Range<u32>) {
        self.reserved.remove(range);
        self.clear(range);
    }

    /// Reserved -> used.
    pub(crate) fn publish(&mut self, range: &Range<u32>) {
        self.reserved.remove(range);
    }

    /// Used -> pending, for a range that [`first_not_used`](Self::first_not_used) finds nothing in.
    pub(crate) fn free_in(&mut self, txn: TxnId, range: Range<u32>) {
        match self.pending.iter_mut().find(|(id, _)| *id == txn) {
            Some((_, ranges)) => ranges.insert(range),
            None => {
                let mut ranges = RangeSet::default();
                ranges.insert(range);
                self.pending.push((txn, ranges));
            }
        }
    }

    /// Pending -> free, for all transactions up to `txn`. Returns what became free.
    pub(crate) fn release(&mut self, txn: TxnId) -> Vec<Range<u32>> {
        let mut released = Vec::new();
        let done = self.pending.extract_if(.., |(id, _)| !id.is_after(txn));
        for (_, ranges) in done {
            released.extend(ranges.iter().cloned());
        }
        for range in &released {
            self.clear(range);
        }
        released
    }

    /// Free -> used, without a reservation. Returns how many clusters were free.
    pub(crate) fn mark_used(&mut self, range: &Range<u32>) -> u32 {
        let fresh = self.free_in_range(range);
        bits::set(&mut self.used, range);
        self.free -= fresh;
        fresh
    }

    /// How many clusters of a range are free.
    pub(crate) fn free_in_range(&self, range: &Range<u32>) -> u32 {
        range.end - range.start - bits::count(&self.used, range)
    }

    fn clear(&mut self, range: &Range<u32>) {
        debug_assert_eq!(bits::count(&self.used, range), range.end - range.start);
        bits::clear(&mut self.used, range);
        self.free += range.end - range.start;
    }

    /// The first cluster of a range that is reserved or pending.
    pub(crate) fn first_in_flight(&self, range: &Range<u32>) -> Option<u32> {
        let pending = self.pending.iter().filter_map(|(_, ranges)| ranges.first_in(range));
        pending.chain(self.reserved.first_in(range)).min()
    }

    /// The first cluster of a range that is not used: free, reserved or pending.
    pub(crate) fn first_not_used(&self, range: &Range<u32>) -> Option<u32> {
        let free = bits::first_clear(&self.used, range);
        free.into_iter().chain(self.first_in_flight(range)).min()
    }

    /// The length of the free run that contains `range`.
    pub(crate) fn run_around(&self, range: &Range<u32>) -> u32 {
        let start = bits::last_set(&self.used, range.start).map_or(0, |at| at + 1);
        let end = bits::first_set(&self.used, &(range.end..self.len)).unwrap_or(self.len);
        end - start
    }

    pub(crate) fn run_from(&self, at: u32, want: u32) -> u32 {
        let limit = at.saturating_add(want).min(self.len);
        bits::first_set(&self.used, &(at..limit)).unwrap_or(limit) - at
    }

    /// The durable bitmap, and how many of its clusters are free.
    pub(crate) fn render(&self, words: &mut Vec<u64>) -> u32 {
        words.clear();
        words.extend_from_slice(&self.used);
        let mut free = self.free;
        for ranges in self.pending.iter().map(|(_, ranges)| ranges).chain([&self.reserved]) {
            free += ranges.len();
            for range in ranges.iter() {
                bits::clear(words, range);
            }
        }
        free
    }

    /// Free clusters of the durable bitmap that are reserved or pending, and so not free in memory.
    #[cfg(test)]
    fn in_flight(&self) -> u32 {
        self.reserved.len() + self.pending.iter().map(|(_, ranges)| ranges.len()).sum::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_beyond_the_end_are_never_free() {
        let group = Group::new(vec![0; 2], 100);
        assert_eq!(group.free(), 100);
        assert_eq!(group.find(0, 101), Found::Longest(0..100));
        assert_eq!(Group::new(vec![0], 100).free(), 64, "a missing word is used");
    }

    #[test]
    fn a_freed_run_waits_for_its_transaction() {
        let mut group = Group::new(vec![u64::MAX], 64);
        let [first, second] = [1, 2].map(TxnId::new);
        group.free_in(first, 0..8);
        group.free_in(second, 8..12);
        assert_eq!((group.free(), group.in_flight()), (0, 12));
        assert_eq!(group.first_not_used(&(6..20)), Some(6));
        assert_eq!(group.release(first), vec![0..8_u32; 1]);
        assert_eq!((group.free(), group.in_flight()), (8, 4));
        let mut words = Vec::new();
        assert_eq!(group.render(&mut words), 12);
        assert_eq!(words, [u64::MAX << 12]);
    }

    #[test]
    fn the_search_starts_at_the_goal_and_wraps() {
        let mut group = Group::new(vec![0; 2], 128);
        group.reserve(40..50);
        assert_eq!(group.find(10, 30), Found::Whole(10..40));
        assert_eq!(group.find(20, 30), Found::Whole(50..80));
        assert_eq!(group.find(110, 30), Found::Whole(0..30));
        assert_eq!(group.find(110, 100), Found::Longest(50..128));
    }
}
