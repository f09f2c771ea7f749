//! Size classes as the policies use them.

use crate::common::{Disk, Txn};
use hectare_alloc::{Allocator, Config, Layout, Mechanism, Policy, Request, Reservation, Run, Tunables};
use hectare_units::{ClusterNr, Clusters, TxnId};
use std::sync::{Barrier, Mutex};
use std::thread;

const PER_GROUP: u32 = 1024;
const GROUPS: u32 = 8;
const POLICIES: [Policy; 3] =
    [Policy::SIZE_CLASS, Policy::HYBRID, Policy::SIZE_CLASS.without(Mechanism::ClassIndex)];

/// Clusters of 64 KiB: 2 are small, 128 medium. Units of two groups.
fn config(policy: Policy) -> Config {
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    Config { policy, tunables, cluster_blocks: 16, flex_groups: 2, ..Config::default() }
}

fn layout() -> Layout {
    Layout::new(PER_GROUP, Clusters::new(u64::from(GROUPS * PER_GROUP))).unwrap()
}

fn allocator(policy: Policy) -> Allocator<Disk> {
    Allocator::new(Disk::with_metadata(layout(), 5), layout(), config(policy))
}

fn data(goal: u64, n: u64) -> Request {
    Request::new(ClusterNr::new(goal), Clusters::new(n)).for_data(Clusters::new(n))
}

/// The unit a run lies in.
fn unit(reservation: &Reservation) -> u64 {
    reservation.run().start.get() / u64::from(2 * PER_GROUP)
}

fn commit(allocator: &Allocator<Disk>, txn: TxnId) {
    let visit = |group, words: &[u64], _| {
        allocator.source().store(group, words);
        Ok::<(), ()>(())
    };
    allocator.render_dirty(txn, visit).unwrap();
    allocator.committed(txn);
}

#[test]
fn sizes_go_to_units_of_their_own_and_stay_there() {
    for policy in POLICIES {
        let allocator = allocator(policy);
        let reserve = |goal, n| allocator.reserve(&data(goal, n)).unwrap();
        let small = reserve(0, 2);
        let medium = reserve(0, 100);
        let large = reserve(0, 500);
        assert_eq!([&small, &medium, &large].map(unit), [0, 1, 2], "{policy}");
        assert_eq!(allocator.class_counts(), Some(vec![1, 1, 1, 1]));
        // A goal in an unset unit, or in another's, does not count while there is a unit of the class.
        let again = [reserve(7 * 1024 + 100, 2), reserve(100, 100), reserve(2048 + 300, 500)];
        assert_eq!(again.each_ref().map(unit), [0, 1, 2], "{policy}");
        let stats = allocator.stats();
        assert_eq!((stats.class_hits_unset, stats.class_hits_matching), (3, 3), "{policy}");
        allocator.check().unwrap();
    }
}

/// Clusters of 64 KiB: bounds of 1, 2, 4 and 8.
#[test]
fn there_are_as_many_classes_as_the_list_says() {
    for policy in POLICIES {
        let mut config = config(policy);
        config.tunables.classes = "64K,128K,256K,512K".parse().unwrap();
        let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(12 * PER_GROUP))).unwrap();
        let allocator = Allocator::new(Disk::with_metadata(layout, 5), layout, config);
        let sizes = [1, 2, 4, 8, 9, 3, 7, 500];
        let got: Vec<_> = sizes.iter().map(|n| allocator.reserve(&data(0, *n)).unwrap()).collect();
        let units: Vec<u64> = got.iter().map(unit).collect();
        assert_eq!(units, [0, 1, 2, 3, 4, 2, 3, 4], "{policy}");
        assert_eq!(allocator.class_counts(), Some(vec![1, 1, 1, 1, 1, 1]), "{policy}");
        allocator.check().unwrap();
        drop(got);
        assert_eq!(allocator.class_counts(), Some(vec![6, 0, 0, 0, 0, 0]), "{policy}");
    }
}

#[test]
fn groups_of_other_classes_are_passed_over_only_without_their_index() {
    for (policy, passed_over) in
        [(Policy::SIZE_CLASS, 0), (Policy::SIZE_CLASS.without(Mechanism::ClassIndex), 2)]
    {
        let allocator = allocator(policy);
        let small = allocator.reserve(&data(0, 2)).unwrap();
        // Both groups of the small unit lie before the first unset one, and again before the medium one.
        let medium = [0, 0].map(|goal| allocator.reserve(&data(goal, 100)).unwrap());
        assert_eq!((unit(&small), medium.each_ref().map(unit)), (0, [1, 1]));
        assert_eq!(allocator.stats().class_skips, 2 * passed_over, "{policy}");
    }
}

#[test]
fn the_class_is_that_of_what_is_asked_not_of_the_window() {
    for policy in POLICIES {
        let allocator = allocator(policy);
        let window = Request::new(ClusterNr::new(0), Clusters::new(512)).for_data(Clusters::ONE);
        let got = allocator.reserve(&window).unwrap();
        assert_eq!((got.len().get(), allocator.class_counts()), (512, Some(vec![3, 1, 0, 0])), "{policy}");
    }
}

#[test]
fn another_class_is_asked_last_and_keeps_its_name() {
    for policy in POLICIES {
        let allocator = allocator(policy);
        // Two fit into a group, four into a unit, whatever their goals.
        let large: Vec<_> = (0..16).map(|nr| allocator.reserve(&data(nr % 4 * 2048, 500)).unwrap()).collect();
        let units: Vec<u64> = large.iter().map(unit).collect();
        assert_eq!(units, (0..16).map(|nr| nr / 4).collect::<Vec<_>>(), "{policy}");
        let small = allocator.reserve(&data(0, 2)).unwrap();
        assert_eq!(
            allocator.class_counts(),
            Some(vec![0, 0, 0, 4]),
            "{policy}: a forced entry changes no class"
        );
        assert_eq!(allocator.stats().class_hits_any, 1);
        drop((large, small));
        assert_eq!(allocator.class_counts(), Some(vec![4, 0, 0, 0]), "{policy}");
    }
}

#[test]
fn a_unit_is_unset_again_when_what_was_freed_is_committed() {
    for policy in POLICIES {
        let allocator = allocator(policy);
        let [first, second] = [1, 2].map(TxnId::new);
        let run = allocator.reserve(&data(0, 100)).unwrap().publish(&mut Txn(first));
        commit(&allocator, first);
        allocator.free(run, &mut Txn(second)).unwrap();
        assert_eq!(allocator.class_counts(), Some(vec![3, 0, 1, 0]), "freed, not yet committed");
        commit(&allocator, second);
        assert_eq!(allocator.class_counts(), Some(vec![4, 0, 0, 0]), "{policy}");
    }
}

#[test]
fn metadata_has_no_class_and_keeps_a_unit_from_being_unset() {
    let allocator = allocator(Policy::HYBRID);
    let metadata = allocator.reserve(&Request::new(ClusterNr::new(600), Clusters::ONE)).unwrap();
    assert_eq!(allocator.class_counts(), Some(vec![4, 0, 0, 0]));
    let held = allocator.reserve(&data(0, 2)).unwrap();
    assert_eq!(unit(&held), 0);
    drop(held);
    assert_eq!(allocator.class_counts(), Some(vec![3, 1, 0, 0]), "the cluster of metadata is still there");
    drop(metadata);
    assert_eq!(allocator.class_counts(), Some(vec![4, 0, 0, 0]));
}

#[test]
fn a_unit_in_use_gets_its_class_from_samples() {
    // Unit 1 holds small runs beside large ones, unit 2 medium ones; the others are empty.
    let used = |group: u32, at: u32| match group / 2 {
        1 => at % 300 < 200 || at % 300 == 250,
        2 => at % 200 < 60,
        _ => false,
    };
    let disk = || Disk::patterned(layout(), |group, at| used(group.get(), at));
    let allocator = Allocator::new(disk(), layout(), config(Policy::HYBRID));
    for group in 0..u64::from(GROUPS) {
        // Metadata makes the group loaded, and nothing else.
        drop(allocator.reserve(&Request::new(ClusterNr::new(group * 1024 + 290), Clusters::ONE)).unwrap());
    }
    assert_eq!(allocator.class_counts(), Some(vec![2, 1, 1, 0]));
    let small = allocator.reserve(&data(0, 2)).unwrap();
    assert_eq!(unit(&small), 1);
}

#[test]
fn reserving_at_the_goal_respects_classes() {
    let allocator = allocator(Policy::SIZE_CLASS);
    let small = allocator.reserve(&data(0, 2)).unwrap();
    let after = small.run().start.get() + 2;
    assert!(allocator.reserve_at(&data(after, 100)).unwrap().is_none(), "medium, in a unit of small ones");
    assert!(allocator.reserve_at(&data(after, 2)).unwrap().is_some());
    let fresh = allocator.reserve_at(&data(6 * 1024 + 5, 100)).unwrap().unwrap();
    assert_eq!(fresh.run(), Run::new(ClusterNr::new(6 * 1024 + 5), Clusters::new(100)));
    assert_eq!(allocator.class_counts(), Some(vec![2, 1, 1, 0]), "the goal's unit was unset");
}

#[test]
fn of_two_that_race_for_a_unit_one_goes_elsewhere() {
    for policy in POLICIES {
        for _ in 0..50 {
            let allocator = allocator(policy);
            let (barrier, held) = (Barrier::new(4), Mutex::new(Vec::new()));
            thread::scope(|scope| {
                for n in [2, 100, 2, 100] {
                    let (allocator, barrier, held) = (&allocator, &barrier, &held);
                    scope.spawn(move || {
                        barrier.wait();
                        let got = allocator.reserve(&data(0, n)).unwrap();
                        held.lock().unwrap().push((n, unit(&got), got));
                    });
                }
            });
            let held = held.into_inner().unwrap();
            for (n, unit, _) in &held {
                assert!(held.iter().all(|other| other.1 != *unit || other.0 == *n), "{policy}: {held:?}");
            }
            let counts = allocator.class_counts().unwrap();
            assert_eq!(counts.iter().sum::<u32>(), 4);
            allocator.check().unwrap();
            drop(held);
            assert_eq!(allocator.class_counts(), Some(vec![4, 0, 0, 0]));
        }
    }
}
