//! What is read from the source, and when: of a volume with a hundred million groups only what is touched.
//! And that this overlooks nothing.

use crate::common::{Txn, Unreadable};
use hectare_alloc::{AllocError, Allocator, Config, GroupSource, Layout, Policy, Request, Tunables};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, usize_of};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const PER_GROUP: u32 = 1024;
/// Groups whose numbers the source has together.
const TOGETHER: u32 = 64;
const MANY: u32 = 100_000_000;

/// Groups that are free but for some, of which nothing is kept.
struct Vast {
    layout: Layout,
    total: u64,
    /// Whether all clusters of a group are in use.
    full: fn(GroupNr) -> bool,
    /// Groups of pages that can't be read.
    unreadable: Range<u32>,
    /// How often that was tried.
    failed: AtomicU32,
    prepared: Mutex<Vec<Range<u32>>>,
    hints: AtomicU32,
    loads: AtomicU32,
    counts: AtomicU32,
}

impl Vast {
    fn new(groups: u32, full: fn(GroupNr) -> bool) -> Self {
        let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(groups) * u64::from(PER_GROUP))).unwrap();
        Self {
            layout,
            total: layout.total().get(),
            full,
            unreadable: 0..0,
            failed: AtomicU32::new(0),
            prepared: Mutex::default(),
            hints: AtomicU32::new(0),
            loads: AtomicU32::new(0),
            counts: AtomicU32::new(0),
        }
    }

    fn allocator(self, policy: Policy) -> Allocator<Self> {
        let layout = self.layout;
        let config = Config { policy, flex_groups: 16, ..Config::default() };
        Allocator::new(self, layout, config)
    }

    /// Pages made ready, groups asked for, groups loaded.
    fn asked(&self) -> (usize, u32, u32) {
        let prepared = self.prepared.lock().unwrap().len();
        (prepared, self.hints.load(Ordering::Relaxed), self.loads.load(Ordering::Relaxed))
    }
}

impl GroupSource for Vast {
    type Error = Unreadable;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Unreadable> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let word = if (self.full)(group) { u64::MAX } else { 0 };
        Ok(vec![word; usize_of(PER_GROUP / 64)])
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        self.hints.fetch_add(1, Ordering::Relaxed);
        let prepared = self.prepared.lock().unwrap();
        assert!(prepared.iter().any(|page| page.contains(&group.get())), "{group} was made ready");
        if (self.full)(group) { 0 } else { self.layout.group_len(group) }
    }

    fn free_total(&self) -> Option<Clusters> {
        Some(Clusters::new(self.total))
    }

    fn together(&self) -> u32 {
        TOGETHER
    }

    fn prepare(&self, groups: Range<u32>) -> Result<(), Unreadable> {
        if self.unreadable.contains(&groups.start) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Err(Unreadable(GroupNr::new(groups.start)));
        }
        self.prepared.lock().unwrap().push(groups);
        Ok(())
    }

    fn count_free(&self, groups: Range<u32>) -> Result<u64, Unreadable> {
        self.counts.fetch_add(1, Ordering::Relaxed);
        Ok(groups.map(GroupNr::new).filter(|group| !(self.full)(*group)).count() as u64
            * u64::from(PER_GROUP))
    }

    fn needs_io(&self, group: GroupNr) -> bool {
        (self.full)(group)
    }
}

fn cluster(group: u32) -> u64 {
    u64::from(group) * u64::from(PER_GROUP)
}

fn data(goal: u64, want: u64) -> Request {
    Request::new(ClusterNr::new(goal), Clusters::new(want)).for_data(Clusters::new(want))
}

#[test]
fn a_hundred_million_groups_are_opened_and_used_by_touching_a_few() {
    // Best fit goes over all groups by nature.
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::BEST_FIT) {
        let allocator = Vast::new(MANY, |_| false).allocator(policy);
        assert_eq!(allocator.source().asked(), (0, 0, 0), "{policy}: making an allocator asks nothing");
        assert_eq!(allocator.free_clusters(), allocator.layout().total());
        assert_eq!(allocator.offer().get(), u64::from(PER_GROUP));
        let mut txn = Txn(TxnId::new(1));
        let goal = cluster(MANY / 2 + 3);
        for want in [1, 16, 100, 1024] {
            allocator.reserve(&data(goal, want)).unwrap().publish(&mut txn);
        }
        allocator.reserve(&Request::new(ClusterNr::new(goal), Clusters::ONE)).unwrap().publish(&mut txn);
        let (pages, hints, loads) = allocator.source().asked();
        assert!(pages <= 2, "{policy}: {pages} pages were read");
        assert!(hints <= 64 * 2 && loads <= 4, "{policy}: {hints} hints, {loads} loads");
        allocator.render_dirty(TxnId::new(1), |_, _, _| Ok::<_, ()>(())).unwrap();
        allocator.committed(TxnId::new(1));
        allocator.evict(usize::MAX);
        assert_eq!(allocator.loaded_groups(), 0);
        let used = allocator.layout().total().get() - allocator.durable_free().get();
        assert_eq!(used, 1 + 16 + 100 + 1024 + 1);
        assert_eq!(
            allocator.source().asked(),
            (pages, hints, loads),
            "{policy}: what is closed is what was touched"
        );
    }
}

#[test]
fn the_one_group_with_space_is_found_wherever_it_is() {
    for policy in Policy::ALL {
        for goal in [0, 699, 999] {
            let mut source = Vast::new(1000, |group| group.get() != 700);
            source.total = u64::from(PER_GROUP);
            let allocator = source.allocator(policy);
            let got = allocator.reserve(&data(cluster(goal), 8)).unwrap();
            assert_eq!(allocator.layout().locate(got.run().start).unwrap().0.get(), 700, "{policy}");
            allocator.check().unwrap();
            let all = u64::from(PER_GROUP);
            let whole = Request { min: Clusters::new(all), ..data(cluster(goal), all) };
            assert!(matches!(allocator.reserve(&whole), Err(AllocError::NoSpace)), "{policy}");
            assert_eq!(
                allocator.reserve(&data(cluster(goal), all)).unwrap().len().get(),
                all - 8,
                "{policy}"
            );
            allocator.check().unwrap();
        }
    }
}

#[test]
fn a_total_that_is_wrong_refuses_nobody() {
    let full = |group: GroupNr| group.get() % 2 == 1;
    let free = 500 * u64::from(PER_GROUP);
    for (total, least) in [(0, 1), (7, 100), (free - 1, free), (free + 5000, free + 1)] {
        let mut source = Vast::new(1000, full);
        source.total = total;
        let allocator = source.allocator(Policy::HYBRID);
        assert_eq!(allocator.free_clusters().get(), total);
        let claim = allocator.claim(Clusters::new(least), false);
        assert_eq!(claim.is_ok(), least <= total.max(free), "{least} of {total}, said to be, {free}");
        let counted = allocator.source().counts.load(Ordering::Relaxed);
        assert_eq!(counted > 0, least > total, "all is counted only before a refusal");
        drop(claim);
        allocator.check().unwrap();
        let got: Vec<_> =
            (0..500).map(|group| allocator.reserve(&data(cluster(2 * group), 1024)).unwrap()).collect();
        assert!(matches!(allocator.reserve(&data(0, 1)), Err(AllocError::NoSpace)));
        assert_eq!(allocator.free_clusters(), Clusters::ZERO, "put right when nothing is unread: {total}");
        allocator.check().unwrap();
        drop(got);
        assert_eq!(allocator.counts().available.get(), free);
        assert_eq!(allocator.durable_free().get(), free);
    }
}

#[test]
fn groups_that_cannot_be_read_about_are_an_error_for_who_needs_them() {
    for policy in Policy::ALL {
        let source = Vast { unreadable: 64..128, ..Vast::new(256, |group| group.get() >= 192) };
        let allocator = source.allocator(policy);
        let at = |group| allocator.reserve(&data(cluster(group), 4)).map_err(|error| error.to_string());
        let metadata = Request::new(ClusterNr::new(cluster(70)), Clusters::ONE);
        let exactly = allocator.reserve(&metadata.exactly_at_goal()).unwrap_err();
        assert_eq!(exactly.to_string(), "group 64 can't be read", "{policy}");
        let elsewhere = [allocator.reserve(&metadata).unwrap(), at(200).unwrap()];
        for space in &elsewhere {
            let group = allocator.layout().locate(space.run().start).unwrap().0.get();
            assert!(!(64..128).contains(&group), "{policy}: {group}");
        }
        // All others taken: a request that can't look everywhere must not report that there is no space.
        let mut held = Vec::from(elsewhere);
        let error = loop {
            match allocator.reserve(&Request { min: Clusters::ONE, ..data(cluster(200), 1024) }) {
                Ok(more) => held.push(more),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "group 64 can't be read", "{policy}");
        let before = allocator.source().failed.load(Ordering::Relaxed);
        allocator.reserve(&data(cluster(200), 1)).unwrap_err();
        let tried = allocator.source().failed.load(Ordering::Relaxed) - before;
        assert!(tried <= 8, "{policy}: a page is tried once a pass, not once a group: {tried}");
        let taken: u64 = held.iter().map(|held| held.len().get()).sum();
        assert_eq!(taken, 128 * u64::from(PER_GROUP), "{policy}");
        allocator.check().unwrap();
    }
}

#[test]
fn a_search_without_reads_left_goes_on_with_what_it_knows() {
    // Every page has one free group, in its middle; the index is used, so the budget of reads counts.
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    let source = Vast::new(64 * 1000, |group| group.get() % 64 != 32);
    let layout = source.layout;
    let config = Config { policy: Policy::MBALLOC, tunables, flex_groups: 16, ..Config::default() };
    let allocator = Allocator::new(source, layout, config);
    let got = allocator.reserve(&data(cluster(33), 512)).unwrap();
    assert_eq!(layout.locate(got.run().start).unwrap().0.get(), 64 + 32);
    // No group has so much: the passes that may give up do so long before all is read, the last may not.
    let most = Request { min: Clusters::new(1024), ..data(cluster(33), 1024) };
    let whole: Vec<_> = (0..999).map(|_| allocator.reserve(&most).unwrap()).collect();
    assert!(matches!(allocator.reserve(&most), Err(AllocError::NoSpace)));
    assert_eq!(whole.len(), 999);
    assert_eq!(allocator.source().asked().0, 1000);
    allocator.check().unwrap();
}
