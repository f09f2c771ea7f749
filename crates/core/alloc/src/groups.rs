//! The groups of a volume, each found in memory or loaded from their source.
//!
//! What is known of a group without its bitmap comes with its page of group infos (`pages`). The bitmap is
//! loaded under the group's own lock. Where reading it means I/O, the other groups of its flex group that
//! have free space are read with it and indexed too, if a try-lock gets them: their bitmaps lie side by
//! side, and the searches that come next will want them.
//!
//! What it is not: a choice of groups (that is `search`), or a limit of memory: the caller evicts.

mod pages;

use crate::buddy::Buddy;
use crate::error::AllocError;
use crate::group::Group;
use crate::group_info::{GroupInfo, GroupState};
use crate::group_table::GroupTable;
use crate::index::Orders;
use crate::layout::Layout;
use crate::locked_group::LockedGroup;
use crate::share::{Share, Shares};
use crate::source::GroupSource;
use crate::state::State;
use crate::sync::{Arc, MutexGuard, Ordering};
use crate::tunables::Config;
use hectare_units::{Clusters, GroupNr};
use std::ops::Range;
use std::time::Instant;

/// The groups of one volume, with their source.
pub(crate) struct Groups<S> {
    source: S,
    state: Arc<State>,
    shares: Shares,
}

/// The place of a group in memory, under its lock.
type GroupGuard<'a> = MutexGuard<'a, Option<Box<Group>>>;

impl<S: GroupSource> Groups<S> {
    /// Groups that are all untouched.
    pub(crate) fn new(source: S, layout: Layout, config: Config) -> Self {
        let total = source.free_total();
        let free = total.unwrap_or_else(|| count_all(&source, &layout)).min(layout.total()).get();
        let table =
            GroupTable::new(layout.groups(), source.together(), config.flex_groups, free, total.is_none());
        let state = Arc::new(State::new(layout, config, table, free));
        Self { source, shares: Shares::new(&state), state }
    }

    /// Where the bitmaps come from.
    pub(crate) const fn source(&self) -> &S {
        &self.source
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The reference to the state that this thread clones.
    pub(crate) fn share(&self) -> &Share {
        self.shares.own()
    }

    /// Locks a group, waiting for it, and loads it if need be.
    pub(crate) fn open(&self, group: GroupNr) -> Result<LockedGroup<'_>, AllocError<S::Error>> {
        let info = self.group_info(group)?;
        self.loaded(group, info, info.lock(&self.state().contention, &mut 0))
    }

    /// The group behind a lock, loaded if need be.
    pub(crate) fn loaded<'a>(
        &'a self,
        group: GroupNr,
        info: &'a GroupInfo,
        mut place: GroupGuard<'a>,
    ) -> Result<LockedGroup<'a>, AllocError<S::Error>> {
        if place.is_none()
            && let Err(error) = self.load(group, &mut place)
        {
            self.source().unusable(group, &error);
            self.set_aside(group, info);
            return Err(error);
        }
        Ok(LockedGroup::new(self.share(), group, info, place))
    }

    /// Under the group's lock: it can't be loaded, and has nothing for requests from here on.
    fn set_aside(&self, group: GroupNr, info: &GroupInfo) {
        if info.is_set_aside() {
            return;
        }
        let state = self.state();
        state.untouched.update(group, state.untouched_orders(group, info), Orders::default());
        info.set_aside();
        state.counters.set_aside(info.free().min(state.layout.group_len(group)).into());
        state.set_aside.fetch_add(1, Ordering::Relaxed);
    }

    /// Under the group's lock: it is in memory.
    fn take_back(&self, group: GroupNr, info: &GroupInfo) {
        let state = self.state();
        state.counters.take_back(info.free().min(state.layout.group_len(group)).into());
        state.set_aside.fetch_sub(1, Ordering::Relaxed);
    }

    /// To be called before a request is refused space: tries once more to load the groups that are set aside.
    /// Returns whether that helped with one, and what is wrong with the first of the others.
    #[cold]
    pub(crate) fn reopen_set_aside(&self) -> (bool, Option<AllocError<S::Error>>) {
        let (state, mut opened, mut broken) = (self.state(), false, None);
        if state.set_aside.load(Ordering::Relaxed) == 0 {
            return (opened, broken);
        }
        for (group, info) in state.table.made_from(GroupNr::new(0)) {
            // One without free clusters has no space, whatever is wrong with it.
            if info.is_set_aside() && info.free() > 0 {
                match self.open(group) {
                    Ok(_) => opened = true,
                    Err(error) => drop(broken.get_or_insert(error)),
                }
            }
        }
        (opened, broken)
    }

    fn load(&self, group: GroupNr, place: &mut GroupGuard<'_>) -> Result<(), AllocError<S::Error>> {
        let mates = self.mates(group);
        if mates.len() == 1 || !self.source().needs_io(group) {
            let words = self.source().load(group).map_err(AllocError::Source)?;
            return self.install(group, place, words);
        }
        let mut places: Vec<(GroupNr, GroupGuard<'_>)> = mates
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
            let useful =
                || info.is_some_and(|info| info.free() > 0 && !info.state().loaded && !info.is_set_aside());
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
        place: &mut GroupGuard<'_>,
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
        let was_aside = info.is_set_aside();
        let installed = Box::new(Group::new(buddy, own));
        info.set_space(counted, installed.buddy().fragments());
        if was_aside {
            // A search that passed it by meanwhile looks again.
            let _releasing = state.release_epoch.releasing();
            info.set_longest(installed.buddy().longest());
            self.take_back(group, info);
        }
        let (from, to) = (info.state(), GroupState::of(&installed));
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
    pub(crate) fn evict(&self, at_most: usize) -> usize {
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
        info.set_state(from, GroupState { orders: Orders::default(), loaded: false, ..from });
        state.untouched.update(group, Orders::default(), state.untouched_orders(group, info));
        *place = None;
        state.loaded.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

/// Free clusters of all groups by what their source says of each, none left out.
fn count_all<S: GroupSource>(source: &S, layout: &Layout) -> Clusters {
    let groups = (0..layout.groups()).map(GroupNr::new);
    Clusters::new(groups.map(|group| u64::from(source.free_hint(group).min(layout.group_len(group)))).sum())
}
