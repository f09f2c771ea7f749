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
//!   ([`GroupSource::free_total`]); what the pages made so far have is subtracted from what is *assumed* of
//!   those unread. On an inconsistent volume that total may be wrong. It is corrected when the last page is
//!   made; and no request is refused space because of it: before the first refusal, the real free space of
//!   the unread pages is counted ([`Allocator::settle`]).
//!
//! # Order
//! Pages are made under one lock. The groups are put into the index before the page becomes visible, and the
//! page leaves the unread ones after that, so that a group is in at least one of both at every moment; a
//! search that finds it in the index too early waits for the lock. The lock comes after those of groups, and
//! only the source's own locks come after it.
//!
//! What it is not: a cache. A page stays in memory.

use crate::allocator::Allocator;
use crate::error::AllocError;
use crate::group_info::GroupInfo;
use crate::index::{BitTree, Orders};
use crate::source::GroupSource;
use crate::sync::Mutex;
use hectare_units::{Clusters, GroupNr, OnceTable};
use std::ops::Range;

/// The most groups of a page; a power of two.
const PAGE_MAX: u32 = 1024;

/// What is assumed of the unread pages.
struct Unread {
    /// Their free clusters. Wraps where the total turns out to have been too low.
    free: u64,
    /// Whether that is what they have.
    counted: bool,
    /// Whether counting has shown more than was said before.
    more: bool,
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

    fn unread_pages(&self) -> impl Iterator<Item = u32> {
        let next = |from| self.unread.next(from);
        std::iter::successors(next(0), move |page| next(page + 1))
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

impl<S: GroupSource> Allocator<S> {
    /// A group's info, made with its page on first touch.
    ///
    /// # Errors
    /// Those of [`GroupSource::prepare`].
    #[inline]
    pub(crate) fn info(&self, group: GroupNr) -> Result<&GroupInfo, AllocError<S::Error>> {
        match self.state().table.get(group) {
            Some(info) => Ok(info),
            None => self.make_info(group),
        }
    }

    #[cold]
    fn make_info(&self, group: GroupNr) -> Result<&GroupInfo, AllocError<S::Error>> {
        let table = &self.state().table;
        let mut unread = table.making.lock();
        if table.get(group).is_none() {
            self.make_page(group.get() >> table.shift, &mut unread)?;
        }
        Ok(self.state().info(group))
    }

    fn make_page(&self, page: u32, unread: &mut Unread) -> Result<(), AllocError<S::Error>> {
        let (source, state) = (self.source(), self.state());
        let groups = state.table.groups(page);
        source.prepare(groups.clone()).map_err(AllocError::Source)?;
        let mut made = Vec::with_capacity(groups.len());
        for group in groups.map(GroupNr::new) {
            let (hint, len) = (source.free_hint(group), state.layout.group_len(group));
            let info = GroupInfo::new(hint, len, !source.needs_io(group));
            unread.free = unread.free.wrapping_sub(info.free().min(len).into());
            state.untouched.update(group, Orders::default(), state.untouched_orders(group, &info));
            made.push(info);
        }
        state.table.pages.get_or_init(page, || made.into_boxed_slice());
        state.table.unread.clear(page);
        if !unread.counted && !state.table.has_unread() {
            self.correct(0, unread);
        }
        Ok(())
    }

    /// The unread pages have `free` free clusters, whatever was assumed.
    fn correct(&self, free: u64, unread: &mut Unread) {
        let by = free.wrapping_sub(unread.free).cast_signed();
        self.state().counters.correct(by);
        *unread = Unread { free, counted: true, more: by > 0 };
    }

    /// To be called before a request is refused space: counts the real free clusters of the unread pages,
    /// unless that was done, and corrects the counters. Returns whether more may be available than the
    /// refusal was based on.
    ///
    /// # Errors
    /// Those of [`GroupSource::count_free`].
    pub(crate) fn settle(&self) -> Result<bool, AllocError<S::Error>> {
        let table = &self.state().table;
        let mut unread = table.making.lock();
        if !unread.counted {
            let mut free = 0;
            for page in table.unread_pages() {
                free += self.source().count_free(table.groups(page)).map_err(AllocError::Source)?;
            }
            self.correct(free, &mut unread);
        }
        Ok(unread.more)
    }
}

/// Free clusters of all groups by what their source says of each, none left out.
pub(crate) fn count_all<S: GroupSource>(source: &S, layout: &crate::Layout) -> Clusters {
    let groups = (0..layout.groups()).map(GroupNr::new);
    Clusters::new(groups.map(|group| u64::from(source.free_hint(group).min(layout.group_len(group)))).sum())
}
