//! The allocator under shuttle: random and PCT schedules of a few threads, each lock and atomic a point where
//! another may run.
//!
//! Run with `cargo test -p hectare-alloc --features shuttle --test shuttle`.

#![allow(clippy::unwrap_used)] // the helpers of these tests are tests too

#[allow(dead_code)] // it uses some of it
#[path = "alloc/common.rs"]
mod common;

use common::{Disk, Txn};
use hectare_alloc::{
    AllocError, Allocator, Config, FileRequest, Layout, Policy, Preallocation, Request, Reservation, Run,
    Tunables, Window,
};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::{Runner, thread};
use std::sync::Arc as StdArc;

/// Stack of an explored thread; shuttle's own default is too small for unoptimised code.
const STACK: usize = 1 << 20;

/// Runs a scenario on random schedules and on PCT's.
fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = STACK;
        config
    };
    Runner::new(RandomScheduler::new(schedules), config()).run(scenario.clone());
    Runner::new(PctScheduler::new(3, schedules), config()).run(scenario);
}

fn allocator(policy: Policy, per_group: u32, groups: u32, flex_groups: u32) -> Arc<Allocator<Disk>> {
    let layout = Layout::new(per_group, Clusters::new(u64::from(per_group * groups))).unwrap();
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    // Clusters of 64 KiB: up to 2 are small.
    let config =
        Config { policy, tunables, cluster_blocks: 16, flex_groups, discard: true, ..Config::default() };
    Arc::new(Allocator::new(Disk::empty(layout), layout, config))
}

fn one(at: u64) -> Request {
    Request::new(ClusterNr::new(at), Clusters::ONE).for_data(Clusters::ONE)
}

fn data(at: u64, n: u64) -> Request {
    Request::new(ClusterNr::new(at), Clusters::new(n)).for_data(Clusters::new(n))
}

/// Two threads, each with one cluster, which it gives back after it has taken another. The requester has
/// one, the other two at most: of four clusters one is free at every moment. (What it would take for a search
/// to be wrong here is explored in `search/refusal_tests.rs`, with the last pass alone.)
fn never_refused(policy: Policy) {
    let allocator = allocator(policy, 1, 4, 1);
    let threads: Vec<_> = (0..2)
        .map(|nr| {
            let allocator = Arc::clone(&allocator);
            let mut mine = allocator.reserve(&one(nr)).unwrap();
            thread::spawn(move || {
                for step in 0..3 {
                    let next = allocator.reserve(&one(nr + step)).expect("one is free at every moment");
                    mine = next;
                }
                drop(mine);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(allocator.free_clusters().get(), 4);
    allocator.check().unwrap();
}

#[test]
fn a_request_that_fits_is_never_refused_while_space_moves() {
    for policy in [Policy::MBALLOC, Policy::FIRST_FIT, Policy::HYBRID] {
        explore(1500, move || never_refused(policy));
    }
}

/// A transaction per use, so that a commit may come between any two steps.
struct Volume {
    allocator: Arc<Allocator<Disk>>,
    running: Mutex<TxnId>,
}

impl Volume {
    fn in_txn<T>(&self, change: impl FnOnce(&mut Txn) -> T) -> T {
        let running = self.running.lock().unwrap();
        change(&mut Txn(*running))
    }

    fn commit(&self) {
        let mut rendered = Vec::new();
        let mut running = self.running.lock().unwrap();
        let txn = *running;
        let visit = |group: GroupNr, words: &[u64], _| {
            rendered.push((group, words.to_vec()));
            Ok::<(), ()>(())
        };
        self.allocator.render_dirty(txn, visit).unwrap();
        *running = txn.next();
        drop(running);
        for (group, words) in rendered {
            self.allocator.source().store(group, &words);
        }
        self.allocator.committed(txn);
    }
}

fn use_and_free(volume: &Volume, goal: u64) -> Option<Run> {
    let reserve = |n| match volume.allocator.reserve(&data(goal, n)) {
        Ok(reservation) => Some(reservation),
        Err(AllocError::NoSpace) => None,
        Err(error) => panic!("{error}"),
    };
    let first =
        volume.in_txn(|txn| reserve(3).map(|mut space: Reservation| space.publish_front(Clusters::ONE, txn)));
    if let Some(run) = first {
        volume.in_txn(|txn| volume.allocator.free(run, txn)).unwrap();
    }
    let second = reserve(2)?;
    Some(volume.in_txn(|txn| second.publish(txn)))
}

/// Two threads use and free, a third commits, discards and evicts.
fn commits_beside_use(policy: Policy) {
    let volume =
        Arc::new(Volume { allocator: allocator(policy, 4, 3, 1), running: Mutex::new(TxnId::new(u32::MAX)) });
    let workers: Vec<_> = [0, 4]
        .map(|goal| {
            let volume = Arc::clone(&volume);
            thread::spawn(move || use_and_free(&volume, goal))
        })
        .into_iter()
        .collect();
    for _ in 0..2 {
        volume.commit();
        drop(volume.allocator.take_discards(2));
        volume.allocator.evict(1);
    }
    let kept: Vec<Run> = workers.into_iter().filter_map(|worker| worker.join().unwrap()).collect();
    volume.commit();
    volume.commit();
    let used: u64 = kept.iter().map(|run| run.len.get()).sum();
    assert_eq!(volume.allocator.free_clusters().get(), 12 - used, "{kept:?}");
    assert_eq!(volume.allocator.durable_free().get(), 12 - used);
    volume.allocator.check().unwrap();
    for group in (0..3).map(GroupNr::new) {
        let runs = volume.allocator.free_runs(group).unwrap();
        let free: u64 = runs.iter().map(|run| run.len.get()).sum();
        assert_eq!(free, u64::from(volume.allocator.source().count_free(group)));
    }
}

#[test]
fn nothing_is_lost_or_given_twice_while_commits_discards_and_evictions_go_on() {
    for policy in [Policy::MBALLOC, Policy::HYBRID, Policy::BEST_FIT] {
        explore(700, move || commits_beside_use(policy));
    }
}

/// One group of a unit becomes empty while another thread enters the other group: at the end the unit's class
/// must be that of what is in it.
fn unset_beside_enter() {
    let allocator = allocator(Policy::SIZE_CLASS, 4, 4, 2);
    let small = allocator.reserve(&one(0)).unwrap();
    // Loaded, so that the threads have few steps to go.
    drop(allocator.reserve(&one(4)).unwrap());
    let beside = {
        let allocator = Arc::clone(&allocator);
        thread::spawn(move || allocator.reserve_at(&one(4)).unwrap())
    };
    drop(small);
    let beside = beside.join().unwrap().expect("the unit is for small ones, or unset");
    assert_eq!(beside.run().start.get(), 4);
    assert_eq!(allocator.class_counts(), Some(vec![1, 1, 0, 0]));
    allocator.check().unwrap();
    drop(beside);
    assert_eq!(allocator.class_counts(), Some(vec![2, 0, 0, 0]));
}

#[test]
fn a_class_is_never_taken_from_a_unit_in_use() {
    explore(5000, unset_beside_enter);
}

/// Appends to a file until there is no space, and gives back what is kept for it at the end.
fn append_until_refused(
    allocator: &Allocator<Disk>,
    prealloc: &Preallocation,
    refused: &AtomicBool,
    file: u32,
) -> Vec<Reservation> {
    let window = StdArc::<Window>::default();
    let mut space: Vec<Reservation> = Vec::new();
    for logical in 0.. {
        let was_refused = refused.load(Ordering::SeqCst);
        let request = FileRequest {
            file,
            logical,
            len: Clusters::ONE,
            size: logical + 1,
            continuation: space.last().map(|last| last.run().end()),
            right: None,
            home: ClusterNr::new(0),
            explicit: false,
            closed: false,
            take_root_reserve: false,
        };
        match prealloc.take(allocator, &window, &request) {
            Ok(taken) => {
                assert!(!was_refused, "{taken:?} is handed out after others were refused");
                space.push(taken);
            }
            Err(AllocError::NoSpace) => break,
            Err(other) => panic!("{other}"),
        }
    }
    refused.store(true, Ordering::SeqCst);
    space
}

/// No thread gives space back, so once one was refused, none may get any: what one thread keeps, or is about
/// to, is not "used" for another.
fn refused_for_good(policy: Policy) {
    let allocator = allocator(policy, 8, 2, 1);
    let prealloc = Arc::new(Preallocation::new(allocator.config()));
    let refused = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (1..3)
        .map(|file| {
            let (allocator, prealloc, refused) =
                (Arc::clone(&allocator), Arc::clone(&prealloc), Arc::clone(&refused));
            thread::spawn(move || append_until_refused(&allocator, &prealloc, &refused, file))
        })
        .collect();
    // All held to the end: what is dropped is free again.
    let taken: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 16);
}

#[test]
fn space_on_its_way_to_be_kept_is_no_reason_to_refuse() {
    for policy in [Policy::MBALLOC, Policy::HYBRID] {
        explore(500, move || refused_for_good(policy));
    }
}
