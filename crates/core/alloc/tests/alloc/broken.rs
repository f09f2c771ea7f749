//! Groups whose bitmaps can't be loaded: they have nothing free, and everything else goes on.

use crate::common::{Disk, Txn, Unreadable};
use hectare_alloc::{
    AllocError, Allocator, Config, FileRequest, GroupSource, Layout, Policy, Preallocation, Request, Run,
    Window,
};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const GROUP: u64 = 1024;
const GROUPS: u64 = 16;

/// A volume of which some groups can't be read, or hold one cluster less than they announce.
struct Damaged {
    disk: Disk,
    unreadable: Mutex<BTreeSet<u32>>,
    miscounted: BTreeSet<u32>,
    reported: AtomicU32,
}

impl GroupSource for Damaged {
    type Error = Unreadable;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Unreadable> {
        if self.unreadable.lock().unwrap().contains(&group.get()) {
            return Err(Unreadable(group));
        }
        let mut words = self.disk.load(group)?;
        if self.miscounted.contains(&group.get()) {
            words[15] |= 1 << 63;
        }
        Ok(words)
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        self.disk.free_hint(group)
    }

    fn free_total(&self) -> Option<Clusters> {
        self.disk.free_total()
    }

    fn together(&self) -> u32 {
        4
    }

    fn own_metadata(&self, _: GroupNr) -> u32 {
        0
    }

    fn needs_io(&self, _: GroupNr) -> bool {
        true
    }

    fn unusable(&self, _: GroupNr, _: &AllocError<Unreadable>) {
        self.reported.fetch_add(1, Ordering::Relaxed);
    }
}

fn volume(policy: Policy, unreadable: &[u32], miscounted: &[u32]) -> (Allocator<Damaged>, Preallocation) {
    let layout = Layout::new(1024, Clusters::new(GROUPS * GROUP)).unwrap();
    let config = Config { policy, flex_groups: 4, ..Config::default() };
    let damaged = Damaged {
        disk: Disk::empty(layout),
        unreadable: Mutex::new(unreadable.iter().copied().collect()),
        miscounted: miscounted.iter().copied().collect(),
        reported: AtomicU32::new(0),
    };
    (Allocator::new(damaged, layout, config), Preallocation::new(config))
}

/// Space for the first clusters of a file with its home in a group.
fn take(
    (allocator, prealloc): &(Allocator<Damaged>, Preallocation),
    file: u32,
    home: u64,
    len: u64,
) -> Result<Run, AllocError<Unreadable>> {
    let len = Clusters::new(len);
    let request = FileRequest {
        file,
        logical: 0,
        len,
        size: len.get(),
        continuation: None,
        right: None,
        home: ClusterNr::new(home * GROUP),
        explicit: false,
        closed: false,
        take_root_reserve: false,
    };
    let space = prealloc.take(allocator, &Arc::new(Window::default()), &request)?;
    Ok(space.publish(&mut Txn(TxnId::new(1))))
}

#[test]
fn regression_a_broken_group_that_nothing_needs_stopped_all_requests() {
    for policy in Policy::ALL {
        for (unreadable, miscounted) in [(&[0][..], &[5][..]), (&[5, 6], &[0]), (&[0, 1, 2, 3, 4], &[9])] {
            let both = volume(policy, unreadable, miscounted);
            let broken: BTreeSet<u64> =
                unreadable.iter().chain(miscounted).map(|group| u64::from(*group)).collect();
            let mut given = 0;
            // Homes in broken groups, and windows that would extend into them; to the last cluster.
            for file in 0.. {
                match take(&both, file, u64::from(file) % GROUPS, 8) {
                    Ok(run) => {
                        let groups = run.start.get() / GROUP..=(run.end().get() - 1) / GROUP;
                        assert!(
                            groups.into_iter().all(|group| !broken.contains(&group)),
                            "{policy}: {run:?}"
                        );
                        given += run.len.get();
                    }
                    Err(error) => {
                        assert!(
                            error.is_refusal() && !matches!(error, AllocError::NoSpace),
                            "{policy}: {error}"
                        );
                        break;
                    }
                }
            }
            let lost = u64::try_from(broken.len()).unwrap() * GROUP;
            assert_eq!(given, GROUPS * GROUP - lost, "{policy}: exact to the last cluster");
            let counts = both.0.counts();
            assert_eq!((counts.available.get(), counts.set_aside.get()), (0, lost), "{policy}");
            both.0.check().unwrap();
            assert!(both.0.source().reported.load(Ordering::Relaxed) > 0, "{policy}: it is reported");
        }
    }
}

#[test]
fn regression_what_is_kept_was_not_given_back_beside_a_broken_group() {
    for policy in Policy::ALL {
        let both = volume(policy, &[15], &[]);
        let all = Request::new(ClusterNr::new(0), Clusters::ONE);
        take(&both, 1, 0, 20).unwrap();
        while let Ok(space) = both.0.reserve(&all) {
            space.publish(&mut Txn(TxnId::new(1)));
        }
        let kept = both.0.counts().reserved.get();
        let given = std::iter::from_fn(|| take(&both, 2, 0, 1).ok()).map(|run| run.len.get()).sum::<u64>();
        assert_eq!(given, kept, "{policy}");
    }
}

#[test]
fn a_group_that_can_be_loaded_again_is_used() {
    for policy in Policy::ALL {
        let both = volume(policy, &[3], &[]);
        let all = Request::new(ClusterNr::new(0), Clusters::ONE);
        let fill = || {
            let space = std::iter::from_fn(|| both.0.reserve(&all).ok());
            space.map(|space| space.publish(&mut Txn(TxnId::new(1))).len.get()).sum::<u64>()
        };
        assert_eq!(fill(), (GROUPS - 1) * GROUP, "{policy}");
        both.0.source().unreadable.lock().unwrap().clear();
        assert_eq!(fill(), GROUP, "{policy}");
        assert_eq!(both.0.counts().set_aside, Clusters::ZERO);
        both.0.check().unwrap();
    }
}

#[test]
fn who_needs_a_broken_group_learns_what_is_wrong() {
    let (allocator, _) = volume(Policy::default(), &[0], &[1]);
    let at = |group: u64| Request::new(ClusterNr::new(group * GROUP), Clusters::ONE);
    let run = |group: u64| Run::new(ClusterNr::new(group * GROUP), Clusters::ONE);
    let told = |result: Result<(), AllocError<Unreadable>>| result.unwrap_err().to_string();
    for (group, expected) in
        [(0, "group 0 can't be read"), (1, "group 1 announces 1024 free clusters, its bitmap has 1023")]
    {
        assert!(allocator.reserve_at(&at(group)).unwrap().is_none(), "an optional place");
        assert_eq!(told(allocator.reserve(&at(group).exactly_at_goal()).map(drop)), expected);
        assert_eq!(told(allocator.mark_used(run(group))), expected);
        assert_eq!(told(allocator.free(run(group), &mut Txn(TxnId::new(1)))), expected);
        assert_eq!(told(allocator.check_used(run(group))), expected);
    }
}

/// A group without free clusters has no space to give, broken or not: the volume is full, and no more.
#[test]
fn regression_a_full_group_that_is_broken_was_the_reason_of_every_refusal() {
    let layout = Layout::new(1024, Clusters::new(GROUPS * GROUP)).unwrap();
    let damaged = Damaged {
        disk: Disk::patterned(layout, |group, _| group.get() == 7),
        unreadable: Mutex::new(BTreeSet::from([7])),
        miscounted: BTreeSet::new(),
        reported: AtomicU32::new(0),
    };
    let allocator = Allocator::new(damaged, layout, Config { flex_groups: 4, ..Config::default() });
    allocator.check_used(Run::new(ClusterNr::new(7 * GROUP), Clusters::ONE)).unwrap_err();
    assert!(allocator.has_set_aside());
    let one = Request::new(ClusterNr::new(0), Clusters::ONE);
    let refused = loop {
        match allocator.reserve(&one) {
            Ok(space) => drop(space.publish(&mut Txn(TxnId::new(1)))),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AllocError::NoSpace), "{refused}");
    allocator.check().unwrap();
}
