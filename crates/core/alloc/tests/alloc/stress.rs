//! Real threads on one allocator, ending in a full recount.

use crate::common::{Disk, Txn, Unreadable};
use hectare_alloc::{
    AllocError, Allocator, Config, GroupSource, Layout, Policy, Request, Reservation, Run, Tunables,
};
use hectare_units::random::SplitMix64;
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, u64_of};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;

fn layout(per_group: u32, total: u64) -> Layout {
    Layout::new(per_group, Clusters::new(total)).unwrap()
}

fn empty(per_group: u32, total: u64) -> Allocator<Disk> {
    let layout = layout(per_group, total);
    Allocator::new(Disk::empty(layout), layout, Config::default())
}

/// An allocator with everything on: index, flex groups, discard.
fn with(policy: Policy, per_group: u32, total: u64) -> Allocator<Disk> {
    let layout = layout(per_group, total);
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    let config =
        Config { policy, tunables, flex_groups: 2, cluster_blocks: 16, discard: true, ..Config::default() };
    Allocator::new(Disk::empty(layout), layout, config)
}

/// An allocator with the smallest possible transactions over it.
struct Volume {
    allocator: Allocator<Disk>,
    barrier: RwLock<()>,
    running: AtomicU32,
}

impl Volume {
    fn in_txn<T>(&self, change: impl FnOnce(&mut Txn) -> T) -> T {
        let _open = self.barrier.read().unwrap();
        change(&mut Txn(TxnId::new(self.running.load(Ordering::SeqCst))))
    }

    fn commit(&self) {
        let mut frozen = Vec::new();
        let closed = self.barrier.write().unwrap();
        let txn = TxnId::new(self.running.fetch_add(1, Ordering::SeqCst));
        let visit = |group, words: &[u64], _| {
            frozen.push((group, words.to_vec()));
            Ok::<(), ()>(())
        };
        self.allocator.render_dirty(txn, visit).unwrap();
        let free: u64 = frozen.iter().map(|(_, words)| zeros(words)).sum();
        assert!(free <= self.allocator.durable_free().get());
        drop(closed);
        thread::yield_now();
        for (group, words) in frozen {
            self.allocator.source().store(group, &words);
        }
        self.allocator.committed(txn);
    }
}

fn zeros(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_zeros())).sum()
}

/// One thread's life: take, publish or drop, free again. Returns the clusters it keeps.
fn churn(volume: &Volume, seed: u64, rounds: u32) -> Vec<Run> {
    let mut rng = SplitMix64::new(seed);
    let mut mine: Vec<Run> = Vec::new();
    for _ in 0..rounds {
        let total = volume.allocator.layout().total().get();
        let request = Request::new(ClusterNr::new(rng.below(total)), Clusters::new(1 + rng.below(12)));
        let request =
            if rng.below(4) > 0 { request.for_data(Clusters::new(1 + rng.below(5))) } else { request };
        match volume.allocator.reserve(&request) {
            Ok(mut reservation) => match rng.below(4) {
                0 => drop(reservation),
                1 => {
                    let rest = reservation.split_off(Clusters::ONE);
                    mine.push(volume.in_txn(|txn| rest.publish(txn)));
                }
                _ => mine.push(volume.in_txn(|txn| reservation.publish(txn))),
            },
            Err(AllocError::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        if mine.len() > 40 || rng.below(3) == 0 {
            let at = usize::try_from(rng.below(u64_of(mine.len().max(1)))).unwrap();
            if at < mine.len() {
                let run = mine.swap_remove(at);
                volume.in_txn(|txn| volume.allocator.free(run, txn)).unwrap();
            }
        }
    }
    mine
}

/// Keeps committing and evicting until the workers are done.
fn commit_beside<T>(volume: &Volume, workers: &[thread::ScopedJoinHandle<'_, T>]) {
    while workers.iter().any(|worker| !worker.is_finished()) {
        volume.commit();
        volume.allocator.evict(2);
        drop(volume.allocator.take_discards(3));
    }
}

#[test]
fn threads_share_a_volume_and_the_recount_is_exact() {
    for policy in Policy::ALL {
        let volume = Volume {
            allocator: with(policy, 500, 5 * 500 + 123),
            barrier: RwLock::new(()),
            running: AtomicU32::new(7),
        };
        let kept: Vec<Run> = thread::scope(|scope| {
            let volume = &volume;
            let workers: Vec<_> =
                (0..8).map(|seed| scope.spawn(move || churn(volume, seed, 5_000))).collect();
            commit_beside(volume, &workers);
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        recount(&volume, &kept, policy);
    }
}

/// Counts everything again, cluster by cluster, after the last commit.
fn recount(volume: &Volume, kept: &[Run], policy: Policy) {
    volume.commit();
    volume.commit();
    let mut used = BTreeSet::new();
    for run in kept {
        for at in run.start.get()..run.start.get() + run.len.get() {
            assert!(used.insert(at), "{policy}: cluster {at} was given to two owners");
        }
    }
    let total = volume.allocator.layout().total().get();
    for at in 0..total {
        let (group, within) = volume.allocator.layout().locate(ClusterNr::new(at)).unwrap();
        let on_disk = volume.allocator.source().is_used(group, within);
        assert_eq!(on_disk, used.contains(&at), "{policy}: cluster {at}");
    }
    let counts = volume.allocator.counts();
    assert_eq!(counts.available.get(), total - u64_of(used.len()), "{policy}");
    assert_eq!(
        (counts.reserved, counts.pending, counts.claimed),
        (Clusters::ZERO, Clusters::ZERO, Clusters::ZERO)
    );
    let mut by_group = 0;
    volume.allocator.for_each_group(|_, free| by_group += u64::from(free));
    assert_eq!(by_group, counts.available.get());
    volume.allocator.check().unwrap();
}

/// Takes space with random lengths until there is none.
fn fill(allocator: &Allocator<Disk>, seed: u64, root: bool, all: &Mutex<Vec<Reservation>>) {
    let mut rng = SplitMix64::new(seed);
    let total = allocator.layout().total().get();
    loop {
        let want = Clusters::new(1 + rng.below(6));
        let mut request = Request::new(ClusterNr::new(rng.below(total)), want).with_root_reserve(root);
        if rng.below(4) > 0 {
            request = request.for_data(Clusters::new(1 + rng.below(want.get())));
        }
        if rng.below(3) == 0 {
            request = request.on_stream(u32::try_from(seed).unwrap());
        }
        match allocator.reserve(&request) {
            Ok(reservation) => all.lock().unwrap().push(reservation),
            Err(AllocError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_last_cluster_can_be_had_and_no_more_by_64_threads() {
    for policy in Policy::ALL {
        let (total, reserve) = (40 * 64 + 5, 7);
        let allocator = with(policy, 64, total);
        allocator.set_root_reserve(Clusters::new(reserve));
        let all = Mutex::new(Vec::new());
        for root in [false, true] {
            thread::scope(|scope| {
                for seed in 0..64 {
                    let (allocator, all) = (&allocator, &all);
                    scope.spawn(move || fill(allocator, seed, root, all));
                }
            });
            let left = if root { 0 } else { reserve };
            assert_eq!(allocator.free_clusters().get(), left, "{policy}: all but the root reserve");
            allocator.check().unwrap();
        }
        let mut all = all.into_inner().unwrap();
        all.sort_by_key(|one| one.run().start);
        let sum: u64 = all.iter().map(|one| one.len().get()).sum();
        assert_eq!(sum, total, "{policy}");
        let apart = |pair: &[Reservation]| pair[0].run().start + pair[0].len() <= pair[1].run().start;
        assert!(all.windows(2).all(apart), "{policy}: no cluster was given twice");
        drop(all);
        assert_eq!(allocator.free_clusters().get(), total);
        allocator.check().unwrap();
    }
}

#[test]
fn a_request_that_fits_is_never_refused_while_space_moves_between_threads() {
    // Each thread takes its next cluster before it drops its last one, and there are two for each: some
    // cluster is free at every moment, so any refusal would be a lie. The groups are many and tiny, so that a
    // search takes long and the few free clusters move behind its back.
    for policy in Policy::ALL {
        never_refused(policy);
    }
}

fn never_refused(policy: Policy) {
    let (groups, threads) = (2048, 2);
    let allocator = with(policy, 1, groups);
    let request = |at| Request::new(ClusterNr::new(at), Clusters::ONE).for_data(Clusters::ONE);
    let one = |at| allocator.reserve(&request(at)).unwrap();
    let one = &one;
    let taken: Vec<_> = (0..groups - 2 * threads).map(one).collect();
    thread::scope(|scope| {
        for seed in 0..threads {
            scope.spawn(move || {
                let mut rng = SplitMix64::new(seed);
                let mut last = one(rng.below(groups));
                for _ in 0..5_000 {
                    last = one(rng.below(groups));
                }
                drop(last);
            });
        }
    });
    drop(taken);
    assert_eq!(allocator.free_clusters().get(), groups);
}

#[test]
fn a_group_rendered_for_a_later_transaction_stays_in_memory() {
    let allocator = empty(64, 64);
    let [first, second] = [1, 2].map(TxnId::new);
    let use_one = |at| allocator.mark_used(Run::new(ClusterNr::new(at), Clusters::ONE)).unwrap();
    let render = |txn| allocator.render_dirty(txn, |_, _, _| Ok::<(), ()>(())).unwrap();
    use_one(0);
    render(first);
    use_one(1);
    render(second);
    allocator.committed(first);
    assert_eq!(allocator.evict(1), 0, "the source does not have cluster 1 yet");
    allocator.committed(second);
    assert_eq!(allocator.evict(1), 1);
}

#[test]
fn groups_that_can_not_serve_are_not_loaded() {
    let allocator = empty(100, 1000);
    let first = allocator.reserve(&Request::new(ClusterNr::new(300), Clusters::new(10))).unwrap();
    assert_eq!(first.run().start.get(), 300);
    assert_eq!(allocator.loaded_groups(), 1);
    // The goal's group has 90 left: only the next one is asked.
    let second = allocator.reserve(&Request::new(ClusterNr::new(310), Clusters::new(100))).unwrap();
    assert_eq!(second.run(), Run::new(ClusterNr::new(400), Clusters::new(100)));
    assert_eq!(allocator.loaded_groups(), 2);
}

/// A source whose descriptors lie.
struct Liar(Layout);

impl GroupSource for Liar {
    type Error = Unreadable;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Self::Error> {
        match group.get() {
            0 => Err(Unreadable(group)),
            1 => Ok(vec![0xff]),
            2 => Ok(Vec::new()),
            _ => Ok(vec![0; 900]),
        }
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        if group.get() == 4 { u32::MAX } else { 64 }
    }
}

#[test]
fn bad_bitmaps_are_errors_that_name_the_group() {
    let layout = layout(64, 5 * 64);
    let allocator = Allocator::new(Liar(layout), layout, Config::default());
    assert_eq!(allocator.source().0, layout);
    let try_group = |group: u64| {
        let goal = ClusterNr::new(group * 64);
        let exactly = Request::new(goal, Clusters::ONE).exactly_at_goal();
        allocator.reserve(&exactly).map_err(|error| error.to_string())
    };
    assert_eq!(try_group(0).unwrap_err(), "group 0 can't be read");
    assert_eq!(try_group(1).unwrap_err(), "group 1 announces 64 free clusters, its bitmap has 56");
    assert_eq!(try_group(2).unwrap_err(), "group 2 announces 64 free clusters, its bitmap has 0");
    assert_eq!(try_group(4).unwrap_err(), "group 4 announces 4294967295 free clusters, its bitmap has 64");
    assert_eq!(try_group(3).unwrap().run().start.get(), 192, "surplus words are ignored");
    assert_eq!(allocator.loaded_groups(), 1);
}

#[test]
fn misuse_is_refused_by_name() {
    let allocator = empty(64, 128);
    let mut txn = Txn(TxnId::new(1));
    let run = |start, len| Run::new(ClusterNr::new(start), Clusters::new(len));
    let held = allocator.reserve(&Request::new(ClusterNr::new(10), Clusters::new(4))).unwrap();
    let refused = |result: Result<(), AllocError<Unreadable>>| result.unwrap_err().to_string();
    assert_eq!(refused(allocator.free(held.run(), &mut txn)), "cluster 10 is freed but is not in use");
    assert_eq!(
        refused(allocator.mark_used(run(8, 4))),
        "cluster 10 is marked used while it is reserved or being freed"
    );
    assert_eq!(
        refused(allocator.free(run(127, 2), &mut txn)),
        "cluster 127 is beyond the end of the volume (128 clusters)"
    );
    allocator.mark_used(run(60, 8)).unwrap();
    allocator.mark_used(run(60, 8)).unwrap();
    assert_eq!(allocator.durable_free().get(), 120);
    allocator.free(run(60, 8), &mut txn).unwrap();
    assert_eq!(refused(allocator.free(run(62, 1), &mut txn)), "cluster 62 is freed but is not in use");
    assert_eq!(allocator.free_clusters().get(), 128 - 4 - 8, "freed clusters wait for the commit");
}

#[test]
fn a_failed_rendering_leaves_its_groups_dirty() {
    let allocator = empty(64, 3 * 64);
    for start in [0, 64, 128] {
        allocator.mark_used(Run::new(ClusterNr::new(start), Clusters::ONE)).unwrap();
    }
    let mut visited = Vec::new();
    let mut render = |fail_at: u32| {
        visited.clear();
        let result = allocator.render_dirty(TxnId::new(1), |group, _, _| {
            visited.push(group.get());
            if group.get() == fail_at { Err(()) } else { Ok(()) }
        });
        (visited.clone(), result.is_ok())
    };
    assert_eq!(render(1), (vec![0, 1], false));
    assert_eq!(render(9), (vec![1, 2], true));
    assert_eq!(render(9), (vec![], true));
}

#[test]
fn groups_leave_memory_when_the_device_refuses_to_discard() {
    let allocator = with(Policy::MBALLOC, 64, 4 * 64);
    let mut txn = Txn(TxnId::new(1));
    let use_and_free = |txn: &mut Txn| {
        let run = allocator.reserve(&Request::new(ClusterNr::new(0), Clusters::new(8))).unwrap().publish(txn);
        allocator.free(run, txn).unwrap();
        let store = |group, words: &[u64], _| {
            allocator.source().store(group, words);
            Ok::<(), std::convert::Infallible>(())
        };
        allocator.render_dirty(txn.0, store).unwrap();
        allocator.committed(txn.0);
        txn.0 = txn.0.next();
    };
    use_and_free(&mut txn);
    let loaded = allocator.loaded_groups();
    assert!(allocator.evict(usize::MAX) < loaded, "what waits to be discarded keeps its group");
    allocator.stop_discards();
    allocator.evict(usize::MAX);
    assert_eq!(allocator.loaded_groups(), 0);
    use_and_free(&mut txn);
    assert!(allocator.take_discards(usize::MAX).is_empty(), "nothing is remembered any more");
    allocator.evict(usize::MAX);
    assert_eq!(allocator.loaded_groups(), 0);
    allocator.check().unwrap();
}
