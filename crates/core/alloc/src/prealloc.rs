//! Keeps space for what a file will probably write next.
//!
//! A preallocation is nothing but a [`Reservation`] that outlives its request, so it costs no I/O, shows in
//! no durable bitmap and is gone after a crash. There are two kinds:
//!
//! - a [`Window`] belongs to one file, and knows which clusters of the *file* its space is for;
//! - a *locality group* belongs to a thread, and serves the small files the thread makes one after the other,
//!   so that they lie side by side.
//!
//! How much is kept depends on the policy. The `mballoc` family, `best-fit` and `first-fit` do as the kernel
//! does: files over `mb_stream_req` blocks get the windows of [`crate::normalize`], smaller ones share
//! locality groups of `mb_group_prealloc` blocks. `size-class` and `hybrid` give *room to grow*: windows and
//! locality groups of up to a whole group while there is plenty of free space, laid one after the other
//! through the groups of the size class of the request; when a small file turns out to be a stream while it
//! is the last one of its locality group, it takes over the rest of the locality group. So files that grow
//! side by side don't fragment each other, and the space between them is filled without gaps.
//!
//! # No space
//! Whenever a request would fail for want of space, everything that is kept is given back first
//! ([`Preallocation::reserve`]), so "no space" stays exact: it is true of the free and the kept space
//! together. Kept space changes owner under the lock of its window or locality group, and goes back to the
//! allocator under it, so that a thread giving everything back waits for others that do. Where that is
//! impossible, on the way from the allocator to an owner or from one owner to another, space is counted as
//! moving ([`ReleaseEpoch`]), and a search that finds nothing looks again if something moved. A request that
//! has once found nothing asks for no more than it needs and moves nothing, so two of them don't keep each
//! other looking.
//!
//! Locks: a window's and a locality group's are never held while the allocator searches; only groups come
//! after them. A cursor's comes before all of these and is held during a search, reading from the device
//! included: the windows of one size class are laid out one at a time.
//!
//! Hazard: a window should be [discarded](Window::discard) before it is dropped: space on its way back from
//! a dropped one is invisible to requests that find nothing.
//!
//! What it is not: a promise. A window may vanish between two requests.

mod window;

pub use window::Window;

use crate::allocator::Allocator;
use crate::error::AllocError;
use crate::mechanism::Mechanism;
use crate::normalize;
use crate::release_epoch::ReleaseEpoch;
use crate::request::{GoalFrom, Request};
use crate::reservation::Reservation;
use crate::source::GroupSource;
use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, Weak, thread_number};
use crate::tunables::Config;
use hectare_units::{ClusterNr, Clusters, index_of, low32, u64_of};

/// Locality groups of the policies that give room to grow.
const SLOTS: usize = 64;
/// Windows for which one look at the index will do.
const OFFER_GOOD_FOR: u32 = 31;
/// Shards of the list of windows.
const SHARDS: usize = 16;
/// The share of the available space that is room for one: as many windows as there are locality groups, and
/// all locality groups, keep no more than half of it.
const ROOM_DIVISOR: u64 = 2 * u64_of(SLOTS);

/// What a file asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRequest {
    /// The file: its inode number.
    pub file: u32,
    /// The first cluster of the file that needs space.
    pub logical: u64,
    /// How many clusters need it now; at least 1.
    pub len: Clusters,
    /// Clusters of the file up to the end it has or will have with this request.
    pub size: u64,
    /// The cluster of the volume that would continue the file without a break, if its cluster before
    /// `logical` has space.
    pub continuation: Option<ClusterNr>,
    /// The first cluster of the file after `logical` that has space.
    pub right: Option<u64>,
    /// The goal of a file that has no space yet.
    pub home: ClusterNr,
    /// Whether the caller asked for space as such (fallocate): the kernel then keeps nothing for later.
    pub explicit: bool,
    /// Whether this is what was left when the file's last user closed it.
    pub closed: bool,
    /// Whether the clusters set aside for root may be taken.
    pub take_root_reserve: bool,
}

impl FileRequest {
    /// Where space would best start, and why there.
    fn goal(&self) -> Goal {
        self.continuation.map_or((self.home, GoalFrom::Home), |goal| (goal, GoalFrom::Continuation))
    }

    fn end(&self) -> u64 {
        self.logical.saturating_add(self.len.get())
    }
}

/// A goal and where it comes from.
type Goal = (ClusterNr, GoalFrom);

/// Space for the next small files of a thread.
#[derive(Default)]
struct LocalityGroup {
    space: Vec<Reservation>,
    /// The file that took the last piece, and the cluster of the file after it.
    last: (u32, u64),
}

/// A locality group on cache lines of its own: threads look into theirs all the time.
#[repr(align(64))]
#[derive(Default)]
struct Shelf(Mutex<LocalityGroup>);

impl LocalityGroup {
    /// The next piece, up to what is asked for; `None` if there is none.
    fn take(&mut self, request: &FileRequest) -> Option<Reservation> {
        let rest = self.space.first_mut()?.split_off(request.len);
        let taken =
            if rest.is_empty() { self.space.remove(0) } else { std::mem::replace(&mut self.space[0], rest) };
        self.last = (request.file, request.logical + taken.len().get());
        Some(taken)
    }
}

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    /// Nothing for files that have grown out of the locality groups.
    Nothing,
    /// The kernel's windows.
    Normalized,
    /// Up to a group, by size class.
    Roomy,
}

/// The preallocations of one volume. All methods may be called by any number of threads at once.
pub struct Preallocation {
    config: Config,
    growth: Growth,
    locality_groups: Box<[Shelf]>,
    windows: [Mutex<Vec<Weak<Window>>>; SHARDS],
    /// Where the last window of each size class ended.
    cursors: Box<[Mutex<Option<ClusterNr>>]>,
    /// Space on its way to be kept.
    release_epoch: ReleaseEpoch,
    /// What the index offered lately, by thread.
    offers: Box<[Offer]>,
}

/// What the index offered to a thread, and for how many more windows that will do.
#[repr(align(128))]
#[derive(Default)]
struct Offer {
    clusters: AtomicU64,
    good_for: AtomicU32,
}

impl Preallocation {
    /// Nothing is kept yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let has = |mechanism| config.policy.has(mechanism);
        let (growth, locality_groups) = if has(Mechanism::Room) {
            (Growth::Roomy, SLOTS)
        } else {
            let growth = if has(Mechanism::Windows) { Growth::Normalized } else { Growth::Nothing };
            (growth, std::thread::available_parallelism().map_or(1, usize::from).min(SLOTS))
        };
        Self {
            config,
            growth,
            locality_groups: std::iter::repeat_with(Shelf::default).take(locality_groups).collect(),
            windows: Default::default(),
            cursors: std::iter::repeat_with(Mutex::default).take(config.tunables.classes.count()).collect(),
            release_epoch: ReleaseEpoch::default(),
            offers: std::iter::repeat_with(Offer::default).take(SLOTS).collect(),
        }
    }

    /// Reserves as [`Allocator::reserve`] does; if nothing is left, what is kept is given back first.
    ///
    /// # Errors
    /// Those of [`Allocator::reserve`].
    pub fn reserve<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        request: &Request,
    ) -> Result<Reservation, AllocError<S::Error>> {
        let mut result = allocator.reserve(request);
        while is_refused(&result) {
            let seen = self.release_epoch.before();
            allocator.count_discarded(self.discard_all());
            result = allocator.reserve(request);
            if self.release_epoch.none_since(seen) {
                break;
            }
            crate::sync::thread::yield_now();
        }
        result
    }

    /// Space for a file: from its window, from the locality group of the thread, or newly reserved, with more
    /// kept for later. At least one cluster and at most those asked for, for the file's clusters from
    /// `logical` on.
    ///
    /// # Errors
    /// Those of [`Allocator::reserve`]; `NoSpace` only if nothing is left even after everything kept was
    /// given back.
    pub fn take<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        window: &Arc<Window>,
        request: &FileRequest,
    ) -> Result<Reservation, AllocError<S::Error>> {
        if let Some(space) = window.take(request.logical, request.len) {
            allocator.note_window(request.file, request.len, &space);
            return Ok(space);
        }
        // What is kept for a cluster of the file must be all there is for it.
        let right = request.right.into_iter().chain(window.next_after(request.logical)).min();
        let most = right.map_or(u64::MAX, |right| right - request.logical);
        let request = &FileRequest { len: request.len.min(Clusters::new(most)), right, ..*request };
        let result = match self.growth {
            Growth::Normalized if request.explicit => self.plain(allocator, request),
            _ if self.is_small(allocator, request) => self.locality_piece(allocator, request),
            Growth::Nothing => self.plain(allocator, request),
            Growth::Normalized if self.needs_no_window(allocator, request) => self.plain(allocator, request),
            Growth::Normalized => {
                let _releasing = self.release_epoch.releasing();
                self.normalized(allocator, window, request)
            }
            Growth::Roomy => {
                let _releasing = self.release_epoch.releasing();
                self.roomy(allocator, window, request)
            }
        };
        if is_refused(&result) {
            return self.reserve(allocator, &self.ask(request, request.goal(), request.len));
        }
        result
    }
}

/// Whether nothing was found in what can be read.
fn is_refused<E>(result: &Result<Reservation, AllocError<E>>) -> bool {
    result.as_ref().is_err_and(AllocError::is_refusal)
}

/// The ways to serve a file. They reserve without giving back what is kept: that is for when they fail.
impl Preallocation {
    /// Small files share locality groups.
    fn is_small<S: GroupSource>(&self, allocator: &Allocator<S>, request: &FileRequest) -> bool {
        let tunables = &allocator.state().tunables;
        let blocks = request.size.saturating_mul(self.config.cluster_blocks.into());
        self.config.policy.has(Mechanism::Locality)
            && tunables.mb_group_prealloc() > 0
            && blocks <= tunables.mb_stream_req().into()
    }

    /// The rest of a closed file up to its end: a window would be given back unused. Not so while group
    /// locks are contended. Source: the kernel's rule.
    fn needs_no_window<S: GroupSource>(&self, allocator: &Allocator<S>, request: &FileRequest) -> bool {
        self.config.policy.has(Mechanism::Contention)
            && request.closed
            && request.end() >= request.size
            && !allocator.state().contention.is_busy()
    }

    /// What a locality group is filled with, in the kernel's way.
    fn group_prealloc<S: GroupSource>(&self, allocator: &Allocator<S>) -> Clusters {
        let tunables = &allocator.state().tunables;
        let (blocks, stripe) = (tunables.mb_group_prealloc(), tunables.stripe().max(1));
        let blocks = blocks.checked_next_multiple_of(stripe).unwrap_or(blocks);
        Clusters::new(u64::from(blocks.div_ceil(self.config.cluster_blocks)))
    }

    /// Room for one window or locality group: a power of two, at most a group, and such that one for every
    /// locality group and as many files leave half of the space alone.
    fn room<S: GroupSource>(&self, allocator: &Allocator<S>) -> Clusters {
        let share = allocator.free_clusters().get() / ROOM_DIVISOR;
        let most = u64::from(allocator.layout().clusters_per_group());
        Clusters::new(share.checked_ilog2().map_or(0, |log| 1 << log).min(most))
    }

    /// About what [`Allocator::offer`] says, which looks at the whole index: asked once for many windows.
    fn recent_offer<S: GroupSource>(&self, allocator: &Allocator<S>) -> Clusters {
        let recent = &self.offers[thread_number() % SLOTS];
        let good_for = recent.good_for.load(Ordering::Relaxed);
        if good_for > 0 {
            recent.good_for.store(good_for - 1, Ordering::Relaxed);
            return Clusters::new(recent.clusters.load(Ordering::Relaxed));
        }
        let offer = allocator.offer();
        recent.clusters.store(offer.get(), Ordering::Relaxed);
        recent.good_for.store(OFFER_GOOD_FOR, Ordering::Relaxed);
        offer
    }

    /// Exactly the requested length.
    fn plain<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        request: &FileRequest,
    ) -> Result<Reservation, AllocError<S::Error>> {
        // The kernel tries the end of the last extent for windows only.
        if self.config.policy.has(Mechanism::Goal)
            && let Some(space) = self.continued(allocator, request, request.len, Clusters::ONE)?
        {
            return Ok(space);
        }
        allocator.reserve(&self.ask(request, request.goal(), request.len))
    }

    /// A request for data.
    fn ask(&self, request: &FileRequest, (goal, from): Goal, want: Clusters) -> Request {
        let ask = Request::new(goal, want).for_data(request.len).of_file(request.file, from);
        ask.with_root_reserve(request.take_root_reserve)
    }

    /// Space right after the file's last cluster before the request, at least `least`.
    fn continued<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        request: &FileRequest,
        want: Clusters,
        least: Clusters,
    ) -> Result<Option<Reservation>, AllocError<S::Error>> {
        if request.continuation.is_none() {
            return Ok(None);
        }
        allocator.reserve_at(&self.ask(request, request.goal(), want).at_least(least))
    }

    /// A piece of what the thread's locality group keeps, which is filled first if need be.
    fn locality_piece<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        request: &FileRequest,
    ) -> Result<Reservation, AllocError<S::Error>> {
        let number = thread_number() % self.locality_groups.len();
        let mut locality = self.locality_groups[number].0.lock();
        // A last piece that is too short goes back; one that others continue is used up.
        if locality.space.len() == 1 && locality.space[0].len() < request.len {
            locality.space.clear();
        }
        if let Some(taken) = locality.take(request) {
            allocator.note_slot(request.file, request.len, &taken);
            return Ok(taken);
        }
        drop(locality);
        let _releasing = self.release_epoch.releasing();
        let space = match self.growth {
            Growth::Nothing | Growth::Normalized => {
                let want = self.group_prealloc(allocator).max(request.len);
                vec![allocator.reserve(&self.ask(request, request.goal(), want))?]
            }
            Growth::Roomy => {
                let stream = low32(u64_of(number));
                self.spacious(allocator, request, stream, self.room(allocator))?
            }
        };
        let len = sum(&space);
        let mut locality = self.locality_groups[number].0.lock();
        // Another thread of this locality group may have filled it meanwhile: its space is given back.
        locality.space = space;
        let taken = locality.take(request).ok_or(AllocError::NoSpace)?;
        allocator.count_preallocated(len - taken.len());
        Ok(taken)
    }

    /// The kernel's way: the request is widened to a window of the file.
    fn normalized<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        window: &Arc<Window>,
        request: &FileRequest,
    ) -> Result<Reservation, AllocError<S::Error>> {
        let want = self.normalized_len(request, allocator.layout().clusters_per_group());
        if let Some(space) = self.continued(allocator, request, want, want)? {
            return Ok(self.keep_rest(allocator, window, request, space));
        }
        let ask = self.ask(request, request.goal(), want).on_stream(request.file);
        let space = allocator.reserve(&ask)?;
        Ok(self.keep_rest(allocator, window, request, space))
    }

    /// How many clusters of the file from the request on the kernel's table gives space at once, clipped to
    /// the hole and to what a group can hold.
    fn normalized_len(&self, request: &FileRequest, group: u32) -> Clusters {
        let bytes = self.config.cluster_bytes();
        let asked = request.logical.saturating_mul(bytes)..request.end().saturating_mul(bytes);
        let size = request.size.saturating_mul(bytes);
        let end = normalize::window_end(&asked, size, u64::from(self.config.block_bytes));
        let end = end.div_ceil(bytes).max(request.end()).min(request.right.unwrap_or(u64::MAX));
        Clusters::new((end - request.logical).min(group.into()))
    }

    /// Takes what the request needs of the front of new space, and keeps the rest.
    fn keep_rest<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        window: &Arc<Window>,
        request: &FileRequest,
        mut taken: Reservation,
    ) -> Reservation {
        let rest = taken.split_off(request.len);
        if !rest.is_empty() {
            let after = request.logical + taken.len().get();
            self.keep(allocator, window, request.file, after, rest);
        }
        taken
    }

    /// Keeps space for a file's clusters from `logical` on.
    fn keep<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        window: &Arc<Window>,
        file: u32,
        logical: u64,
        space: Reservation,
    ) {
        if !space.is_empty() {
            allocator.count_preallocated(space.len());
            window.keep(logical, space);
            self.register(window, file);
        }
    }

    /// Room to grow: a long window, what is left of the thread's locality group if the file was the last
    /// there.
    fn roomy<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        window: &Arc<Window>,
        request: &FileRequest,
    ) -> Result<Reservation, AllocError<S::Error>> {
        let room = self.room(allocator).max(Clusters::ONE);
        // To the end of an aligned window of the file: files whose lengths are powers of two leave nothing.
        let to_boundary = Clusters::new(room.get() - request.logical % room.get());
        let most = request.right.map_or(u64::MAX, |right| right - request.logical);
        let want = to_boundary.max(request.len).min(Clusters::new(most));
        let mut pieces = self.take_over(request).into_iter();
        if pieces.len() == 0 {
            pieces = self.spacious(allocator, request, request.file, want)?.into_iter();
        }
        let first = pieces.next().ok_or(AllocError::NoSpace)?;
        let mut logical = request.logical + first.len().get();
        let taken = self.keep_rest(allocator, window, request, first);
        for piece in pieces {
            let len = piece.len();
            self.keep(allocator, window, request.file, logical, piece);
            logical += len.get();
        }
        Ok(taken)
    }

    /// What the thread's locality group keeps, if the file took its last piece and continues where that
    /// ended.
    fn take_over(&self, request: &FileRequest) -> Vec<Reservation> {
        let mut locality = self.locality_groups[thread_number() % self.locality_groups.len()].0.lock();
        // It is as long as it is: nothing of the file may lie behind.
        if locality.last != (request.file, request.logical) || request.right.is_some() {
            return Vec::new();
        }
        std::mem::take(&mut locality.space)
    }

    /// Up to `want` clusters that lie one after the other, in as many groups as that takes: after the file's
    /// last cluster, else after the last window of the request's size class, else where the policy finds a
    /// first piece. Where free space is fragmented, one piece of the group that last served its stream. At
    /// least one piece, and no more than [`window::PIECES_MAX`].
    fn spacious<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        request: &FileRequest,
        stream: u32,
        want: Clusters,
    ) -> Result<Vec<Reservation>, AllocError<S::Error>> {
        let want = want.max(request.len);
        if want.min(self.recent_offer(allocator)) < self.group_prealloc(allocator) {
            // Little space is left, or it is fragmented: taking turns gains nothing, and streams that stay
            // apart don't wait for each other.
            if let Some(space) = self.continued(allocator, request, want, Clusters::ONE)? {
                return Ok(vec![space]);
            }
            let want = want.min(allocator.offer_to(stream)).max(request.len);
            let ask = self.ask(request, request.goal(), want).on_stream(stream);
            return Ok(vec![allocator.reserve(&ask)?]);
        }
        // One window at a time, or the next one would begin inside this one.
        let mut cursor = self.cursor(request.len).lock();
        let mut pieces = vec![self.first_piece(allocator, request, *cursor, want)?];
        let mut left = want - pieces[0].len().min(want);
        while left > Clusters::ZERO && pieces.len() < window::PIECES_MAX {
            let goal = pieces.last().map(|piece| piece.run().end()).expect("there is a first piece");
            let ask = self.ask(request, (goal, GoalFrom::Piece), left);
            let Some(next) = allocator.reserve_at(&ask)? else { break };
            left = left - next.len();
            pieces.push(next);
        }
        *cursor = pieces.last().map(|piece| piece.run().end());
        Ok(pieces)
    }

    /// The first piece of a window of `want` clusters.
    fn first_piece<S: GroupSource>(
        &self,
        allocator: &Allocator<S>,
        request: &FileRequest,
        cursor: Option<ClusterNr>,
        want: Clusters,
    ) -> Result<Reservation, AllocError<S::Error>> {
        if let Some(space) = self.continued(allocator, request, want, Clusters::ONE)? {
            return Ok(space);
        }
        let cursor = cursor.map(|goal| (goal, GoalFrom::Cursor));
        if let Some(goal) = cursor {
            let ask = self.ask(request, goal, want).at_least(request.len.min(self.group_prealloc(allocator)));
            if let Some(space) = allocator.reserve_at(&ask)? {
                return Ok(space);
            }
        }
        // A modest piece: the window extends from there as far as space is free.
        let probe = self.group_prealloc(allocator).max(request.len).min(allocator.offer()).min(want);
        let goal = cursor.unwrap_or_else(|| request.goal());
        allocator.reserve(&self.ask(request, goal, probe).packed())
    }

    /// Where the last window ended that was made for a request of the same size class.
    fn cursor(&self, len: Clusters) -> &Mutex<Option<ClusterNr>> {
        let class = self.config.tunables.classes.of(len.get().saturating_mul(self.config.cluster_bytes()));
        &self.cursors[class.index()]
    }

    /// Puts a window on the list of those that may be discarded.
    fn register(&self, window: &Arc<Window>, file: u32) {
        if window.registered.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut windows = self.windows[index_of(u64::from(file)) % SHARDS].lock();
        // Those of files long gone are dropped when the list would grow.
        if windows.len() == windows.capacity() {
            windows.retain(|window| window.strong_count() > 0);
        }
        windows.push(Arc::downgrade(window));
    }

    /// Gives back everything that is kept; how many clusters that was.
    pub fn discard_all(&self) -> Clusters {
        let mut freed = Clusters::ZERO;
        for shard in &self.windows {
            let windows: Vec<_> = shard.lock().iter().filter_map(Weak::upgrade).collect();
            freed = windows.iter().fold(freed, |sum, window| sum + window.discard());
        }
        for locality in &self.locality_groups {
            let mut locality = locality.0.lock();
            freed += sum(&locality.space);
            locality.space.clear();
        }
        freed
    }
}

/// The clusters of some reservations.
fn sum<'a>(space: impl IntoIterator<Item = &'a Reservation>) -> Clusters {
    space.into_iter().fold(Clusters::ZERO, |sum, space| sum + space.len())
}
