//! Tunables set while a volume is in use apply to the next request.

use crate::common::Disk;
use hectare_alloc::{
    Allocator, Config, FileRequest, Layout, Policy, Preallocation, Request, Reservation, StatsSnapshot,
    Tunables,
};
use hectare_units::{ClusterNr, Clusters, GroupNr};

const PER_GROUP: u32 = 1024;

/// Groups of which `used` says what is in use, all in memory.
fn patterned(policy: Policy, groups: u32, used: fn(u32) -> bool) -> Allocator<Disk> {
    let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(groups * PER_GROUP))).unwrap();
    let config = Config { policy, ..Config::default() };
    let allocator = Allocator::new(Disk::patterned(layout, |_, at| used(at)), layout, config);
    for group in 0..groups {
        allocator.group_summary(GroupNr::new(group)).unwrap();
    }
    allocator
}

/// Twenty groups in which every other run of 16 clusters is free.
fn cut_up(policy: Policy) -> Allocator<Disk> {
    patterned(policy, 20, |at| at / 16 % 2 == 1)
}

fn data(goal: u64, want: u64, asked: u64) -> Request {
    Request::new(ClusterNr::new(goal), Clusters::new(want)).for_data(Clusters::new(asked))
}

/// What a request counted after a tunable was set.
fn after(allocator: &Allocator<Disk>, set: &[&str], request: Request) -> (Reservation, StatsSnapshot) {
    allocator.set_tunables(set.iter().copied()).unwrap();
    let before = allocator.stats();
    let got = allocator.reserve(&request).unwrap();
    (got, allocator.stats().minus(&before))
}

#[test]
fn the_limits_of_a_scan() {
    let allocator = cut_up(Policy::MBALLOC);
    let scanned = |set: &[&str], want, asked| {
        after(&allocator, set, data(8, want, asked)).1.passes.goal_slow.extents_scanned
    };
    assert_eq!(scanned(&[], 500, 500), 201);
    assert_eq!(scanned(&["mb_max_to_scan=20"], 500, 500), 21);
    assert_eq!(allocator.tunables().mb_max_to_scan, 20);
    // A run of 24 is long enough, and after that many runs nothing better is looked for.
    let linear = patterned(Policy::MBALLOC_LINEAR, 1, |at| at >= 24 && (at % 4 >= 2 || at < 64));
    let content = |set: &[&str]| after(&linear, set, data(500, 18, 18)).1.passes.goal_slow.extents_scanned;
    assert_eq!((content(&[]), content(&["mb_min_to_scan=3"])), (11, 4));
}

#[test]
fn the_index_and_how_far_a_goal_is_trimmed() {
    let allocator = cut_up(Policy::MBALLOC);
    let hits = |set: &[&str]| {
        let passes = after(&allocator, set, data(8, 64, 10)).1.passes;
        (passes.best_avail.hits, passes.goal_slow.hits)
    };
    assert_eq!(hits(&[]), (1, 0), "trimmed by two orders");
    assert_eq!(hits(&["mb_best_avail_max_trim_order=1"]), (0, 1));
    assert_eq!(hits(&["mb_best_avail_max_trim_order=2"]), (1, 0));
    assert_eq!(hits(&["mb_optimize_scan=0"]), (0, 1), "without the index there is no such pass");
    assert!(allocator.structs_summary().starts_with("optimize_scan: 0\n"));
    assert_eq!(hits(&["mb_optimize_scan=1"]), (1, 0));
}

#[test]
fn the_order_of_aligned_requests_and_the_stripe() {
    let allocator = cut_up(Policy::MBALLOC);
    let aligned = |set: &[&str]| after(&allocator, set, data(8, 16, 16)).1.passes.p2_aligned.hits;
    assert_eq!((aligned(&[]), aligned(&["mb_order2_req=6"]), aligned(&["mb_order2_req=5"])), (1, 0, 1));
    let start = |set: &[&str]| after(&allocator, set, data(1024 + 8, 12, 12)).0.run().start.get();
    assert_eq!((start(&[]), start(&["stripe=12"])), (1024, 1056));
}

#[test]
fn groups_that_are_looked_at_in_order() {
    let allocator = cut_up(Policy::MBALLOC);
    let considered =
        |set: &[&str]| after(&allocator, set, data(8, 40, 12)).1.passes.goal_fast.groups_considered;
    assert_eq!((considered(&[]), considered(&["mb_max_linear_groups=4"])), (0, 4));
}

/// Clusters that are set aside for others when a file of `len` clusters asks for all of them.
fn set_aside(allocator: &Allocator<Disk>, set: &[&str], len: u64) -> u64 {
    allocator.set_tunables(set.iter().copied()).unwrap();
    let prealloc = Preallocation::new(allocator.config());
    let request = FileRequest {
        file: 7,
        logical: 0,
        len: Clusters::new(len),
        size: len,
        continuation: None,
        right: None,
        home: ClusterNr::new(u64::from(PER_GROUP)),
        explicit: false,
        closed: false,
        take_root_reserve: false,
    };
    let before = allocator.stats().preallocated;
    drop(prealloc.take(allocator, &std::sync::Arc::default(), &request).unwrap());
    prealloc.discard_all();
    allocator.stats().preallocated - before
}

#[test]
fn what_small_files_share() {
    let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(20 * PER_GROUP))).unwrap();
    let config = Config { policy: Policy::MBALLOC, ..Config::default() };
    let allocator = Allocator::new(Disk::empty(layout), layout, config);
    assert_eq!(set_aside(&allocator, &[], 10), 502, "from shared space of 512");
    assert_eq!(set_aside(&allocator, &["mb_group_prealloc=64"], 10), 54);
    assert_eq!(set_aside(&allocator, &["stripe=48"], 10), 86, "whole stripes");
    assert_eq!(set_aside(&allocator, &["mb_group_prealloc=4294967295"], 10), 1014, "no more than a group");
    assert_eq!(set_aside(&allocator, &["mb_stream_req=9"], 10), 6, "a window of its own");
    assert_eq!(set_aside(&allocator, &["mb_stream_req=16", "mb_group_prealloc=0"], 10), 6);
}

#[test]
fn what_was_left_open_is_settled_and_a_fault_changes_nothing() {
    let allocator = cut_up(Policy::MBALLOC);
    let settled = Tunables { mb_optimize_scan: Some(true), stripe: Some(0), ..Tunables::default() };
    assert_eq!(allocator.tunables(), settled);
    let error = allocator.set_tunables(["mb_min_to_scan=1", "mb_max_scan=1"]).unwrap_err().to_string();
    assert!(error.contains("'mb_max_to_scan' is the nearest"), "{error}");
    assert_eq!(allocator.tunables(), settled);
}
