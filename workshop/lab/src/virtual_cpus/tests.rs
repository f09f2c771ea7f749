//! The replay on virtual processors: it repeats, and how far it scales.

use super::*;

#[test]
fn a_run_is_the_same_twice() {
    for fill in Fill::ALL {
        for policy in POLICIES {
            let once = || run_one(policy, fill, 8, 5_000, &COSTS);
            assert_eq!(once(), once());
        }
    }
}

/// How many times the steps of one CPU 64 CPUs make.
fn speedup(policy: &str, fill: Fill) -> f64 {
    let rate = |cpus| run_one(policy, fill, cpus, 100_000, &COSTS).per_second;
    rate(64) / rate(1)
}

#[test]
fn the_default_policy_scales_on_a_full_volume() {
    let times = speedup("hybrid", Fill::Nearly);
    assert!(times >= 20.0, "64 CPUs do {times:.1} times what one does");
}

/// What lays windows of a size class in a row holds one lock for all of them: `docs/virtual-cpus.md`.
#[test]
fn on_a_fresh_volume_windows_in_a_row_are_the_limit() {
    let times = speedup("hybrid", Fill::Fresh);
    assert!((1.5..40.0).contains(&times), "64 CPUs do {times:.1} times what one does");
}

#[test]
fn skipping_busy_groups_is_worth_most_of_what_64_processors_do() {
    for fill in Fill::ALL {
        for [before, after] in [[POLICIES[0], POLICIES[1]], [POLICIES[2], POLICIES[3]]] {
            let rate = |policy| run_one(policy, fill, 64, 50_000, &COSTS);
            let (before, after) = (rate(before), rate(after));
            assert_eq!(before.busy_skips, 0);
            assert!(after.busy_skips > 0, "{}", after.policy);
            assert!(after.per_second > 1.2 * before.per_second, "{before:?} {after:?}");
        }
    }
}
