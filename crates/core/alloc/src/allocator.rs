//! The allocator's operations: reserve, claim, free, render, report.

use crate::bits;
use crate::budget::Budget;
use crate::counters::Counts;
use crate::criteria::{AT_GOAL, Pass, Step};
use crate::error::AllocError;
use crate::group::Home;
use crate::groups::Groups;
use crate::layout::{Layout, Run};
use crate::locked_group::LockedGroup;
use crate::policy::Policy;
use crate::request::{GoalFrom, Purpose, Request, Transaction};
use crate::reservation::{Claim, Reservation};
use crate::search::{Plan, Search};
use crate::share::Share;
use crate::size_class::Stage;
use crate::source::GroupSource;
use crate::state::State;
use crate::stats::{StatsSnapshot, structs_summary};
use crate::sync::Ordering;
use crate::trace::{Answer, Asked, Steps, Trace};
use crate::tunables::{BadTunable, Config, Tunables};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, low32, u64_of, usize_of};
use serde::Serialize;
use std::ops::Range;

/// The free space of one group in memory, as a line of the kernel's `mb_groups` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GroupSummary {
    /// The group.
    pub group: u32,
    /// Free clusters.
    pub free: u32,
    /// Free runs.
    pub fragments: u32,
    /// The first free cluster of the group; its length if none is free.
    pub first_free: u32,
    /// Free chunks per order.
    pub chunks: Vec<u32>,
}

/// Free space of one volume; see the [crate's introduction](crate). All methods may be called by any number
/// of threads at once.
pub struct Allocator<S> {
    groups: Groups<S>,
}

impl<S: GroupSource> Allocator<S> {
    /// An allocator over the groups of `source`. Asks for every group's free hint unless the source knows
    /// their sum ([`GroupSource::free_total`]), and loads none.
    ///
    /// # Panics
    /// If `config` has blocks that are no power of two from 1 KiB to 64 KiB.
    pub fn new(source: S, layout: Layout, config: Config) -> Self {
        assert!(
            config.block_bytes.is_power_of_two() && (10..=16).contains(&config.block_bytes.ilog2()),
            "blocks of {} bytes",
            config.block_bytes
        );
        Self { groups: Groups::new(source, layout, config) }
    }

    /// Where the bitmaps come from.
    pub const fn source(&self) -> &S {
        self.groups.source()
    }

    /// The shape of the volume.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.state().layout
    }

    pub(crate) const fn groups(&self) -> &Groups<S> {
        &self.groups
    }

    pub(crate) fn state(&self) -> &State {
        self.groups.state()
    }

    /// The reference to the space that this thread clones.
    pub(crate) fn share(&self) -> &Share {
        self.groups.share()
    }

    /// Reserves one contiguous run inside one group, of at least the least and at most the full length. Where
    /// it lies and which length between it has, the policy decides; it prefers the full length, and does not
    /// go below what is asked while there are such runs that it can find without looking everywhere.
    ///
    /// # Errors
    /// [`AllocError::NoSpace`] if no run of the least length is left for this caller, which is exact: while
    /// anything is free and open to the caller, a request with `min` 1 gets it (unless it is only for its
    /// goal). [`AllocError::Source`] and [`AllocError::Miscounted`] if a group that announces free clusters can't
    /// be loaded and the others have no space, or if the goal's can't be and no other would do.
    pub fn reserve(&self, request: &Request) -> Result<Reservation, AllocError<S::Error>> {
        if request.only_goal {
            // Nowhere else would do, so it is waited for, and what is wrong with the group is the answer.
            if let Some((group, _)) = self.state().layout.locate(request.goal) {
                drop(self.groups.open(group)?);
            }
            return self.reserve_by(&AT_GOAL, request)?.ok_or(AllocError::NoSpace);
        }
        let floor = self.state().counters.floor_of(request);
        self.reserve_from(request, Budget::Available { floor })
    }

    /// Whether groups can't be loaded: then a refusal has the error of one of them as its reason.
    #[must_use]
    pub fn has_set_aside(&self) -> bool {
        self.state().set_aside.load(Ordering::Relaxed) > 0
    }

    /// Reserves what is free exactly at the goal: at least the minimum, at most the full length. `None` if
    /// less is free there, if the goal lies in a part of the volume that is set apart for other sizes, if the
    /// policy skips goals whose group is busy and this one is, or if the group can't be loaded.
    ///
    /// # Errors
    /// None at present.
    pub fn reserve_at(&self, request: &Request) -> Result<Option<Reservation>, AllocError<S::Error>> {
        self.reserve_by(&self.state().tables().at_goal, request)
    }

    fn reserve_by(
        &self,
        pass: &Pass,
        request: &Request,
    ) -> Result<Option<Reservation>, AllocError<S::Error>> {
        let floor = self.state().counters.floor_of(request);
        let mut budget = Budget::Available { floor };
        let Some(plan) = self.plan(request, &budget) else {
            self.note(request, Answer::TooLong);
            return Ok(None);
        };
        let stages: &[Stage] =
            if plan.class.is_some() { &[Stage::Matching, Stage::Unset] } else { &[Stage::Any] };
        Search::new(&self.groups, &plan, &mut budget).run_one(stages, pass)
    }

    /// Reserves a run out of a claim, no longer than what is left of it; the run's length is deducted.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve). With `min` 1, `NoSpace` is given only if the claim is used up.
    pub fn reserve_claimed(
        &self,
        claim: &mut Claim,
        request: &Request,
    ) -> Result<Reservation, AllocError<S::Error>> {
        self.reserve_from(request, Budget::Claimed(claim.left_mut()))
    }

    fn reserve_from(
        &self,
        request: &Request,
        mut budget: Budget<'_>,
    ) -> Result<Reservation, AllocError<S::Error>> {
        match self.search(request, &mut budget) {
            Err(AllocError::NoSpace) => self.search_again(request, &mut budget),
            result => result,
        }
    }

    /// There was no space, by numbers that may have been wrong.
    #[cold]
    fn search_again(
        &self,
        request: &Request,
        budget: &mut Budget<'_>,
    ) -> Result<Reservation, AllocError<S::Error>> {
        let more = self.groups.settle()?;
        let (opened, broken) = self.groups.reopen_set_aside();
        if opened || more {
            match self.search(request, budget) {
                Err(AllocError::NoSpace) => {}
                result => return result,
            }
        }
        Err(broken.unwrap_or(AllocError::NoSpace))
    }

    #[inline(always)] // twice is better than a call more each time
    fn search(
        &self,
        request: &Request,
        budget: &mut Budget<'_>,
    ) -> Result<Reservation, AllocError<S::Error>> {
        let Some(plan) = self.plan(request, budget) else {
            self.note(request, Answer::TooLong);
            return Err(AllocError::NoSpace);
        };
        Search::new(&self.groups, &plan, budget).run(self.table(request))
    }

    fn plan(&self, request: &Request, budget: &Budget<'_>) -> Option<Plan> {
        Plan::new(request, budget.holds(&self.state().counters), self.state())
    }

    fn table(&self, request: &Request) -> &[Step] {
        let tables = self.state().tables();
        match request.purpose {
            Purpose::Metadata => &tables.metadata,
            Purpose::Data if request.packed => &tables.packed,
            Purpose::Data => &tables.data,
        }
    }

    /// Promises `n` clusters without placing them.
    ///
    /// # Errors
    /// [`AllocError::NoSpace`] if fewer than `n` are available to this caller.
    pub fn claim(&self, n: Clusters, take_root_reserve: bool) -> Result<Claim, AllocError<S::Error>> {
        let floor = self.state().counters.floor(take_root_reserve);
        let claim = || self.state().counters.claim(n.get(), floor);
        if claim().is_none() && !(self.groups.settle()? && claim().is_some()) {
            return Err(AllocError::NoSpace);
        }
        Ok(Claim::new(self.share().clone(), n.get()))
    }

    /// Frees used clusters as part of a transaction: free in the durable bitmap at once, free to be reserved
    /// when the transaction has [committed](Self::committed).
    ///
    /// # Errors
    /// [`AllocError::Outside`] for a run beyond the end; [`AllocError::NotInUse`] naming the first cluster of
    /// a group that is not used, and nothing of that group is freed then (groups before it, which a run may
    /// also touch, are); or the errors of loading a group.
    pub fn free(&self, run: Run, txn: &mut impl Transaction) -> Result<(), AllocError<S::Error>> {
        for (group, range) in self.pieces(run)? {
            let mut locked = self.groups.open(group)?;
            if let Some(at) = locked.group().first_not_used(&range) {
                return Err(AllocError::NotInUse { cluster: self.state().layout.cluster(group, at) });
            }
            locked.free(txn.id(), range);
        }
        Ok(())
    }

    /// Whether clusters could be [freed](Self::free).
    ///
    /// # Errors
    /// Those of freeing them.
    pub fn check_used(&self, run: Run) -> Result<(), AllocError<S::Error>> {
        self.pieces(run)?.try_for_each(|(group, range)| {
            match self.groups.open(group)?.group().first_not_used(&range) {
                Some(at) => Err(AllocError::NotInUse { cluster: self.state().layout.cluster(group, at) }),
                None => Ok(()),
            }
        })
    }

    /// Marks clusters used without a transaction, whether they were free or used: for recovery and for laying
    /// out a new volume, before others allocate.
    ///
    /// # Errors
    /// [`AllocError::InFlight`] if one is reserved or pending, [`AllocError::Outside`],
    /// [`AllocError::NoSpace`] if claims leave too few free clusters, or the errors of
    /// loading a group.
    pub fn mark_used(&self, run: Run) -> Result<(), AllocError<S::Error>> {
        for (group, range) in self.pieces(run)? {
            let mut locked = self.groups.open(group)?;
            if let Some(at) = locked.group().first_in_flight(&range) {
                return Err(AllocError::InFlight { cluster: self.state().layout.cluster(group, at) });
            }
            if !locked.mark_used(&range) {
                return Err(AllocError::NoSpace);
            }
        }
        Ok(())
    }

    fn pieces(
        &self,
        run: Run,
    ) -> Result<impl Iterator<Item = (GroupNr, Range<u32>)> + use<S>, AllocError<S::Error>> {
        let total = self.state().layout.total().get();
        self.state().layout.pieces(run).ok_or(AllocError::Outside { cluster: run.start, total })
    }

    /// Sets how many clusters only a request with `take_root_reserve` may take.
    pub fn set_root_reserve(&self, n: Clusters) {
        self.state().counters.set_root_reserve(n);
    }

    /// Sets how many clusters only a [vital](Request::vital) request may take.
    pub fn keep(&self, n: Clusters) {
        self.state().counters.keep(n);
    }

    /// Hands out the durable bitmap of every group that changed since it was last rendered, in ascending
    /// order, with its number of free clusters, for transaction `txn`. The words are as [`GroupSource::load`]
    /// gives them; bits beyond the group's end are 1.
    ///
    /// To be called by the commit of `txn` while no transaction is open, so that no publish or free is half
    /// done. Reservations may come and go meanwhile: they don't show in durable bitmaps. No group's lock is
    /// held while `visit` runs.
    ///
    /// # Errors
    /// The first error of `visit`; the groups not yet visited and the failed one stay dirty.
    pub fn render_dirty<E>(
        &self,
        txn: TxnId,
        mut visit: impl FnMut(GroupNr, &[u64], u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut dirty = std::mem::take(&mut *self.state().dirty.lock());
        self.state().dirty_groups.fetch_sub(low32(u64_of(dirty.len())), Ordering::Relaxed);
        dirty.sort_unstable();
        let mut words = Vec::new();
        let mut result = Ok(());
        let mut done = 0;
        for &group in &dirty {
            let free = LockedGroup::of(self.share(), group).render(txn, &mut words);
            result = visit(group, &words, free);
            if result.is_err() {
                LockedGroup::of(self.share(), group).group_mut().home = Home::Dirty;
                break;
            }
            done += 1;
        }
        let left = dirty.drain(done..);
        self.state().dirty_groups.fetch_add(low32(u64_of(left.len())), Ordering::Relaxed);
        self.state().dirty.lock().extend(left);
        self.state().rendered.lock().push((txn, dirty));
        result
    }

    /// Groups whose bitmaps [`render_dirty`](Self::render_dirty) would render now.
    #[must_use]
    pub fn dirty_groups(&self) -> u32 {
        self.state().dirty_groups.load(Ordering::Relaxed)
    }

    /// The transaction `txn`, and with it all before, is safe on disk: what they freed may be used again, and
    /// the groups rendered for them may be evicted. Call it after [`render_dirty`](Self::render_dirty) for
    /// the same transaction.
    pub fn committed(&self, txn: TxnId) {
        let mut done: Vec<GroupNr> = Vec::new();
        self.state().rendered.lock().retain_mut(|(id, groups)| {
            let pending = id.is_after(txn);
            if !pending {
                done.append(groups);
            }
            pending
        });
        // A group rendered for two of the transactions must be touched once: it may be evicted after that.
        done.sort_unstable();
        done.dedup();
        for group in done {
            LockedGroup::of(self.share(), group).committed(txn);
        }
    }

    /// Clusters a request may still take, the root reserve included. Clusters that wait for a commit are not
    /// among them; see [`counts`](Self::counts).
    #[must_use]
    pub fn free_clusters(&self) -> Clusters {
        self.state().counters.available()
    }

    /// Free clusters of the durable bitmaps. Exact while no transaction is open, whatever is reserved
    /// meanwhile.
    #[must_use]
    pub fn durable_free(&self) -> Clusters {
        self.state().counters.durable_free()
    }

    /// Where all free clusters stand.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counters.counts()
    }

    /// Calls `visit` with every group touched so far and its clusters free in memory, in order,
    /// without locking or loading.
    pub fn for_each_group(&self, mut visit: impl FnMut(GroupNr, u32)) {
        self.state().table.made_from(GroupNr::new(0)).for_each(|(group, info)| visit(group, info.free()));
    }

    /// The maximal free runs of a group's durable bitmap, in order. None for a group that does not exist.
    ///
    /// # Errors
    /// Those of loading the group.
    pub fn free_runs(&self, group: GroupNr) -> Result<Vec<Run>, AllocError<S::Error>> {
        let len = self.state().layout.group_len(group);
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut words = Vec::new();
        self.groups.open(group)?.group().render(&mut words);
        Ok(bits::clear_runs(&words, 0..len).map(|range| self.state().run(group, &range)).collect())
    }

    /// A length that some group has in one run, as far as the index knows; of groups that were not loaded or
    /// looked at yet, the best is believed. Requests up to this length are likely to be served whole and
    /// cheaply. At least 1.
    #[must_use]
    pub fn offer(&self) -> Clusters {
        let chunk = self.state().index.highest_largest().map_or(1, |order| 1 << order);
        // Averages of order k from 1 up are 2^(k+1) at least.
        let average =
            self.state().highest_average().filter(|order| *order > 0).map_or(1, |order| 1 << (order + 1));
        let most = self.state().layout.clusters_per_group();
        Clusters::new(average.max(chunk).min(most.into()))
    }

    /// The mean free run of the group that a stream was last served from, rounded down; at least 1. A request
    /// of this length is likely to be served there.
    #[must_use]
    pub fn offer_to(&self, stream: u32) -> Clusters {
        let average = |(_, group): (_, GroupNr)| match self.state().table.get(group) {
            Some(info) => info.average(),
            None => self.state().layout.group_len(group),
        };
        Clusters::new(self.state().stream(stream).map_or(1, average).max(1).into())
    }

    /// What a group in memory is like; it is loaded if need be. `None` for a group that does not exist.
    ///
    /// # Errors
    /// Those of loading the group.
    pub fn group_summary(&self, group: GroupNr) -> Result<Option<GroupSummary>, AllocError<S::Error>> {
        if group.get() >= self.state().layout.groups() {
            return Ok(None);
        }
        let locked = self.groups.open(group)?;
        let buddy = locked.group().buddy();
        Ok(Some(GroupSummary {
            group: group.get(),
            free: buddy.free(),
            fragments: buddy.fragments(),
            first_free: buddy.first_free(),
            chunks: buddy.counters().to_vec(),
        }))
    }

    /// Drops up to `at_most` groups from memory that the source can give back as they are, and returns how
    /// many were dropped. Groups in use by others are passed over. Each call continues where the last one
    /// ended.
    pub fn evict(&self, at_most: usize) -> usize {
        self.groups.evict(at_most)
    }

    /// Groups in memory.
    #[must_use]
    pub fn loaded_groups(&self) -> usize {
        usize_of(self.state().loaded.load(Ordering::Relaxed))
    }

    /// How space is chosen.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.state().config.policy
    }

    /// How the allocator was configured.
    #[must_use]
    pub fn config(&self) -> Config {
        self.state().config
    }

    /// The tunables as they are now, with those that were left open as they turned out.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.state().tunables.get()
    }

    /// Sets tunables, each as `NAME=VALUE`, for every request that begins from now on; all or none.
    ///
    /// # Errors
    /// As [`Tunables::set`].
    pub fn set_tunables<'a>(&self, given: impl IntoIterator<Item = &'a str>) -> Result<(), BadTunable> {
        self.state().tunables.set(given)
    }

    /// What was counted since the volume was opened.
    #[must_use]
    pub fn stats(&self) -> StatsSnapshot {
        self.state().stats.snapshot()
    }

    /// What the last requests went through, if that is recorded ([`Config::record`]): what each pass passed
    /// by and why, what it scanned, what it took, and whether space that was kept spared the search.
    #[must_use]
    pub fn trace(&self) -> Option<Trace> {
        Some(self.state().recorder.as_ref()?.trace())
    }

    /// Records that up to `asked` clusters of a file were taken from its window. Code that takes from a
    /// [`Window`](crate::Window) without the allocator must call this, or the record has a gap.
    #[inline]
    pub fn note_window(&self, file: u32, asked: Clusters, taken: &Reservation) {
        if self.state().recorder.is_some() {
            self.note_kept(file, asked, Answer::window(taken.run()));
        }
    }

    /// Records that clusters of a file were taken from what its thread keeps for small files.
    #[inline]
    pub(crate) fn note_slot(&self, file: u32, asked: Clusters, taken: &Reservation) {
        if self.state().recorder.is_some() {
            self.note_kept(file, asked, Answer::slot(taken.run()));
        }
    }

    #[cold]
    fn note_kept(&self, file: u32, asked: Clusters, answer: Answer) {
        let (Answer::Window { start, .. } | Answer::Slot { start, .. }) = answer else { return };
        let request = Request::new(ClusterNr::new(start), asked).for_data(asked);
        self.note(&request.of_file(file, GoalFrom::Kept), answer);
    }

    /// Records a request that made no pass.
    #[inline]
    fn note(&self, request: &Request, answer: Answer) {
        if let Some(recorder) = &self.state().recorder {
            recorder.hand_in(Asked::of(request, &self.state().layout), Steps::default(), answer);
        }
    }

    /// Counts clusters that were set aside for later requests of a file or a thread.
    pub fn count_preallocated(&self, n: Clusters) {
        self.state().stats.preallocated(n.get());
    }

    /// Counts clusters that had been set aside and were given back unused.
    pub fn count_discarded(&self, n: Clusters) {
        self.state().stats.discarded(n.get());
    }

    /// The group index in the layout of the kernel's `mb_structs_summary`. Looks at the whole index.
    #[must_use]
    pub fn structs_summary(&self) -> String {
        structs_summary(self.state().is_indexed(), &self.state().index.counts())
    }

    /// How contended the locks of groups are, from 0 to 8; above 2 the volume counts as busy. Stays 0 under
    /// policies without [`Mechanism::Contention`](crate::Mechanism::Contention).
    #[must_use]
    pub fn contention(&self) -> u32 {
        self.state().contention.level()
    }

    /// Units (flex groups, or groups) without a size class, then those of each, from the smallest sizes on.
    /// `None` under policies without classes.
    #[must_use]
    pub fn class_counts(&self) -> Option<Vec<u32>> {
        Some(self.state().classes.as_ref()?.counts())
    }

    /// Verifies every invariant that ties the groups in memory, their infos, the index and the counters
    /// together, while nothing else runs. For tests.
    ///
    /// # Errors
    /// What is wrong, in one line.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        crate::invariants::check(self.state())
    }
}
