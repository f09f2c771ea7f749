//! Makes the pages of group infos (`group_table`), each on the first touch of one of its groups.

use super::Groups;
use crate::error::AllocError;
use crate::group_info::GroupInfo;
use crate::group_table::Unread;
use crate::index::Orders;
use crate::source::GroupSource;
use hectare_units::GroupNr;
use std::ops::Range;

impl<S: GroupSource> Groups<S> {
    /// A group's info, made with its page on first touch.
    ///
    /// # Errors
    /// Those of [`GroupSource::prepare`].
    #[inline]
    pub(crate) fn group_info(&self, group: GroupNr) -> Result<&GroupInfo, AllocError<S::Error>> {
        match self.state().table.get(group) {
            Some(info) => Ok(info),
            None => self.make_info(group),
        }
    }

    #[cold]
    fn make_info(&self, group: GroupNr) -> Result<&GroupInfo, AllocError<S::Error>> {
        let table = &self.state().table;
        let mut unread = table.making();
        if table.get(group).is_none() {
            self.make_page(table.mates(group), &mut unread)?;
        }
        Ok(self.state().info(group))
    }

    fn make_page(&self, groups: Range<u32>, unread: &mut Unread) -> Result<(), AllocError<S::Error>> {
        let (source, state) = (self.source(), self.state());
        source.prepare(groups.clone()).map_err(AllocError::Source)?;
        let mut made = Vec::with_capacity(groups.len());
        for group in groups.clone().map(GroupNr::new) {
            let (hint, len) = (source.free_hint(group), state.layout.group_len(group));
            let info = GroupInfo::new(hint, len, !source.needs_io(group));
            unread.free = unread.free.wrapping_sub(info.free().min(len).into());
            state.untouched.update(group, Orders::default(), state.untouched_orders(group, &info));
            made.push(info);
        }
        state.table.insert(&groups, made);
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
        let mut unread = table.making();
        if !unread.counted {
            let mut free = 0;
            for groups in table.unread_pages() {
                free += self.source().count_free(groups).map_err(AllocError::Source)?;
            }
            self.correct(free, &mut unread);
        }
        Ok(unread.more)
    }
}
