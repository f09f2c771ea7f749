//! The source of groups, and loading them into memory.
//!
//! What is known of a group without its bitmap comes with its page of group infos (`group_table`). The bitmap
//! is loaded under the group's own lock. Where reading it means I/O, the other groups of its flex group that
//! have free space are read with it and indexed too, if a try-lock gets them: their bitmaps lie side by
//! side, and the searches that come next will want them.

use crate::allocator::Allocator;
use crate::buddy::Buddy;
use crate::error::AllocError;
use crate::group::Group;
use crate::group_info::GroupInfo;
use crate::index::Orders;
use crate::locked_group::LockedGroup;
use crate::sync::{MutexGuard, Ordering};
use hectare_units::{Clusters, GroupNr};
use std::ops::Range;
use std::time::Instant;

/// Where the bitmaps of the groups come from.
///
/// Its functions are called with locks of groups held or before any thread has the allocator; none may call
/// back into it.
pub trait GroupSource: Send + Sync {
    /// Why a bitmap can't be loaded.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The durable bitmap of a group, as last rendered: bit `i % 64` of word `i / 64` is 1 if cluster `i` of
    /// the group is used. Bits beyond the group's end should be 1; they are ignored.
    ///
    /// A group is loaded on first touch, and again if it is needed after it was
    /// [evicted](Allocator::evict).
    ///
    /// # Errors
    /// Whatever keeps the bitmap from being read; it fails the operation that needed the group.
    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Self::Error>;

    /// Free clusters of a group by its descriptor, known without reading the bitmap. A bitmap that turns out
    /// to hold another number fails with [`AllocError::Miscounted`].
    fn free_hint(&self, group: GroupNr) -> u32;

    /// Free clusters of all groups, if that is known without asking each. `None`: the hints are summed when
    /// the allocator is made. A total that is not their sum is corrected before a request is refused space
    /// because of it.
    fn free_total(&self) -> Option<Clusters> {
        None
    }

    /// How many neighbours' hints cost the price of one. They are requested together, from
    /// a multiple of this (or of a power of two next to it) on.
    fn together(&self) -> u32 {
        1
    }

    /// Prepares what the other functions return about some groups without I/O. Called before any of them, but
    /// for [`count_free`](Self::count_free), is called for a group.
    ///
    /// # Errors
    /// Whatever keeps it from being read; it fails the operation that needed one of the groups, and is tried
    /// again by the next.
    fn prepare(&self, groups: Range<u32>) -> Result<(), Self::Error> {
        let _ = groups;
        Ok(())
    }

    /// The sum of the hints of some groups, for which nothing is to be kept in memory: they may be all.
    ///
    /// # Errors
    /// Whatever keeps them from being read.
    fn count_free(&self, groups: Range<u32>) -> Result<u64, Self::Error> {
        Ok(groups.map(|group| u64::from(self.free_hint(GroupNr::new(group)))).sum())
    }

    /// A group turned out to be of no use, for that reason; it fails the operation that needed it. Called
    /// with the group's lock held, each time it is needed.
    fn unusable(&self, _group: GroupNr, _error: &AllocError<Self::Error>) {}

    /// Clusters in the group that hold the volume's own fixed metadata (superblock copies, descriptors,
    /// bitmaps, inode tables). A group in which nothing else is in use counts as wholly free. Asked when the
    /// group is loaded.
    fn own_metadata(&self, group: GroupNr) -> u32 {
        let _ = group;
        0
    }

    /// Whether loading the group reads from the device. If not, its bitmap holds the volume's own metadata
    /// only.
    fn needs_io(&self, group: GroupNr) -> bool {
        let _ = group;
        true
    }

    /// The bitmaps of several groups, for sources that can read them in one go. Groups may be left out.
    fn load_many(&self, groups: Range<u32>) -> Loaded<Self::Error> {
        groups.map(GroupNr::new).map(|group| (group, self.load(group))).collect()
    }
}

/// Groups, and the bitmap of each or why it can't be loaded.
pub type Loaded<E> = Vec<(GroupNr, Result<Vec<u64>, E>)>;

/// The place of a group in memory, under its lock.
type Place<'a> = MutexGuard<'a, Option<Box<Group>>>;

impl<S: GroupSource> Allocator<S> {
    /// Locks a group, waiting for it, and loads it if need be.
    pub(crate) fn open(&self, group: GroupNr) -> Result<LockedGroup<'_>, AllocError<S::Error>> {
        let info = self.info(group)?;
        self.loaded(group, info, info.lock(&self.state().contention, &mut 0))
    }

    /// The group behind a lock, loaded if need be.
    pub(crate) fn loaded<'a>(
        &'a self,
        group: GroupNr,
        info: &'a GroupInfo,
        mut place: Place<'a>,
    ) -> Result<LockedGroup<'a>, AllocError<S::Error>> {
        if place.is_none() {
            let loaded = self.load(group, &mut place);
            loaded.inspect_err(|error| self.source().unusable(group, error))?;
        }
        Ok(LockedGroup::new(self.share(), group, info, place))
    }

    fn load(&self, group: GroupNr, place: &mut Place<'_>) -> Result<(), AllocError<S::Error>> {
        let mates = self.mates(group);
        if mates.len() == 1 || !self.source().needs_io(group) {
            let words = self.source().load(group).map_err(AllocError::Source)?;
            return self.install(group, place, words);
        }
        let mut places: Vec<(GroupNr, Place<'_>)> = mates
            .clone()
            .map(GroupNr::new)
            .filter(|mate| *mate != group)
            .filter_map(|mate| Some((mate, self.state().table.get(mate)?.group.try_lock()?)))
            .filter(|(_, place)| place.is_none())
            .collect();
        let mut own = None;
        for (nr, result) in self.source().load_many(mates) {
            if nr == group {
                own =
                    Some(result.map_err(AllocError::Source).and_then(|words| self.install(nr, place, words)));
            } else if let (Ok(words), Some((_, place))) =
                (result, places.iter_mut().find(|(mate, _)| *mate == nr))
                && place.is_none()
            {
                // The error is returned to the request that needs this group; none has so far.
                let _: Result<(), _> = self.install(nr, place, words);
            }
        }
        own.unwrap_or_else(|| {
            let words = self.source().load(group).map_err(AllocError::Source)?;
            self.install(group, place, words)
        })
    }

    /// The groups of a group's flex group, from the first to the last that are worth loading with it.
    fn mates(&self, group: GroupNr) -> Range<u32> {
        let worth = |nr: &u32| {
            let info = self.state().table.get(GroupNr::new(*nr));
            let useful = || info.is_some_and(|info| info.free() > 0 && !info.state().loaded);
            *nr == group.get() || useful()
        };
        let mut flex = self.state().flex(group);
        let first = flex.find(worth).unwrap_or(group.get());
        first..flex.rfind(worth).unwrap_or(first) + 1
    }

    /// Puts a group into memory and into the index.
    fn install(
        &self,
        group: GroupNr,
        place: &mut Place<'_>,
        words: Vec<u64>,
    ) -> Result<(), AllocError<S::Error>> {
        let started = Instant::now();
        let state = self.state();
        let (info, len) = (state.info(group), state.layout.group_len(group));
        let buddy = Buddy::new(words, len, state.config.orders());
        let (announced, counted) = (info.free(), buddy.free());
        if announced != counted {
            return Err(AllocError::Miscounted { group, announced, counted });
        }
        let own = self.source().own_metadata(group).min(len);
        if let Some(classes) = &state.classes
            && info.is_new()
            && len - counted > own
        {
            classes.sample(group, buddy.words(), len, state.config.cluster_bytes());
        }
        state.untouched.update(group, state.untouched_orders(group, info), Orders::default());
        let installed = Box::new(Group::new(buddy, own));
        info.set_space(counted, installed.buddy().fragments());
        let (from, to) = (info.state(), installed.state());
        state.index.update(group, from.orders, to.orders);
        info.set_state(from, to);
        **place = Some(installed);
        state.loaded.fetch_add(1, Ordering::Relaxed);
        state.stats.buddy_generated(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Drops up to `at_most` groups from memory that the source can give back as they are, and returns how
    /// many were dropped. Groups in use by others are passed over. Each call continues where the last one
    /// ended.
    pub fn evict(&self, at_most: usize) -> usize {
        let state = self.state();
        let groups = state.layout.groups();
        let from = state.evict_from.load(Ordering::Relaxed).min(groups);
        let mut evicted = 0;
        let before = state.table.made_from(GroupNr::new(0)).take_while(|(group, _)| group.get() < from);
        for (group, info) in state.table.made_from(GroupNr::new(from)).chain(before) {
            if evicted >= at_most {
                state.evict_from.store(group.get(), Ordering::Relaxed);
                break;
            }
            if info.state().loaded && self.evict_one(group, info) {
                evicted += 1;
            }
        }
        evicted
    }

    fn evict_one(&self, group: GroupNr, info: &GroupInfo) -> bool {
        let state = self.state();
        let Some(mut place) = info.group.try_lock() else { return false };
        if !place.as_ref().is_some_and(|group| group.is_idle()) {
            return false;
        }
        let from = info.state();
        state.index.update(group, from.orders, Orders::default());
        info.set_state(
            from,
            crate::group_info::GroupState { orders: Orders::default(), loaded: false, ..from },
        );
        state.untouched.update(group, Orders::default(), state.untouched_orders(group, info));
        *place = None;
        state.loaded.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Groups in memory.
    #[must_use]
    pub fn loaded_groups(&self) -> usize {
        hectare_units::usize_of(self.state().loaded.load(Ordering::Relaxed))
    }
}
