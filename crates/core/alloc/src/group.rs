//! One group in memory: its free space, and what of it is reserved or being freed.
//!
//! A [`GroupInfo`](crate::group_info::GroupInfo) exists for every group of the volume; the [`Group`] behind
//! it exists from the first touch until it is evicted. The in-use bitmap is the buddy's; the durable one is
//! rendered from it as in use - reserved - pending.
//!
//! Hazard: the ranges passed to the changes here must be in the state the change starts from; they come from
//! reservations and from checks under the same lock, and only debug builds check again.

use crate::bits;
use crate::buddy::Buddy;
use crate::ranges::RangeSet;
use crate::sync::{Cost, charge};
use hectare_units::TxnId;
use std::ops::Range;

/// How a group in memory stands to its bitmap in the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// The source has the same bitmap.
    Clean,
    /// Changed since it was last rendered; it is on the list of dirty groups.
    Dirty,
    /// Rendered for this transaction, which may not be committed yet, and unchanged since.
    Rendered(TxnId),
}

/// A loaded group.
pub(crate) struct Group {
    buddy: Buddy,
    reserved: RangeSet,
    /// What each transaction freed; at most the running and the committing one are here.
    pending: Vec<(TxnId, RangeSet)>,
    /// Free clusters that were in use once and whose contents are not discarded yet. Always empty where
    /// discarding is off.
    discards: RangeSet,
    /// Free clusters of the group when it holds nothing but the volume's own metadata.
    whole: u32,
    pub(crate) home: Home,
}

impl Group {
    /// A group from its durable bitmap. Of its clusters `own` are the volume's own metadata.
    pub(crate) fn new(buddy: Buddy, own: u32) -> Self {
        let whole = buddy.len().saturating_sub(own);
        Self {
            buddy,
            reserved: RangeSet::default(),
            pending: Vec::new(),
            discards: RangeSet::default(),
            whole,
            home: Home::Clean,
        }
    }

    /// Its free space, to be searched.
    pub(crate) const fn buddy(&self) -> &Buddy {
        &self.buddy
    }

    /// Clusters free in memory.
    pub(crate) const fn free(&self) -> u32 {
        self.buddy.free()
    }

    /// Whether nothing is in use but the volume's own metadata, reserved and pending clusters being in use.
    pub(crate) const fn is_whole(&self) -> bool {
        self.buddy.free() >= self.whole
    }

    /// Whether the source could give the group back just as it is.
    pub(crate) fn is_idle(&self) -> bool {
        let clean = self.home == Home::Clean;
        debug_assert!(!clean || self.pending.is_empty(), "a group with pending frees is not clean");
        clean && self.reserved.len() == 0 && self.discards.len() == 0
    }

    /// Free -> reserved.
    pub(crate) fn reserve(&mut self, range: Range<u32>) {
        self.buddy.take(&range);
        if self.discards.len() > 0 {
            self.discards.subtract(&range);
        }
        self.reserved.insert(range);
    }

    /// Reserved -> free.
    pub(crate) fn unreserve(&mut self, range: &Range<u32>) {
        self.reserved.remove(range);
        self.buddy.give(range);
    }

    /// Reserved -> used.
    pub(crate) fn publish(&mut self, range: &Range<u32>) {
        charge(Cost::Mark, 1);
        self.reserved.remove(range);
    }

    /// Used -> pending, for a range that [`first_not_used`](Self::first_not_used) finds nothing in.
    pub(crate) fn free_in(&mut self, txn: TxnId, range: Range<u32>) {
        charge(Cost::Mark, 1);
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
            self.buddy.give(range);
        }
        released
    }

    /// Free -> used, without a reservation. Returns how many clusters were free.
    pub(crate) fn mark_used(&mut self, range: &Range<u32>) -> u32 {
        let fresh = self.free_runs(range);
        for run in &fresh {
            self.buddy.take(run);
            if self.discards.len() > 0 {
                self.discards.subtract(run);
            }
        }
        fresh.iter().map(|run| run.end - run.start).sum()
    }

    /// How many clusters of a range are free.
    pub(crate) fn free_in_range(&self, range: &Range<u32>) -> u32 {
        range.end - range.start - bits::count(self.buddy.words(), range)
    }

    fn free_runs(&self, range: &Range<u32>) -> Vec<Range<u32>> {
        bits::clear_runs(self.buddy.words(), range.clone()).collect()
    }

    /// The first cluster of a range that is reserved or pending.
    pub(crate) fn first_in_flight(&self, range: &Range<u32>) -> Option<u32> {
        let pending = self.pending.iter().filter_map(|(_, ranges)| ranges.first_in(range));
        pending.chain(self.reserved.first_in(range)).min()
    }

    /// The first cluster of a range that is not used: free, reserved or pending.
    pub(crate) fn first_not_used(&self, range: &Range<u32>) -> Option<u32> {
        let free = bits::first_clear(self.buddy.words(), range);
        free.into_iter().chain(self.first_in_flight(range)).min()
    }

    /// The length of the free run that contains `range`.
    pub(crate) fn run_around(&self, range: &Range<u32>) -> u32 {
        let words = self.buddy.words();
        let start = bits::last_set(words, range.start).map_or(0, |at| at + 1);
        range.end - start + self.buddy.run_at(range.end, u32::MAX)
    }

    /// Remembers free clusters to be discarded. Returns whether they are the first of the group.
    pub(crate) fn queue_discard(&mut self, range: Range<u32>) -> bool {
        let first = self.discards.len() == 0;
        self.discards.insert(range);
        first
    }

    /// Nothing is to be discarded any more.
    pub(crate) fn forget_discards(&mut self) {
        self.discards = RangeSet::default();
    }

    /// A run of free clusters to discard.
    pub(crate) fn next_discard(&self) -> Option<Range<u32>> {
        self.discards.iter().next().cloned()
    }

    /// The durable bitmap, and how many of its clusters are free.
    pub(crate) fn render(&self, words: &mut Vec<u64>) -> u32 {
        words.clear();
        words.extend_from_slice(self.buddy.words());
        let mut free = self.buddy.free();
        for ranges in self.pending.iter().map(|(_, ranges)| ranges).chain([&self.reserved]) {
            free += ranges.len();
            for range in ranges.iter() {
                bits::clear(words, range);
            }
        }
        free
    }

    /// Verifies what must hold between the free space and the sets beside it. For tests.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.buddy.check()?;
        for ranges in self.pending.iter().map(|(_, ranges)| ranges).chain([&self.reserved]) {
            if let Some(range) = ranges.iter().find(|range| self.free_in_range(range) > 0) {
                return Err(format!("some of {range:?} is free, though reserved or pending"));
            }
        }
        match self.discards.iter().find(|range| self.free_in_range(range) < range.end - range.start) {
            Some(range) => Err(format!("some of {range:?} waits for its discard, though it is in use")),
            None => Ok(()),
        }
    }

    /// Reserved clusters, and pending ones.
    pub(crate) fn in_flight(&self) -> (u32, u32) {
        (self.reserved.len(), self.pending.iter().map(|(_, ranges)| ranges.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(words: Vec<u64>, len: u32) -> Group {
        Group::new(Buddy::new(words, len, 14), 0)
    }

    #[test]
    fn a_freed_run_waits_for_its_transaction() {
        let mut group = group(vec![u64::MAX], 64);
        let [first, second] = [1, 2].map(TxnId::new);
        group.free_in(first, 0..8);
        group.free_in(second, 8..12);
        assert_eq!((group.free(), group.in_flight()), (0, (0, 12)));
        assert_eq!(group.first_not_used(&(6..20)), Some(6));
        assert_eq!(group.release(first), vec![0..8_u32; 1]);
        assert_eq!((group.free(), group.in_flight()), (8, (0, 4)));
        let mut words = Vec::new();
        assert_eq!(group.render(&mut words), 12);
        assert_eq!(words, [u64::MAX << 12]);
        group.check().unwrap();
    }

    #[test]
    fn a_run_is_measured_on_both_sides() {
        let mut group = group(vec![0; 2], 128);
        group.reserve(10..20);
        group.reserve(100..101);
        assert_eq!(group.run_around(&(40..50)), 80);
        assert_eq!(group.run_around(&(0..1)), 10);
        assert_eq!(group.run_around(&(120..128)), 27);
    }

    #[test]
    fn what_is_taken_needs_no_discard() {
        let mut group = group(vec![0], 64);
        assert!(group.queue_discard(8..24));
        assert!(!group.queue_discard(30..40));
        group.reserve(10..12);
        assert_eq!(group.mark_used(&(20..32)), 12);
        let left: Vec<_> = group.discards.iter().cloned().collect();
        assert_eq!(left, [8..10, 12..20, 32..40]);
        group.check().unwrap();
    }

    #[test]
    fn a_group_with_only_its_own_metadata_is_whole() {
        let mut group = Group::new(Buddy::new(vec![0xff], 64, 14), 8);
        assert!(group.is_whole());
        group.reserve(8..9);
        assert!(!group.is_whole());
        group.unreserve(&(8..9));
        assert!(group.is_whole());
    }
}
