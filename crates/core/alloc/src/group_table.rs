//! The group infos, allocated a page at a time on first touch.
//!
//! A volume may have a hundred million groups, of which one use touches a few. So what every group costs, its
//! [`GroupInfo`] and its place in the index of untouched groups, is made when the group is first touched: for
//! a *page* of neighbours at once, whose numbers the source has at hand together (for ext4, the descriptors
//! of one block). Until then the page is *unread*: nothing is known of its groups, and each is assumed to be
//! wholly free.
//!
//! # What this must not change
//! - It never makes a search wrong; at worst the search reads a page that turns out to have nothing. The
//!   index names an unread page for every length, and the first search that gets there makes it; from then
//!   on the descriptors count. The last pass of every table goes through all groups and so makes every page:
//!   no space is overlooked because its page is unread.
//! - A page that can't be read is an error for requests that need one of its groups, like a group that can't
//!   be loaded.
//! - Free space is counted from the start. The source reports how many clusters are free in all
//!   ([`free_total`](crate::GroupSource::free_total)); what the pages made so far have is subtracted from
//!   what is *assumed* of those unread. On an inconsistent volume that total may be wrong. It is corrected
//!   when the last page is made; and no request is refused space because of it: before the first refusal, the
//!   real free space of the unread pages is counted ([`settle`](crate::groups::Groups::settle)).
//!
//! # Order
//! Pages are made under one lock. The groups are put into the index before the page becomes visible, and the
//! page leaves the unread ones after that, so that a group is in at least one of both at every moment; a
//! search that finds it in the index too early waits for the lock. The lock comes after those of groups, and
//! only the source's own locks come after it.
//!
//! What it is not: a cache, as a page stays in memory; nor what makes the pages (that is `groups`).

use crate::group_info::GroupInfo;
use crate::index::BitTree;
use crate::sync::{Mutex, MutexGuard};
use hectare_units::{GroupNr, OnceTable};
use std::ops::Range;

/// The most groups of a page; a power of two.
const PAGE_MAX: u32 = 1024;

/// What is assumed of the unread pages.
pub(crate) struct Unread {
    /// Their free clusters. Wraps where the total turns out to have been too low.
    pub(crate) free: u64,
    /// Whether that is what they have.
    pub(crate) counted: bool,
    /// Whether counting has shown more than was said before.
    pub(crate) more: bool,
}

/// The group infos of all groups.
pub(crate) struct GroupTable {
    groups: u32,
    /// log2 of the groups of a page.
    shift: u32,
    /// The part of a group's number that is its place in the page.
    mask: usize,
    pages: OnceTable<Box<[GroupInfo]>>,
    /// Pages not made yet.
    unread: BitTree,
    making: Mutex<Unread>,
}

impl GroupTable {
    /// No group info yet of `groups` groups, in pages of at least `together` and `flex` groups, within
    /// limits. In all, `free` clusters are free; `exact` if they need not be counted again.
    pub(crate) fn new(groups: u32, together: u32, flex: u32, free: u64, exact: bool) -> Self {
        let shift = together.max(flex).clamp(1, PAGE_MAX).next_power_of_two().ilog2();
        let pages = groups.div_ceil(1 << shift);
        Self {
            groups,
            shift,
            mask: (1 << shift) - 1,
            pages: OnceTable::new(pages),
            unread: BitTree::new(pages, true),
            making: Mutex::new(Unread { free, counted: exact, more: false }),
        }
    }

    /// A group's info, if its page was made.
    #[inline]
    pub(crate) fn get(&self, group: GroupNr) -> Option<&GroupInfo> {
        let page = self.pages.get(group.get().wrapping_shr(self.shift))?;
        page.get(group.index() & self.mask)
    }

    /// The groups whose infos were made, from one on, in order.
    pub(crate) fn made_from(&self, start: GroupNr) -> impl Iterator<Item = (GroupNr, &GroupInfo)> {
        let pages = self.pages.made_from(start.get() >> self.shift);
        let table = pages.flat_map(|(page, table)| table.iter().zip(page << self.shift..));
        table.map(|(info, group)| (GroupNr::new(group), info)).filter(move |(group, _)| *group >= start)
    }

    /// The first group in a range whose page is unread.
    pub(crate) fn next_unread(&self, groups: Range<u32>) -> Option<GroupNr> {
        let last = groups.end.checked_sub(1).filter(|last| *last >= groups.start)?;
        let page = self.unread.next_before(groups.start >> self.shift, (last >> self.shift) + 1)?;
        Some(GroupNr::new(groups.start.max(page << self.shift)))
    }

    /// Whether any page is unread.
    pub(crate) fn has_unread(&self) -> bool {
        self.unread.next(0).is_some()
    }

    /// The groups of a group's page.
    pub(crate) fn mates(&self, group: GroupNr) -> Range<u32> {
        self.groups(group.get() >> self.shift)
    }

    /// The groups of a page.
    fn groups(&self, page: u32) -> Range<u32> {
        let first = page << self.shift;
        first..first.saturating_add(1 << self.shift).min(self.groups)
    }

    /// The groups of each unread page.
    pub(crate) fn unread_pages(&self) -> impl Iterator<Item = Range<u32>> {
        let next = |from| self.unread.next(from);
        std::iter::successors(next(0), move |page| next(page + 1)).map(|page| self.groups(page))
    }

    /// The lock that pages are made under, and what is assumed of those unread.
    pub(crate) fn making(&self) -> MutexGuard<'_, Unread> {
        self.making.lock()
    }

    /// Makes the page of some groups visible, under that lock, and then takes it out of the unread ones.
    pub(crate) fn insert(&self, groups: &Range<u32>, infos: Vec<GroupInfo>) {
        let page = groups.start >> self.shift;
        self.pages.get_or_init(page, || infos.into_boxed_slice());
        self.unread.clear(page);
    }

    /// What the unread pages are assumed to have free, as a number to be added to that of the others. For
    /// tests.
    pub(crate) fn assumed(&self) -> u64 {
        self.making.lock().free
    }

    /// Verifies that each page is either made or among the unread ones. For tests.
    pub(crate) fn check(&self) -> Result<(), String> {
        let pages = self.groups.div_ceil(1 << self.shift);
        let odd = |page: &u32| {
            self.pages.get(*page).is_some() == self.unread.next_before(*page, page + 1).is_some()
        };
        match (0..pages).find(odd) {
            Some(page) => Err(format!("page {page} is both made and unread, or neither")),
            None => Ok(()),
        }
    }
}
