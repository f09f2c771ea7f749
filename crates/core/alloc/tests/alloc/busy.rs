//! Where a request goes while another thread holds the lock of the group it would take: past it in every
//! criterion but the last, which waits, and the goal, which waits unless that is switched off; without the
//! mechanisms it waits everywhere.

use crate::common::{Disk, Unreadable};
use hectare_alloc::{
    Allocator, Config, FileRequest, GroupSource, Layout, Mechanism, Policy, Preallocation, Recording,
    Request, Reservation, StatsSnapshot, Trace, Tunables, What, Why,
};
use hectare_units::{ClusterNr, Clusters, GroupNr};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PER_GROUP: u32 = 1024;
/// The group whose lock is held where only one is.
const HELD: u32 = 1;
/// Long enough for a request that waits for nothing.
const LONG: Duration = Duration::from_secs(20);
/// Long enough to be sure that a request waits.
const SHORT: Duration = Duration::from_millis(200);

/// A disk on which loading some groups blocks, with the locks of these groups held.
struct Gated {
    disk: Disk,
    held: Range<u32>,
    /// Whether the gate is open, and how many stand before it.
    gate: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl Gated {
    fn open(&self) {
        self.gate.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    fn wait_for_all(&self) {
        let all = self.held.end - self.held.start;
        drop(self.changed.wait_while(self.gate.lock().unwrap(), |(_, many)| *many < all).unwrap());
    }
}

impl GroupSource for Gated {
    type Error = Unreadable;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Unreadable> {
        if self.held.contains(&group.get()) {
            let mut gate = self.gate.lock().unwrap();
            gate.1 += 1;
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

/// A volume on which the locks of some groups are held until the gate is opened.
struct Held {
    allocator: Arc<Allocator<Gated>>,
    holders: Vec<JoinHandle<()>>,
}

impl Held {
    fn new(policy: Policy, groups: u32, held: Range<u32>, used: fn(u32, u32) -> bool) -> Self {
        let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(groups * PER_GROUP))).unwrap();
        let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
        let disk = Disk::patterned(layout, |group, at| used(group.get(), at));
        let source = Gated { disk, held: held.clone(), gate: Mutex::default(), changed: Condvar::new() };
        let config = Config { policy, tunables, record: Some(Recording::LAST), ..Config::default() };
        let allocator = Arc::new(Allocator::new(source, layout, config));
        let hold = |group| {
            // At its very goal, so that it goes to no other group.
            let request = Request::new(goal_in(group), Clusters::ONE).exactly_at_goal();
            let allocator = Arc::clone(&allocator);
            thread::spawn(move || drop(allocator.reserve(&request)))
        };
        let holders = held.map(hold).collect();
        allocator.source().wait_for_all();
        Self { allocator, holders }
    }

    fn release(self) {
        self.allocator.source().open();
        self.holders.into_iter().for_each(|holder| holder.join().unwrap());
    }
}

fn goal_in(group: u32) -> ClusterNr {
    ClusterNr::new(u64::from(group * PER_GROUP + 1))
}

/// A goal in the group that is held; its holder takes another cluster of the group, [`goal_in`] it.
fn goal_beside_holder() -> ClusterNr {
    ClusterNr::new(u64::from(HELD * PER_GROUP + 100))
}

fn group_of(reservation: &Reservation) -> u32 {
    u32::try_from(reservation.run().start.get()).unwrap() / PER_GROUP
}

/// What became of a request.
#[derive(Debug)]
struct Served {
    group: u32,
    start: ClusterNr,
    stats: StatsSnapshot,
    /// Whether it was served before the lock was given up.
    at_once: bool,
    /// What it went through.
    trace: Trace,
}

/// Serves a request whose goal is in group 0, of three groups, while the lock of group 1 is held: until it is
/// served, or for so long.
fn served(policy: Policy, used: fn(u32, u32) -> bool, request: Request, patience: Duration) -> Served {
    let held = Held::new(policy, 3, HELD..HELD + 1, used);
    let allocator = Arc::clone(&held.allocator);
    let before = allocator.stats();
    let answer = {
        let allocator = Arc::clone(&allocator);
        apart(move || allocator.reserve(&request).unwrap())
    };
    let waits = answer.recv_timeout(patience);
    held.release();
    let at_once = waits.is_ok();
    let got = waits.or_else(|_| answer.recv_timeout(LONG)).unwrap();
    let trace = allocator.trace().unwrap();
    Served {
        group: group_of(&got),
        start: got.run().start,
        stats: allocator.stats().minus(&before),
        at_once,
        trace,
    }
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
        assert!(served.stats.busy_peeks > 0, "{name}");
        assert_eq!(served.stats.busy_skips, 0, "{name}: it is passed by before it is chosen");
        assert!(told_busy(&served.trace), "{name}: {:#?}", served.trace);
    }
}

/// Whether the trace says that the group was passed by because it was busy.
fn told_busy(trace: &Trace) -> bool {
    let mut events = trace.requests.iter().flat_map(|request| &request.events);
    let busy = |what| matches!(what, What::Passed { why: Why::Busy, .. });
    events.any(|event| busy(event.what) && event.group == HELD)
}

/// A group is chosen, and then its lock can't be had.
#[test]
fn without_the_peek_every_criterion_skips_the_group_all_the_same() {
    for (name, policy, used, request, hits) in cases() {
        let served = served(policy.without(Mechanism::Peek), used, request, LONG);
        assert!(served.at_once, "{name}: it waits for a busy group");
        assert_eq!((served.group, hits(&served.stats)), (2, 1), "{name}: {served:#?}");
        assert!(served.stats.busy_skips > 0 && served.stats.busy_peeks == 0, "{name}");
        assert!(told_busy(&served.trace), "{name}: {:#?}", served.trace);
    }
}

#[test]
fn a_group_that_is_passed_by_before_it_is_chosen_is_not_considered() {
    let considered = |policy| {
        let passes = served(policy, empty, data(40, 40), LONG).stats.passes;
        passes.goal_fast.groups_considered
    };
    let (with, without) = (Policy::MBALLOC, Policy::MBALLOC.without(Mechanism::Peek));
    assert_eq!(considered(without) - considered(with), 1);
}

#[test]
fn without_both_every_criterion_waits() {
    for (name, policy, used, request, _) in cases() {
        let policy = policy.without(Mechanism::TryLock).without(Mechanism::Peek);
        let served = served(policy, used, request, SHORT);
        assert!(!served.at_once, "{name}: it does not wait");
        assert_eq!((served.stats.busy_skips, served.stats.busy_peeks), (0, 0), "{name}");
    }
}

/// Group 1 alone has space.
#[test]
fn the_last_criterion_waits() {
    let used = |group, _| group != HELD;
    let policy = Policy::MBALLOC;
    let got = served(policy, used, data(40, 40), SHORT);
    assert_eq!((got.at_once, got.group, got.stats.passes.any_free.hits), (false, HELD, 1), "{got:#?}");
    assert!(got.stats.busy_peeks > 0 && got.stats.busy_waits > 0);
}

/// All but group 1 are in use.
fn only_held(group: u32, _: u32) -> bool {
    group != HELD
}

#[test]
fn the_goal_is_waited_for_unless_it_is_passed_by_as_well() {
    for policy in Policy::ALL {
        let goal = Request { goal: goal_beside_holder(), ..data(16, 16) };
        let skipping = policy.with(Mechanism::GoalTryLock);
        let elsewhere = served(skipping, empty, goal, LONG);
        assert!(elsewhere.at_once && elsewhere.group == 2, "{policy}: {elsewhere:#?}");
        if policy == Policy::BEST_FIT || !policy.has(Mechanism::Goal) {
            continue; // it tries no goal
        }
        let waiting = served(policy, empty, goal, SHORT);
        assert!(!waiting.at_once, "{policy}: it does not wait for its goal");
        assert_eq!(waiting.start, goal.goal, "{policy}: {waiting:#?}");
    }
    // Where there is no other space it comes back and waits.
    let goal = Request { goal: goal_beside_holder(), ..data(16, 16) };
    let last = served(Policy::MBALLOC.with(Mechanism::GoalTryLock), only_held, goal, SHORT);
    assert_eq!((last.at_once, last.group), (false, HELD));
}

/// What a thread of its own returns, if it does not have to wait for so long; and later all the same.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    // Nobody listens any more if the test has failed.
    thread::spawn(move || drop(sender.send(work())));
    receiver
}

/// What a file would continue at its goal is looked for elsewhere at once; what will do only there waits.
#[test]
fn only_a_goal_that_another_place_can_stand_in_for_is_passed_by() {
    let policy = Policy::MBALLOC.with(Mechanism::GoalTryLock);
    let held = Held::new(policy, 3, HELD..HELD + 1, empty);
    let goal = Request { goal: goal_beside_holder(), ..data(16, 16) };
    let allocator = Arc::clone(&held.allocator);
    let at_once = apart(move || allocator.reserve_at(&goal).unwrap()).recv_timeout(LONG);
    assert!(at_once.expect("it waits for a busy goal").is_none());
    assert_eq!(held.allocator.stats().busy_skips, 1);
    let allocator = Arc::clone(&held.allocator);
    let exact = goal.exactly_at_goal();
    let waiting = apart(move || allocator.reserve(&exact).unwrap());
    assert!(waiting.recv_timeout(SHORT).is_err(), "it does not wait");
    held.release();
    assert_eq!(group_of(&waiting.recv_timeout(LONG).unwrap()), HELD);
}

/// More groups are busy than a walk has patience for, and the first free one has what is asked.
#[test]
fn busy_groups_do_not_use_up_the_patience_of_a_walk() {
    const BUSY: u32 = 150;
    for policy in [Policy::MBALLOC, Policy::MBALLOC.without(Mechanism::Peek)] {
        let held = Held::new(policy, BUSY + 3, 1..BUSY + 1, empty);
        let before = held.allocator.stats();
        let got = held.allocator.reserve(&data(40, 40)).unwrap();
        let stats = held.allocator.stats().minus(&before);
        assert_eq!((group_of(&got), stats.passes.goal_fast.hits), (BUSY + 1, 1), "{policy}: {stats:#?}");
        assert_eq!(stats.busy_skips + stats.busy_peeks, u64::from(BUSY), "{policy}");
        held.release();
    }
}

/// A file of 20 clusters that its last user has closed before they had a place; how many clusters are kept.
fn kept_for_closed(allocator: &Allocator<Gated>, policy: Policy) -> u64 {
    let prealloc = Preallocation::new(Config { policy, ..Config::default() });
    let request = FileRequest {
        file: 7,
        logical: 0,
        len: Clusters::new(20),
        size: 20,
        continuation: None,
        right: None,
        home: goal_in(2),
        explicit: false,
        closed: true,
        take_root_reserve: false,
    };
    let window = Arc::default();
    let got = prealloc.take(allocator, &window, &request).unwrap();
    assert_eq!(got.len().get(), 20);
    prealloc.discard_all().get()
}

#[test]
fn a_closed_file_gets_a_window_only_while_locks_are_contended() {
    for (policy, closed, contended) in
        [(Policy::MBALLOC, 0, 12), (Policy::MBALLOC.without(Mechanism::Contention), 12, 12)]
    {
        let held = Held::new(policy, 3, HELD..HELD + 1, empty);
        assert_eq!(kept_for_closed(&held.allocator, policy), closed, "{policy}");
        assert_eq!(held.allocator.contention(), 0);
        // One after another: the number is not exact when two threads change it at once.
        let wait = |count| {
            let allocator = Arc::clone(&held.allocator);
            let exact = Request::new(goal_in(HELD), Clusters::ONE).exactly_at_goal();
            let waiter = thread::spawn(move || drop(allocator.reserve(&exact)));
            let until = Instant::now() + LONG;
            while policy.has(Mechanism::Contention) && held.allocator.contention() < count {
                assert!(Instant::now() < until, "waiters are not counted");
                thread::yield_now();
            }
            waiter
        };
        let waiters: Vec<_> = (1..=8).map(wait).collect();
        assert_eq!(kept_for_closed(&held.allocator, policy), contended, "{policy}");
        assert!(held.allocator.contention() < 8, "each lock that is had at once lowers it");
        held.release();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }
}
