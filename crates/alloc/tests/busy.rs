//! Where a request goes while another holds the lock of the group it would take: past it in every criterion
//! but the last, which waits; and everywhere it waits without the mechanism.

#![allow(clippy::unwrap_used)] // the helpers of these tests are tests too
#![cfg(not(any(feature = "shuttle", feature = "loom")))]

mod common;

use common::{Disk, Unreadable};
use hectare_alloc::{
    Allocator, Config, GroupSource, Layout, Mechanism, Policy, Recording, Request, StatsSnapshot, Trace,
    Tunables, What, Why,
};
use hectare_units::{ClusterNr, Clusters, GroupNr};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const PER_GROUP: u32 = 1024;
/// The group whose lock is held.
const HELD: u32 = 1;
/// Long enough for a request that waits for nothing.
const LONG: Duration = Duration::from_secs(20);
/// Long enough to be sure that a request waits.
const SHORT: Duration = Duration::from_millis(200);

/// A disk on which loading one group blocks, with the lock of that group held.
struct Gated {
    disk: Disk,
    /// Whether the gate is open, and whether somebody stands before it.
    gate: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gated {
    fn open(&self) {
        self.gate.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    fn wait_for_somebody(&self) {
        drop(self.changed.wait_while(self.gate.lock().unwrap(), |(_, somebody)| !*somebody).unwrap());
    }
}

impl GroupSource for Gated {
    type Error = Unreadable;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Unreadable> {
        if group.get() == HELD {
            let mut gate = self.gate.lock().unwrap();
            gate.1 = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(gate, |(open, _)| !*open).unwrap());
        }
        self.disk.load(group)
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        self.disk.free_hint(group)
    }

    fn free_total(&self) -> Option<Clusters> {
        self.disk.free_total()
    }
}

/// What became of a request.
#[derive(Debug)]
struct Served {
    group: u32,
    stats: StatsSnapshot,
    /// Whether it was served before the lock was given up.
    at_once: bool,
    /// What it went through.
    trace: Trace,
}

/// Serves a request whose goal is in group 0, of three groups, while the lock of group 1 is held: until it is
/// served, or for so long.
fn served(policy: Policy, used: fn(u32, u32) -> bool, request: Request, patience: Duration) -> Served {
    let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(3 * PER_GROUP))).unwrap();
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    let disk = Disk::patterned(layout, |group, at| used(group.get(), at));
    let source = Gated { disk, gate: Mutex::default(), changed: Condvar::new() };
    let config = Config { policy, tunables, record: Some(Recording::LAST), ..Config::default() };
    let allocator = Arc::new(Allocator::new(source, layout, config));
    let holder = {
        let allocator = Arc::clone(&allocator);
        // At its very goal, so that it goes to no other group.
        let request =
            Request::new(ClusterNr::new(u64::from(HELD * PER_GROUP + 1)), Clusters::ONE).exactly_at_goal();
        thread::spawn(move || drop(allocator.reserve(&request)))
    };
    allocator.source().wait_for_somebody();
    let before = allocator.stats();
    let (sender, receiver) = mpsc::channel();
    let asker = {
        let allocator = Arc::clone(&allocator);
        thread::spawn(move || sender.send(allocator.reserve(&request).unwrap()).unwrap())
    };
    let waits = receiver.recv_timeout(patience);
    allocator.source().open();
    let at_once = waits.is_ok();
    let got = waits.or_else(|_| receiver.recv_timeout(LONG)).unwrap();
    asker.join().unwrap();
    holder.join().unwrap();
    let group = u32::try_from(got.run().start.get()).unwrap() / PER_GROUP;
    let trace = allocator.trace().unwrap();
    Served { group, stats: allocator.stats().minus(&before), at_once, trace }
}

fn data(want: u64, asked: u64) -> Request {
    Request::new(ClusterNr::new(0), Clusters::new(want)).for_data(Clusters::new(asked))
}

/// Group 0 is full, the others are empty.
fn empty(group: u32, _: u32) -> bool {
    group == 0
}

/// Group 0 is full, the others have runs of 16.
fn runs_of_16(group: u32, at: u32) -> bool {
    group == 0 || at / 16 % 2 == 1
}

/// Group 0 is full, the others have one run of 128 among many of 2.
fn one_long_run(group: u32, at: u32) -> bool {
    group == 0 || (at >= 128 && at % 4 >= 2)
}

type Case = (&'static str, Policy, fn(u32, u32) -> bool, Request, fn(&StatsSnapshot) -> u64);

/// A request for each criterion that does not wait.
fn cases() -> Vec<Case> {
    let chunk = Policy::MBALLOC.with(Mechanism::Chunk);
    let split = Policy::MBALLOC.with(Mechanism::Split);
    let classes = Policy::SIZE_CLASS.without(Mechanism::ClassIndex);
    vec![
        ("CR_POWER2_ALIGNED", Policy::MBALLOC, empty, data(64, 64), |stats| stats.passes.p2_aligned.hits),
        ("CR_GOAL_LEN_FAST", Policy::MBALLOC, empty, data(40, 40), |stats| stats.passes.goal_fast.hits),
        ("linear CR_GOAL_LEN_FAST", Policy::MBALLOC_LINEAR, empty, data(40, 40), |stats| {
            stats.passes.goal_fast.hits
        }),
        ("CR_BEST_AVAIL_LEN", Policy::MBALLOC, runs_of_16, data(64, 10), |stats| {
            stats.passes.best_avail.hits
        }),
        ("CR_GOAL_LEN_SLOW", Policy::MBALLOC, one_long_run, data(100, 100), |stats| {
            stats.passes.goal_slow.hits
        }),
        ("chunk", chunk, one_long_run, data(100, 100), |stats| stats.passes.chunk.hits),
        ("split", split, runs_of_16, data(500, 500), |stats| stats.passes.split.hits),
        ("first fit", Policy::FIRST_FIT, empty, data(40, 40), |stats| stats.passes.first_fit.hits),
        ("first fit by classes", classes, empty, data(40, 40), |stats| stats.passes.first_fit.hits),
        ("best fit", Policy::BEST_FIT, empty, data(40, 40), |stats| stats.passes.best_fit.hits),
    ]
}

#[test]
fn every_criterion_but_the_last_passes_a_busy_group_by() {
    for (name, policy, used, request, hits) in cases() {
        let served = served(policy, used, request, LONG);
        assert!(served.at_once, "{name}: it waits for a busy group");
        assert_eq!((served.group, hits(&served.stats)), (2, 1), "{name}: {served:#?}");
        assert!(served.stats.busy_skips > 0, "{name}");
        let mut events = served.trace.requests.iter().flat_map(|request| &request.events);
        let busy = |what| matches!(what, What::Passed { why: Why::Busy, .. });
        assert!(events.any(|event| busy(event.what) && event.group == HELD), "{name}: {:#?}", served.trace);
    }
}

#[test]
fn without_the_try_lock_every_criterion_waits() {
    for (name, policy, used, request, _) in cases() {
        let served = served(policy.without(Mechanism::TryLock), used, request, SHORT);
        assert!(!served.at_once, "{name}: it does not wait");
        assert_eq!(served.stats.busy_skips, 0, "{name}");
    }
}

/// Group 1 alone has space.
#[test]
fn the_last_criterion_waits() {
    let used = |group, _| group != HELD;
    let policy = Policy::MBALLOC;
    let got = served(policy, used, data(40, 40), SHORT);
    assert_eq!((got.at_once, got.group, got.stats.passes.any_free.hits), (false, HELD, 1), "{got:#?}");
    assert!(got.stats.busy_skips > 0 && got.stats.busy_waits > 0);
}
