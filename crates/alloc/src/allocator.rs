//! The allocator's operations: reserve, claim, free, render, report.

use crate::bits;
use crate::counters::{Counters, Counts};
use crate::error::AllocError;
use crate::group::{Group, Home, Slot};
use crate::layout::{Layout, Run};
use crate::reservation::{Claim, Reservation};
use crate::search::Plan;
use crate::space::{Held, Purse, Space};
use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, index_of, usize_of};
use std::ops::Range;

/// Where the bitmaps of the groups come from.
///
/// Both functions are called with the group's lock held or before any thread has the allocator; neither may
/// call back into it.
pub trait GroupSource: Send + Sync {
    /// Why a bitmap can't be had.
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
}

/// An open transaction. Whoever has one keeps the commit from rendering until it is closed.
pub trait Transaction {
    /// Its id.
    fn id(&self) -> TxnId;
}

/// What is asked of [`Allocator::reserve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Where the run would best start. Beyond the end of the volume it means no preference.
    pub goal: ClusterNr,
    /// The length wished for. No more than a group's length can be had at once.
    pub want: Clusters,
    /// The least length of use to the caller; at least 1.
    pub min: Clusters,
    /// Whether the clusters set aside for root may be taken.
    pub take_root_reserve: bool,
}

impl Request {
    /// Up to `want` clusters near `goal`, from 1 on, for an ordinary user.
    #[must_use]
    pub const fn new(goal: ClusterNr, want: Clusters) -> Self {
        Self { goal, want, min: Clusters::ONE, take_root_reserve: false }
    }

    /// The same, but no fewer than `min` clusters.
    #[must_use]
    pub const fn at_least(self, min: Clusters) -> Self {
        Self { min, ..self }
    }

    /// The same, and the root reserve may be used if `allowed`.
    #[must_use]
    pub const fn with_root_reserve(self, allowed: bool) -> Self {
        Self { take_root_reserve: allowed, ..self }
    }
    #[doc(hidden)]
    #[must_use]
    pub const fn for_data(self, _: Clusters) -> Self {
        self
    }
    #[doc(hidden)]
    #[must_use]
    pub const fn on_stream(self, _: u32) -> Self {
        self
    }
}

/// Free space of one volume; see the [crate's introduction](crate). All methods may be called by any number
/// of threads at once.
pub struct Allocator<S> {
    source: S,
    space: Arc<Space>,
}

impl<S: GroupSource> Allocator<S> {
    /// An allocator over the groups of `source`. Asks for every group's free hint, loads none.
    pub fn new(source: S, layout: Layout) -> Self {
        let mut slots = Vec::with_capacity(usize_of(layout.groups()));
        let mut free = 0_u64;
        for group in (0..layout.groups()).map(GroupNr::new) {
            let (hint, len) = (source.free_hint(group), layout.group_len(group));
            free += u64::from(hint.min(len));
            slots.push(Slot::new(hint, len));
        }
        let space = Space {
            layout,
            slots: slots.into_boxed_slice(),
            counters: Counters::new(free),
            dirty: Mutex::new(Vec::new()),
            rendered: Mutex::new(Vec::new()),
            given_back: AtomicU64::new(0),
            loaded: AtomicU32::new(0),
        };
        Self { source, space: Arc::new(space) }
    }

    /// Where the bitmaps come from.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The shape of the volume.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.space.layout
    }

    pub(crate) const fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Locks a group, waiting for it, and loads it if need be.
    pub(crate) fn open(&self, group: GroupNr) -> Result<Held<'_>, AllocError<S::Error>> {
        self.loaded(group, self.space.slot(group).group.lock())
    }

    /// Locks a group unless somebody has it, and loads it if need be.
    pub(crate) fn try_open(&self, group: GroupNr) -> Result<Option<Held<'_>>, AllocError<S::Error>> {
        let Some(guard) = self.space.slot(group).group.try_lock() else { return Ok(None) };
        self.loaded(group, guard).map(Some)
    }

    fn loaded<'a>(
        &'a self,
        group: GroupNr,
        mut guard: MutexGuard<'a, Option<Box<Group>>>,
    ) -> Result<Held<'a>, AllocError<S::Error>> {
        if guard.is_none() {
            let words = self.source.load(group).map_err(AllocError::Source)?;
            let loaded = Group::new(words, self.space.layout.group_len(group));
            let (announced, counted) = (self.space.slot(group).free.load(Ordering::Relaxed), loaded.free());
            if announced != counted {
                return Err(AllocError::Miscounted { group, announced, counted });
            }
            *guard = Some(Box::new(loaded));
            self.space.loaded.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Held::new(&self.space, group, guard))
    }

    /// Reserves one contiguous run inside one group: of the length wished for if any group has such a run
    /// (the goal first, then after it), else the longest there is.
    ///
    /// # Errors
    /// [`AllocError::NoSpace`] if no run of the least length is left for this caller, which is exact: while
    /// anything is free and open to the caller, a request with `min` 1 gets it. [`AllocError::Source`] and
    /// [`AllocError::Miscounted`] if a group can't be loaded.
    pub fn reserve(&self, request: &Request) -> Result<Reservation, AllocError<S::Error>> {
        let floor = self.space.counters.floor(request.take_root_reserve);
        self.reserve_from(request, Purse::Available { floor })
    }

    #[doc(hidden)]
    pub fn offer(&self) -> Clusters {
        Clusters::new(512)
    }
    #[doc(hidden)]
    pub fn reserve_at(&self, request: &Request) -> Result<Option<Reservation>, AllocError<S::Error>> {
        let floor = self.space.counters.floor(request.take_root_reserve);
        let mut purse = Purse::Available { floor };
        let Some(plan) = self.plan(request, purse.holds(&self.space.counters)) else { return Ok(None) };
        let Some((group, at)) = self.space.layout.locate(request.goal) else { return Ok(None) };
        let mut held = self.open(group)?;
        let n = held.group().run_from(at, plan.want);
        if n < plan.least || n == 0 {
            return Ok(None);
        }
        Ok(held.take(&(at..at + n), plan.least, &mut purse))
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
        self.reserve_from(request, Purse::Claimed(claim.left_mut()))
    }

    fn reserve_from(
        &self,
        request: &Request,
        mut purse: Purse<'_>,
    ) -> Result<Reservation, AllocError<S::Error>> {
        let plan = self.plan(request, purse.holds(&self.space.counters)).ok_or(AllocError::NoSpace)?;
        self.search(&plan, &mut purse)
    }

    /// The request in terms of one group; `None` if it can't be met whatever is free.
    fn plan(&self, request: &Request, spendable: u64) -> Option<Plan> {
        let layout = &self.space.layout;
        let least = request.min.get().max(1);
        let most = spendable.min(u64::from(layout.clusters_per_group()));
        if least > most || layout.groups() == 0 {
            return None;
        }
        let (group, at) = layout.locate(request.goal).unwrap_or((GroupNr::new(0), 0));
        Some(Plan {
            group,
            at,
            want: u32::try_from(request.want.get().clamp(least, most)).ok()?,
            least: u32::try_from(least).ok()?,
        })
    }

    /// Promises `n` clusters without placing them.
    ///
    /// # Errors
    /// [`AllocError::NoSpace`] if fewer than `n` are available to this caller.
    pub fn claim(&self, n: Clusters, take_root_reserve: bool) -> Result<Claim, AllocError<S::Error>> {
        let floor = self.space.counters.floor(take_root_reserve);
        self.space.counters.claim(n.get(), floor).ok_or(AllocError::NoSpace)?;
        Ok(Claim::new(Arc::clone(&self.space), n.get()))
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
            let mut held = self.open(group)?;
            if let Some(at) = held.group().first_not_used(&range) {
                return Err(AllocError::NotInUse { cluster: self.space.layout.cluster(group, at) });
            }
            held.free(txn.id(), range);
        }
        Ok(())
    }

    /// Marks clusters used without a transaction, whether they were free or used: for recovery and for laying
    /// out a new volume, before others allocate.
    ///
    /// # Errors
    /// [`AllocError::InFlight`] if one is reserved or pending, [`AllocError::Outside`],
    /// [`AllocError::NoSpace`] if so many are claimed that the free ones can't be spared, or the errors of
    /// loading a group.
    pub fn mark_used(&self, run: Run) -> Result<(), AllocError<S::Error>> {
        for (group, range) in self.pieces(run)? {
            let mut held = self.open(group)?;
            if let Some(at) = held.group().first_in_flight(&range) {
                return Err(AllocError::InFlight { cluster: self.space.layout.cluster(group, at) });
            }
            if !held.mark_used(&range) {
                return Err(AllocError::NoSpace);
            }
        }
        Ok(())
    }

    fn pieces(
        &self,
        run: Run,
    ) -> Result<impl Iterator<Item = (GroupNr, Range<u32>)> + use<S>, AllocError<S::Error>> {
        let total = self.space.layout.total().get();
        self.space.layout.pieces(run).ok_or(AllocError::Outside { cluster: run.start, total })
    }

    /// Sets how many clusters only a request with `take_root_reserve` may take.
    pub fn set_root_reserve(&self, n: Clusters) {
        self.space.counters.set_root_reserve(n);
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
        let mut dirty = std::mem::take(&mut *self.space.dirty.lock());
        dirty.sort_unstable();
        let mut words = Vec::new();
        let mut result = Ok(());
        let mut done = 0;
        for &group in &dirty {
            let free = self.space.hold(group).render(txn, &mut words);
            result = visit(group, &words, free);
            if result.is_err() {
                self.space.hold(group).group().home = Home::Dirty;
                break;
            }
            done += 1;
        }
        self.space.dirty.lock().extend(dirty.drain(done..));
        self.space.rendered.lock().push((txn, dirty));
        result
    }

    /// The transaction `txn`, and with it all before, is safe on disk: what they freed may be used again, and
    /// the groups rendered for them may be evicted. Call it after [`render_dirty`](Self::render_dirty) for
    /// the same transaction.
    pub fn committed(&self, txn: TxnId) {
        let mut done: Vec<GroupNr> = Vec::new();
        self.space.rendered.lock().retain_mut(|(id, groups)| {
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
            self.space.hold(group).committed(txn);
        }
    }

    /// Clusters a request may still take, the root reserve included. Clusters that wait for a commit are not
    /// among them; see [`counts`](Self::counts).
    #[must_use]
    pub fn free_clusters(&self) -> Clusters {
        self.space.counters.counts().available
    }

    /// Free clusters of the durable bitmaps. Exact while no transaction is open, whatever is reserved
    /// meanwhile.
    #[must_use]
    pub fn durable_free(&self) -> Clusters {
        self.space.counters.durable_free()
    }

    /// Where all free clusters stand.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.space.counters.counts()
    }

    /// Calls `visit` with every group and its clusters free in memory, in order, without locking or loading.
    pub fn for_each_group(&self, mut visit: impl FnMut(GroupNr, u32)) {
        for (nr, slot) in (0..self.space.layout.groups()).zip(&self.space.slots) {
            visit(GroupNr::new(nr), slot.free.load(Ordering::Relaxed));
        }
    }

    /// The maximal free runs of a group's durable bitmap, in order. None for a group that does not exist.
    ///
    /// # Errors
    /// Those of loading the group.
    pub fn free_runs(&self, group: GroupNr) -> Result<Vec<Run>, AllocError<S::Error>> {
        let len = self.space.layout.group_len(group);
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut words = Vec::new();
        self.open(group)?.group().render(&mut words);
        Ok(bits::clear_runs(&words, 0..len).map(|range| self.space.run(group, &range)).collect())
    }

    /// Drops up to `at_most` groups from memory that the source can give back as they are, and returns how
    /// many were dropped. Groups in use by others are passed over.
    pub fn evict(&self, at_most: usize) -> usize {
        let mut evicted = 0;
        for slot in &self.space.slots {
            if evicted >= at_most {
                break;
            }
            let Some(mut guard) = slot.group.try_lock() else { continue };
            if guard.as_ref().is_some_and(|group| group.is_idle()) {
                *guard = None;
                self.space.loaded.fetch_sub(1, Ordering::Relaxed);
                evicted += 1;
            }
        }
        evicted
    }

    /// Groups in memory.
    #[must_use]
    pub fn loaded_groups(&self) -> usize {
        index_of(u64::from(self.space.loaded.load(Ordering::Relaxed)))
    }
}
