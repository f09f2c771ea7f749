//! Each pass serves the requests it should, as the counters show.

use crate::common::{Disk, Txn};
use hectare_alloc::{
    AllocError, Allocator, Config, Layout, Mechanism, PassStats, PassesStats, Policy, Request, Reservation,
    Run, Tunables,
};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId};

const PER_GROUP: u32 = 1024;

fn layout(groups: u32) -> Layout {
    Layout::new(PER_GROUP, Clusters::new(u64::from(groups * PER_GROUP))).unwrap()
}

fn indexed(policy: Policy) -> Config {
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    Config { policy, tunables, ..Config::default() }
}

/// Groups of which `used` says what is in use.
fn patterned(config: Config, groups: u32, used: impl Fn(u32, u32) -> bool) -> Allocator<Disk> {
    let layout = layout(groups);
    Allocator::new(Disk::patterned(layout, |group, at| used(group.get(), at)), layout, config)
}

fn data(goal: u64, want: u64, asked: u64) -> Request {
    Request::new(ClusterNr::new(goal), Clusters::new(want)).for_data(Clusters::new(asked))
}

fn start(reservation: &Reservation) -> u64 {
    reservation.run().start.get()
}

fn len(reservation: &Reservation) -> u64 {
    reservation.len().get()
}

/// Serves a request; it must be served by the pass named, which must have scanned that many runs.
fn served(
    allocator: &Allocator<Disk>,
    request: Request,
    by: fn(&PassesStats<u64>) -> &PassStats<u64>,
    scanned: u64,
) -> Reservation {
    let before = allocator.stats();
    let reservation = allocator.reserve(&request).unwrap();
    let stats = allocator.stats().minus(&before);
    assert_eq!(by(&stats.passes).hits, 1, "{request:?}: {:#?}", stats.passes);
    assert_eq!(by(&stats.passes).extents_scanned, scanned, "{request:?}: {:#?}", stats.passes);
    assert_eq!(stats.reqs, 1);
    allocator.check().unwrap();
    reservation
}

/// Every other run of 16 clusters is free.
fn runs_of_16(_: u32, at: u32) -> bool {
    at / 16 % 2 == 1
}

#[test]
fn the_goal_is_taken_if_all_of_it_is_free() {
    let allocator = patterned(indexed(Policy::MBALLOC.with(Mechanism::Goal)), 4, runs_of_16);
    // The kernel begins in the goal's group, not at the goal.
    let kernels = patterned(indexed(Policy::MBALLOC), 4, runs_of_16);
    let got = served(&kernels, data(1024 + 32, 16, 16), |passes| &passes.p2_aligned, 1);
    assert_eq!((start(&got), len(&got)), (1024, 16));
    let got = served(&allocator, data(1024 + 32, 16, 16), |passes| &passes.goal, 1);
    assert_eq!((start(&got), len(&got)), (1024 + 32, 16));
    assert_eq!(allocator.stats().goal_hits, 1);
    let next = served(&allocator, data(1024 + 32, 10, 10), |passes| &passes.goal_fast, 1);
    assert_eq!(len(&next), 10);
}

#[test]
fn a_power_of_two_comes_aligned_and_not_from_the_directories_group() {
    let config = Config { flex_groups: 4, ..indexed(Policy::MBALLOC) };
    let allocator = patterned(config, 8, |_, at| at == 0);
    let got = served(&allocator, data(0, 64, 64), |passes| &passes.p2_aligned, 1);
    assert_eq!(start(&got) % 64, 0, "aligned in the group");
    assert_eq!(start(&got) / u64::from(PER_GROUP), 1, "group 0 is the first of its flex group");
    assert_eq!(allocator.stats().p2_hits, 1);
    // The highest bit, counted from 1, must be at least mb_order2_req.
    drop(served(&allocator, data(0, 2, 2), |passes| &passes.p2_aligned, 1));
    drop(served(&allocator, data(0, 1, 1), |passes| &passes.goal_fast, 1));
}

#[test]
fn the_average_decides_where_the_full_length_is_looked_for() {
    // Group 2 has runs of 48, the others of 16.
    let used = |group, at| if group == 2 { at % 64 >= 48 } else { runs_of_16(group, at) };
    let allocator = patterned(indexed(Policy::MBALLOC), 4, used);
    let got = served(&allocator, data(8, 40, 40), |passes| &passes.goal_fast, 1);
    assert_eq!((start(&got), len(&got)), (2048, 40));
    assert_eq!(allocator.stats().len_goal_hits, 1);
}

#[test]
fn a_goal_too_long_is_trimmed_but_not_below_what_is_asked() {
    let allocator = patterned(indexed(Policy::MBALLOC), 4, runs_of_16);
    let got = served(&allocator, data(8, 64, 10), |passes| &passes.best_avail, 1);
    assert_eq!(len(&got), 16, "all of the run, and a trim of two orders");
    assert_eq!((allocator.stats().trims, allocator.stats().splits), (2, 0));
    // Three orders are the limit: the kernel uses the slow criterion next, a chunk is found by the index.
    let got = served(&allocator, data(8, 256, 10), |passes| &passes.goal_slow, 127);
    assert_eq!(len(&got), 16);
    let with_chunk = patterned(indexed(Policy::MBALLOC.with(Mechanism::Chunk)), 4, runs_of_16);
    let got = served(&with_chunk, data(8, 256, 10), |passes| &passes.chunk, 1);
    assert_eq!(len(&got), 16, "by its chunk");
}

/// 200 runs and one more, where the criterion is left out; without it nothing else changes.
#[test]
fn without_best_avail_the_slow_criterion_looks_at_200_runs() {
    let policy = Policy::MBALLOC.without(Mechanism::BestAvail);
    let allocator = patterned(indexed(policy), 20, runs_of_16);
    let got = served(&allocator, data(8, 64, 10), |passes| &passes.goal_slow, 201);
    assert_eq!((len(&got), allocator.stats().trims), (16, 0));
}

/// Groups 1 and 2 have 40 runs of 2 before one of 512: the average is longer than what is asked for.
#[test]
fn shorter_runs_are_counted_only_where_they_are_not_skipped() {
    let used = |group, at: u32| group == 0 || (at < 160 && at % 4 >= 2) || (160..500).contains(&at);
    let skipping = patterned(indexed(Policy::MBALLOC), 3, used);
    drop(served(&skipping, data(0, 12, 12), |passes| &passes.goal_fast, 1));
    let counting = patterned(indexed(Policy::MBALLOC.without(Mechanism::SkipSmaller)), 3, used);
    let got = served(&counting, data(0, 12, 12), |passes| &passes.goal_fast, 41);
    assert_eq!((start(&got), len(&got)), (1024 + 500, 12));
    // After that many runs the best is taken, as long as it may be.
    let tunables = Tunables { mb_max_to_scan: 20, mb_optimize_scan: Some(true), ..Tunables::default() };
    let policy = Policy::MBALLOC.without(Mechanism::SkipSmaller);
    let limited = patterned(Config { policy, tunables, ..Config::default() }, 3, used);
    let got = served(&limited, data(0, 12, 2), |passes| &passes.goal_fast, 21);
    assert_eq!((len(&got), limited.stats().breaks), (2, 1));
}

#[test]
fn a_chunk_serves_what_the_averages_hide() {
    // Group 1 has one run of 128 and many of 2: its average is 4.
    let used = |group, at| if group == 1 { at >= 128 && at % 4 >= 2 } else { runs_of_16(group, at) };
    let allocator = patterned(indexed(Policy::MBALLOC.with(Mechanism::Chunk)), 4, used);
    let got = served(&allocator, data(8, 100, 100), |passes| &passes.chunk, 1);
    assert_eq!((start(&got), len(&got)), (1024, 100));
    assert_eq!(allocator.stats().splits, 0);
}

#[test]
fn a_request_longer_than_every_run_is_split_at_one_run_scanned_each() {
    let policy = Policy::MBALLOC.with(Mechanism::Split);
    let allocator = patterned(indexed(policy), 20, runs_of_16);
    let mut kept = Vec::new();
    for _ in 0..20 {
        kept.push(served(&allocator, data(8, 500, 500), |passes| &passes.split, 1));
        assert_eq!(len(kept.last().unwrap()), 16);
    }
    let stats = allocator.stats();
    assert_eq!((stats.splits, stats.extents_scanned, stats.breaks), (20, 20, 0));
    // Of runs of 2 and 30 it takes one that is at least the average, where the average is highest.
    let used = |group, at: u32| match group {
        7 => !(at % 64 < 2 || (20..50).contains(&(at % 64))),
        _ => runs_of_16(group, at) || at % 16 >= 13,
    };
    let allocator = patterned(indexed(policy), 20, used);
    let got = served(&allocator, data(8, 500, 500), |passes| &passes.split, 1);
    assert_eq!((start(&got), len(&got)), (7 * 1024 + 20, 30));
    // The kernel's way to the same end.
    let kernels = patterned(indexed(Policy::MBALLOC), 20, runs_of_16);
    drop(served(&kernels, data(8, 500, 500), |passes| &passes.goal_slow, 201));
}

#[test]
fn the_first_request_of_a_volume_that_is_cut_up_does_not_look_at_every_run() {
    for policy in [Policy::SIZE_CLASS.with(Mechanism::Split), Policy::HYBRID] {
        let config = Config { flex_groups: 16, ..indexed(policy) };
        let allocator = patterned(config, 256, runs_of_16);
        let got = allocator.reserve(&data(0, 512, 512).packed()).unwrap();
        assert_eq!(len(&got), 16, "{policy}");
        let stats = allocator.stats();
        assert_eq!((stats.extents_scanned, stats.passes.any_free.hits), (1, 0), "{policy}");
        assert_eq!(stats.splits, 1, "{policy}");
    }
}

#[test]
fn the_slow_pass_looks_at_a_limited_number_of_runs() {
    // Without an index, a request longer than every run scans as many as the kernel does.
    let allocator = patterned(Config { policy: Policy::MBALLOC_LINEAR, ..Config::default() }, 20, runs_of_16);
    let got = served(&allocator, data(8, 500, 500), |passes| &passes.goal_slow, 201);
    assert_eq!(len(&got), 16);
    assert_eq!(allocator.stats().breaks, 1);
    // It is content with a run that is longer than needed after a few.
    let got = served(&allocator, data(10, 13, 13), |passes| &passes.goal_fast, 1);
    assert_eq!(len(&got), 13);
}

#[test]
fn the_slow_pass_prefers_the_run_that_fits_best() {
    // Runs of 24, then one of 20, among many of 2.
    let used = |_, at: u32| match at {
        0..24 | 40..60 => false,
        _ => at % 4 >= 2 || at < 64,
    };
    let config = Config { policy: Policy::MBALLOC_LINEAR, ..Config::default() };
    let allocator = patterned(config, 1, used);
    let got = served(&allocator, data(500, 18, 18), |passes| &passes.goal_slow, 11);
    assert_eq!((start(&got), len(&got)), (40, 18));
}

#[test]
fn the_last_pass_finds_the_longest_run_there_is() {
    let used = |group, at: u32| !(group == 3 && (at == 7 || (100..103).contains(&at)));
    for policy in Policy::ALL {
        let allocator = patterned(indexed(policy), 5, used);
        let got = allocator.reserve(&data(0, 50, 50).at_least(Clusters::new(2))).unwrap();
        assert_eq!((start(&got), len(&got)), (3 * 1024 + 100, 3), "{policy}");
        let refused = allocator.reserve(&data(0, 50, 50).at_least(Clusters::new(2)));
        assert!(matches!(refused, Err(AllocError::NoSpace)), "{policy}");
        allocator.check().unwrap();
    }
}

#[test]
fn any_free_is_what_is_left_without_an_index() {
    let allocator = patterned(indexed(Policy::FIRST_FIT), 4, runs_of_16);
    let got = served(&allocator, data(8, 100, 100), |passes| &passes.any_free, 4 * 32);
    assert_eq!(len(&got), 16);
}

#[test]
fn best_fit_takes_the_shortest_run_that_will_do() {
    let used = |group, at: u32| match group {
        2 => at % 32 >= 12,
        _ => at % 64 >= 30,
    };
    let allocator = patterned(indexed(Policy::BEST_FIT), 4, used);
    let got = served(&allocator, data(8, 11, 11), |passes| &passes.best_fit, 3 * 16 + 32);
    assert_eq!((start(&got), len(&got)), (2048, 11));
    // An exact one ends the search.
    drop(served(&allocator, data(2048, 12, 12), |passes| &passes.best_fit, 1));
}

#[test]
fn first_fit_goes_on_from_the_goal() {
    let allocator = patterned(indexed(Policy::FIRST_FIT), 4, runs_of_16);
    let got = served(&allocator, data(1024 + 100, 14, 14), |passes| &passes.first_fit, 1);
    assert_eq!(start(&got), 1024 + 128);
    let got = served(&allocator, data(4 * 1024 - 10, 16, 16), |passes| &passes.first_fit, 1);
    assert_eq!(start(&got), 3 * 1024, "the same group from its start, before others");
}

#[test]
fn a_stripe_aligns_what_is_as_long() {
    let tunables = Tunables { stripe: Some(48), mb_optimize_scan: Some(true), ..Tunables::default() };
    let config = Config { tunables, ..indexed(Policy::MBALLOC) };
    let allocator = patterned(config, 4, |_, at| at < 5);
    let got = served(&allocator, data(0, 96, 96), |passes| &passes.goal_fast, 1);
    assert_eq!((start(&got), len(&got)), (48, 96));
    let got = served(&allocator, data(1024, 96, 96), |passes| &passes.goal_fast, 1);
    assert_eq!(start(&got) % 48, 0, "a multiple on the volume, not in the group");
}

#[test]
fn metadata_goes_next_to_its_goal_whatever_the_policy() {
    for policy in Policy::ALL {
        let allocator = patterned(indexed(policy), 4, runs_of_16);
        let one = |goal| allocator.reserve(&Request::new(ClusterNr::new(goal), Clusters::ONE)).unwrap();
        let [at, after, same] = [1024 + 40, 1024 + 60, 1024 + 60].map(one);
        assert_eq!([start(&at), start(&after), start(&same)], [1024 + 40, 1024 + 64, 1024 + 65], "{policy}");
    }
}

#[test]
fn a_stream_goes_on_in_its_last_group() {
    let allocator = patterned(indexed(Policy::MBALLOC), 16, |group, _| group < 3);
    let request = data(0, 40, 40);
    let first = allocator.reserve(&request.on_stream(2)).unwrap();
    assert_eq!(start(&first) / 1024, 3);
    let other = allocator.reserve(&data(9 * 1024, 40, 40)).unwrap();
    assert_eq!(start(&other) / 1024, 9);
    let again = allocator.reserve(&request.on_stream(2)).unwrap();
    assert_eq!(start(&again) / 1024, 3);
    assert_eq!(allocator.stats().stream_goal_hits, 1, "only the second found its stream there");
    // Streams are distinguished by a quarter of the groups: 2 and 6 are the same, 3 is another.
    drop(allocator.reserve(&request.on_stream(6)).unwrap());
    assert_eq!(allocator.stats().stream_goal_hits, 2);
    drop(allocator.reserve(&request.on_stream(3)).unwrap());
    assert_eq!(allocator.stats().stream_goal_hits, 2);
}

/// Nine groups with runs of 16 before one with runs of 240: without an index all are considered.
#[test]
fn the_index_names_the_group_in_every_pass() {
    let used = |group, at: u32| if group == 9 { at % 256 >= 240 } else { runs_of_16(group, at) };
    // A trimmed goal would find it as well.
    let chunk = Policy::MBALLOC.without(Mechanism::BestAvail).with(Mechanism::Chunk);
    type Case = (Policy, Request, fn(&PassesStats<u64>) -> u64);
    let cases: [Case; 6] = [
        (Policy::MBALLOC, data(8, 64, 64), |passes| passes.p2_aligned.groups_considered),
        (Policy::MBALLOC, data(8, 72, 72), |passes| passes.goal_fast.groups_considered),
        (Policy::MBALLOC, data(8, 500, 72), |passes| passes.best_avail.groups_considered),
        (chunk, data(8, 900, 72), |passes| passes.chunk.groups_considered),
        (Policy::FIRST_FIT, data(8, 72, 72), |passes| passes.first_fit.groups_considered),
        (Policy::BEST_FIT, data(8, 72, 72), |passes| passes.best_fit.groups_considered),
    ];
    for (policy, request, considered) in cases {
        let of = |policy: Policy| {
            let allocator = patterned(indexed(policy), 10, used);
            (0..10).for_each(|group| drop(allocator.group_summary(GroupNr::new(group)).unwrap()));
            let got = allocator.reserve(&request).unwrap();
            (start(&got) / 1024, considered(&allocator.stats().passes))
        };
        assert_eq!(of(policy), (9, 1), "{policy}: {request:?}");
        // Trimming and chunks are nothing without an index.
        let linear = of(policy.without(Mechanism::Index)).1;
        assert!(linear == 10 || linear == 0, "{policy}: {request:?}: {linear}");
    }
}

/// Groups whose average is a little too short share an order with those where it is long enough.
#[test]
fn a_walk_of_the_index_gives_up_after_so_many_groups() {
    let allocator = patterned(indexed(Policy::MBALLOC), 200, |_, at| at % 32 >= 20);
    (0..200).for_each(|group| drop(allocator.group_summary(GroupNr::new(group)).unwrap()));
    let considered = |want| {
        let before = allocator.stats();
        drop(allocator.reserve(&data(8, want, want)).unwrap());
        allocator.stats().minus(&before).passes.goal_fast.groups_considered
    };
    // Half of its patience, then no group has the order above.
    assert_eq!(considered(24), 63);
    let with_longer = |group, at: u32| if group > 190 { at % 128 >= 120 } else { at % 32 >= 20 };
    let allocator = patterned(indexed(Policy::MBALLOC), 200, with_longer);
    (0..200).for_each(|group| drop(allocator.group_summary(GroupNr::new(group)).unwrap()));
    let got = served(&allocator, data(8, 24, 24), |passes| &passes.goal_fast, 1);
    assert_eq!(start(&got) / 1024, 191, "in the order above every group qualifies");
    let trimmed = allocator.reserve(&data(8, 30, 24)).unwrap();
    assert_eq!(len(&trimmed), 30);
}

#[test]
fn some_groups_are_looked_at_in_order_before_the_index_is_asked() {
    // The index would pass over group 0, whose average is short.
    let used = |group, at: u32| group == 0 && at >= 512 && at % 2 == 1;
    let request = data(1, 300, 300);
    let jump = patterned(indexed(Policy::MBALLOC), 4, used);
    jump.reserve(&Request::new(ClusterNr::new(0), Clusters::ONE)).unwrap().publish(&mut Txn(TxnId::new(1)));
    let considered = |allocator: &Allocator<Disk>| allocator.stats().passes.goal_fast.groups_considered;
    let before = considered(&jump);
    drop(jump.reserve(&Request { goal: ClusterNr::new(600), ..request }).unwrap());
    assert_eq!(considered(&jump) - before, 1, "the index names a group that will do");
    let tunables = Tunables { mb_max_linear_groups: 2, mb_optimize_scan: Some(true), ..Tunables::default() };
    let linear = patterned(Config { tunables, ..indexed(Policy::MBALLOC) }, 4, used);
    linear.reserve(&Request::new(ClusterNr::new(0), Clusters::ONE)).unwrap().publish(&mut Txn(TxnId::new(1)));
    let before = considered(&linear);
    drop(linear.reserve(&Request { goal: ClusterNr::new(600), ..request }).unwrap());
    assert_eq!(considered(&linear) - before, 2, "group 0 is considered though its average is short");
}

#[test]
fn only_what_is_free_at_the_very_goal_is_given_there() {
    let allocator = patterned(indexed(Policy::MBALLOC), 4, runs_of_16);
    let at = |goal, want, min: u64| data(goal, want, want).at_least(Clusters::new(min));
    let got = allocator.reserve_at(&at(4, 40, 5)).unwrap().unwrap();
    assert_eq!(got.run(), Run::new(ClusterNr::new(4), Clusters::new(12)));
    assert!(allocator.reserve_at(&at(32, 40, 17)).unwrap().is_none());
    assert!(allocator.reserve_at(&at(16, 1, 1)).unwrap().is_none(), "in use");
    assert!(allocator.reserve_at(&at(1 << 40, 1, 1)).unwrap().is_none(), "beyond the end");
    let refused = allocator.reserve(&at(16, 1, 1).exactly_at_goal());
    assert!(matches!(refused, Err(AllocError::NoSpace)));
}

#[test]
fn groups_of_a_flex_group_are_loaded_together_and_unwritten_ones_for_nothing() {
    let config = Config { flex_groups: 4, ..indexed(Policy::MBALLOC) };
    let allocator = patterned(config, 12, runs_of_16);
    drop(allocator.reserve(&data(5 * 1024, 16, 16)).unwrap());
    assert_eq!(allocator.loaded_groups(), 4);
    assert_eq!(allocator.stats().buddies_generated, 4);
    allocator.check().unwrap();

    let layout = layout(12);
    let allocator = Allocator::new(Disk::with_metadata(layout, 9), layout, config);
    drop(allocator.reserve(&data(5 * 1024 + 9, 16, 16)).unwrap());
    assert_eq!(allocator.loaded_groups(), 1);
    allocator.check().unwrap();
}

#[test]
fn an_evicted_group_is_found_again() {
    let allocator = patterned(indexed(Policy::MBALLOC), 4, |group, at| group != 2 || runs_of_16(group, at));
    drop(allocator.reserve(&data(0, 16, 16)).unwrap());
    assert_eq!((allocator.evict(9), allocator.loaded_groups()), (1, 0));
    allocator.check().unwrap();
    let got = allocator.reserve(&data(0, 16, 16)).unwrap();
    assert_eq!(start(&got) / 1024, 2);
    assert_eq!(allocator.loaded_groups(), 1, "nobody else could have it");
    assert_eq!(allocator.for_group(GroupNr::new(2)), 1024 / 2 - 16);
}

trait ForGroup {
    fn for_group(&self, nr: GroupNr) -> u32;
}

impl ForGroup for Allocator<Disk> {
    /// Free clusters of one group.
    fn for_group(&self, nr: GroupNr) -> u32 {
        let mut found = 0;
        self.for_each_group(|group, free| found += if group == nr { free } else { 0 });
        found
    }
}

#[test]
fn the_offer_is_what_some_group_has() {
    let offer = |allocator: &Allocator<Disk>| allocator.offer().get();
    let touch = |allocator: &Allocator<Disk>| {
        for group in 0..4 {
            drop(allocator.reserve(&Request::new(ClusterNr::new(group * 1024), Clusters::ONE)).unwrap());
        }
    };
    let allocator = patterned(indexed(Policy::MBALLOC), 4, runs_of_16);
    assert_eq!(offer(&allocator), 1024, "of groups nobody has looked at the best is believed");
    drop(allocator.reserve(&Request::new(ClusterNr::new(0), Clusters::ONE)).unwrap());
    assert_eq!(offer(&allocator), 1024, "two are known now, and two are not");
    drop(allocator.reserve(&Request::new(ClusterNr::new(2 * 1024), Clusters::ONE)).unwrap());
    assert_eq!(offer(&allocator), 512, "half of each group is free, perhaps in one run");
    touch(&allocator);
    assert_eq!(offer(&allocator), 16);
    let summary = allocator.group_summary(GroupNr::new(3)).unwrap().unwrap();
    assert_eq!((summary.free, summary.fragments, summary.first_free, summary.chunks[4]), (512, 32, 0, 32));
    assert_eq!(allocator.group_summary(GroupNr::new(4)).unwrap(), None);
    let full = patterned(indexed(Policy::MBALLOC), 4, |_, _| true);
    for group in 0..4 {
        full.group_summary(GroupNr::new(group)).unwrap();
    }
    assert_eq!(offer(&full), 1);
}
