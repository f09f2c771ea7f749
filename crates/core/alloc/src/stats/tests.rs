//! Tests of the counters and of their listings.

use super::*;
use serde_json::Value;

/// `/proc/fs/ext4/loop0/mb_stats` of Linux 6.18.44 after a few files had been written to a volume of 75
/// groups with 1 KiB blocks.
const KERNEL_STATS: &str = "mballoc:
\treqs: 58
\tsuccess: 58
\tgroups_scanned: 13
\tcr_p2_aligned_stats:
\t\thits: 9
\t\tgroups_considered: 26
\t\textents_scanned: 9
\t\tuseless_loops: 0
\tcr_goal_fast_stats:
\t\thits: 4
\t\tgroups_considered: 4
\t\textents_scanned: 32
\t\tuseless_loops: 0
\tcr_best_avail_stats:
\t\thits: 0
\t\tgroups_considered: 0
\t\textents_scanned: 0
\t\tuseless_loops: 0
\tcr_goal_slow_stats:
\t\thits: 0
\t\tgroups_considered: 0
\t\textents_scanned: 0
\t\tuseless_loops: 0
\tcr_any_free_stats:
\t\thits: 0
\t\tgroups_considered: 0
\t\textents_scanned: 0
\t\tuseless_loops: 0
\textents_scanned: 86
\t\tgoal_hits: 45
\t\tstream_goal_hits: 0
\t\tlen_goal_hits: 58
\t\t2^n_hits: 9
\t\tbreaks: 0
\t\tlost: 0
\tbuddies_generated: 16/75
\tbuddies_time_used: 21216
\tpreallocated: 6144
\tdiscarded: 3072
";

/// `mb_structs_summary` of the same volume at the same moment.
const KERNEL_SUMMARY: &str = "optimize_scan: 1
max_free_order_lists:
\tlist_order_0_groups: 0
\tlist_order_1_groups: 0
\tlist_order_2_groups: 0
\tlist_order_3_groups: 0
\tlist_order_4_groups: 0
\tlist_order_5_groups: 0
\tlist_order_6_groups: 0
\tlist_order_7_groups: 0
\tlist_order_8_groups: 0
\tlist_order_9_groups: 0
\tlist_order_10_groups: 4
\tlist_order_11_groups: 5
avg_fragment_size_lists:
\tlist_order_0_groups: 0
\tlist_order_1_groups: 0
\tlist_order_2_groups: 0
\tlist_order_3_groups: 0
\tlist_order_4_groups: 0
\tlist_order_5_groups: 0
\tlist_order_6_groups: 0
\tlist_order_7_groups: 0
\tlist_order_8_groups: 0
\tlist_order_9_groups: 4
\tlist_order_10_groups: 2
\tlist_order_11_groups: 3
";

/// Each counter of a snapshot with its path.
fn leaves(value: &Value, path: &str, out: &mut Vec<(String, u64)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                leaves(value, &format!("{path}/{name}"), out);
            }
        }
        value => out.push((path.to_owned(), value.as_u64().unwrap())),
    }
}

fn counters_of(snapshot: &StatsSnapshot) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    leaves(&serde_json::to_value(snapshot).unwrap(), "", &mut out);
    out
}

/// A request that counts something different everywhere.
fn request() -> RequestStats {
    let mut request = RequestStats {
        reqs: 25,
        success: 26,
        groups_scanned: 27,
        extents_scanned: 28,
        goal_hits: 29,
        stream_goal_hits: 30,
        len_goal_hits: 31,
        p2_hits: 32,
        breaks: 33,
        lost: 34,
        busy_skips: 35,
        busy_waits: 36,
        busy_peeks: 62,
        class_skips: 63,
        class_hits_matching: 37,
        class_hits_unset: 38,
        class_hits_any: 39,
        trims: 40,
        splits: 41,
        ..RequestStats::default()
    };
    for (pass, n) in Pass::ALL.into_iter().zip([1, 5, 9, 13, 17, 21, 46, 50, 54, 58]) {
        *request.pass(pass) =
            PassStats { hits: n, groups_considered: n + 1, extents_scanned: n + 2, useless_loops: n + 3 };
    }
    request
}

fn stats() -> Stats {
    let stats = Stats::default();
    stats.add(&request());
    stats.buddy_generated(43);
    for _ in 1..42 {
        stats.buddy_generated(0);
    }
    stats.preallocated(44);
    stats.discarded(45);
    stats
}

#[test]
fn every_counter_arrives_in_the_snapshot_under_its_own_name() {
    let mut values: Vec<u64> = counters_of(&stats().snapshot()).into_iter().map(|(_, n)| n).collect();
    values.sort_unstable();
    assert_eq!(values, (1..=63).collect::<Vec<u64>>());
    let snapshot = stats().snapshot();
    assert_eq!((snapshot.passes.best_avail.extents_scanned, snapshot.class_hits_any), (15, 39));
    assert_eq!((snapshot.buddies_generated, snapshot.buddies_time_used, snapshot.discarded), (42, 43, 45));
}

#[test]
fn differences_are_taken_counter_by_counter() {
    let stats = stats();
    let earlier = stats.snapshot();
    assert_eq!(earlier.minus(&earlier), StatsSnapshot::default());
    stats.add(&request());
    let one = stats.snapshot().minus(&earlier);
    assert_eq!(one.passes[Pass::AnyFree].useless_loops, 24);
    assert_eq!((one.reqs, one.splits, one.discarded), (25, 41, 0));
}

#[test]
fn every_counter_is_in_the_text_once() {
    let text = stats().snapshot().text(1000);
    let mut values: Vec<u64> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(_, value)| value.split('/').next().unwrap().parse().unwrap())
        .collect();
    values.sort_unstable();
    assert_eq!(values, (1..=63).collect::<Vec<u64>>());
}

#[test]
fn the_text_is_the_kernels_with_more_at_the_end() {
    let mut snapshot = StatsSnapshot {
        reqs: 58,
        success: 58,
        groups_scanned: 13,
        extents_scanned: 86,
        goal_hits: 45,
        len_goal_hits: 58,
        p2_hits: 9,
        buddies_generated: 16,
        buddies_time_used: 21216,
        preallocated: 6144,
        discarded: 3072,
        ..StatsSnapshot::default()
    };
    snapshot.passes.p2_aligned =
        PassStats { hits: 9, groups_considered: 26, extents_scanned: 9, useless_loops: 0 };
    snapshot.passes.goal_fast =
        PassStats { hits: 4, groups_considered: 4, extents_scanned: 32, useless_loops: 0 };
    let text = snapshot.text(75);
    let (kernels, own) = text.split_at(KERNEL_STATS.len());
    assert_eq!(kernels, KERNEL_STATS);
    assert!(own.starts_with("\tcr_goal_stats:\n\t\thits: 0\n"), "{own}");
    assert!(own.contains("\tclass_hits:\n\t\tmatching: 0\n"), "{own}");
}

#[test]
fn the_summary_is_the_kernels() {
    let mut counts = OrderCounts { largest: vec![0; 12], average: vec![0; 12] };
    counts.largest[10..].copy_from_slice(&[4, 5]);
    counts.average[9..].copy_from_slice(&[4, 2, 3]);
    assert_eq!(structs_summary(true, &counts), KERNEL_SUMMARY);
    assert!(structs_summary(false, &OrderCounts::default()).starts_with("optimize_scan: 0\n"));
}

#[test]
fn every_pass_has_its_own_number() {
    for (at, pass) in Pass::ALL.into_iter().enumerate() {
        assert_eq!(pass as usize, at);
        let listed = Pass::CRITERIA.into_iter().chain(Pass::OWN).filter(|other| *other == pass);
        assert_eq!(listed.count(), 1, "{pass:?}");
    }
}

#[test]
fn threads_count_apart_and_lose_nothing() {
    let stats = Stats::default();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    stats.add(&RequestStats { reqs: 1, lost: 2, ..RequestStats::default() });
                }
            });
        }
    });
    let snapshot = stats.snapshot();
    assert_eq!((snapshot.reqs, snapshot.lost, snapshot.success), (8000, 16_000, 0));
}
