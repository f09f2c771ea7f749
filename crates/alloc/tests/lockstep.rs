//! The allocator beside a model that knows the state of every single cluster: random events from a seed, and
//! after each event everything that can be counted is compared.

#![allow(clippy::unwrap_used)] // the helpers of these tests are tests too

mod common;

use common::{Disk, Rng, Txn};
use hectare_alloc::{AllocError, Allocator, Claim, Layout, Request, Reservation, Run};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, index_of, u64_of, usize_of};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Reserved,
    Used,
    Freed(TxnId),
}

const PER_GROUP: u32 = 150;
const TOTAL: u32 = 4 * PER_GROUP + 70;

struct Pair {
    allocator: Allocator<Disk>,
    model: Vec<State>,
    held: Vec<Reservation>,
    claim: Claim,
    running: TxnId,
    /// Bitmaps rendered for a transaction whose commit is under way.
    frozen: Option<(TxnId, BTreeMap<GroupNr, Vec<u64>>)>,
    root_reserve: u64,
    rng: Rng,
    evicted: usize,
    no_space: usize,
    short: usize,
}

fn clusters(run: Run) -> std::ops::Range<usize> {
    index_of(run.start.get())..index_of(run.start.get() + run.len.get())
}

impl Pair {
    fn new(seed: u64) -> Self {
        let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(TOTAL))).unwrap();
        let allocator = Allocator::new(Disk::empty(layout), layout);
        let claim = allocator.claim(Clusters::ZERO, true).unwrap();
        let root_reserve = 20;
        allocator.set_root_reserve(Clusters::new(root_reserve));
        Self {
            allocator,
            model: vec![State::Free; usize_of(TOTAL)],
            held: Vec::new(),
            claim,
            running: TxnId::new(u32::MAX - 5), // ids wrap on the way
            frozen: None,
            root_reserve,
            rng: Rng(seed),
            evicted: 0,
            no_space: 0,
            short: 0,
        }
    }

    fn count(&self, is: impl Fn(State) -> bool) -> u64 {
        u64_of(self.model.iter().filter(|state| is(**state)).count())
    }

    fn paint(&mut self, run: Run, from: State, to: State) {
        for at in clusters(run) {
            assert_eq!(self.model[at], from, "cluster {at} on its way to {to:?}");
            self.model[at] = to;
        }
    }

    /// The longest run inside one group, by the model.
    fn longest(&self) -> u64 {
        let longest = |group: &[State]| {
            group.split(|state| *state != State::Free).map(<[State]>::len).max().unwrap_or(0)
        };
        u64_of(self.model.chunks(usize_of(PER_GROUP)).map(longest).max().unwrap_or(0))
    }

    fn goal_run(&self, goal: ClusterNr) -> u64 {
        let at = index_of(goal.get());
        let end = (at / usize_of(PER_GROUP) + 1) * usize_of(PER_GROUP);
        let group_rest = self.model.get(at..end.min(self.model.len())).unwrap_or(&[]);
        u64_of(group_rest.iter().take_while(|state| **state == State::Free).count())
    }

    fn reserve(&mut self) {
        let root = self.rng.below(4) == 0;
        let claimed = self.rng.below(4) == 0;
        let most = [4, 40, 200][index_of(self.rng.below(3))];
        let want = 1 + self.rng.below(most);
        let min = 1 + self.rng.below(want);
        let goal = ClusterNr::new(self.rng.below(u64::from(TOTAL) + 20));
        let request =
            Request::new(goal, Clusters::new(want)).at_least(Clusters::new(min)).with_root_reserve(root);
        let available = self.count(|state| state == State::Free) - self.claim.left().get();
        let purse = match (claimed, root) {
            (true, _) => self.claim.left().get(),
            (false, true) => available,
            (false, false) => available.saturating_sub(self.root_reserve),
        };
        let result = match claimed {
            true => self.allocator.reserve_claimed(&mut self.claim, &request),
            false => self.allocator.reserve(&request),
        };
        let length = want.min(purse).min(self.longest());
        match result {
            Err(AllocError::NoSpace) => {
                assert!(length < min, "{length} clusters could be had for {request:?}");
                self.no_space += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(reservation) => {
                let run = reservation.run();
                assert_eq!(run.len.get(), length, "the longest possible run for {request:?}");
                if self.goal_run(goal) >= length && length == want {
                    assert_eq!(run.start, goal, "the goal is free for {request:?}");
                }
                self.short += usize::from(length < want);
                self.paint(run, State::Free, State::Reserved);
                self.held.push(reservation);
            }
        }
    }

    fn pick(&mut self) -> Option<Reservation> {
        let n = u64_of(self.held.len());
        (n > 0).then(|| self.rng.below(n)).map(|at| self.held.swap_remove(index_of(at)))
    }

    fn drop_one(&mut self) {
        if let Some(reservation) = self.pick() {
            self.paint(reservation.run(), State::Reserved, State::Free);
            drop(reservation);
        }
    }

    fn split_one(&mut self) {
        if let Some(mut reservation) = self.pick() {
            let at = Clusters::new(self.rng.below(reservation.len().get() + 2));
            let whole = reservation.run();
            let rest = reservation.split_off(at);
            assert_eq!(reservation.len() + rest.len(), whole.len);
            assert_eq!(rest.run().start, whole.start + reservation.len());
            self.held.extend([reservation, rest]);
        }
    }

    fn shrink_one(&mut self) {
        if let Some(mut reservation) = self.pick() {
            let keep = Clusters::new(self.rng.below(reservation.len().get() + 2));
            let whole = reservation.run();
            reservation.shrink_to(keep);
            let kept = reservation.len();
            self.paint(Run::new(whole.start + kept, whole.len - kept), State::Reserved, State::Free);
            self.held.push(reservation);
        }
    }

    fn publish_one(&mut self) {
        if let Some(reservation) = self.pick() {
            let run = reservation.publish(&mut Txn(self.running));
            self.paint(run, State::Reserved, State::Used);
        }
    }

    fn free_some(&mut self) {
        let start = self.rng.below(u64::from(TOTAL));
        let len = self.rng.below(60).min(u64::from(TOTAL) - start);
        let run = Run::new(ClusterNr::new(start), Clusters::new(len));
        let first_bad = clusters(run).find(|at| self.model[*at] != State::Used);
        let result = self.allocator.free(run, &mut Txn(self.running));
        let end = match (first_bad, result) {
            (None, Ok(())) => clusters(run).end,
            (Some(bad), Err(AllocError::NotInUse { cluster })) => {
                assert_eq!(cluster.get(), u64_of(bad), "the first bad cluster is named");
                // Whole groups before the bad one are freed.
                (bad / usize_of(PER_GROUP) * usize_of(PER_GROUP)).max(clusters(run).start)
            }
            (expected, got) => panic!("freeing {run:?}, of which {expected:?} is not used, gave {got:?}"),
        };
        self.model[clusters(run).start..end].fill(State::Freed(self.running));
    }

    fn claim_some(&mut self) {
        let want = self.rng.below(30);
        let available = self.count(|state| state == State::Free) - self.claim.left().get();
        match self.allocator.claim(Clusters::new(want), true) {
            Ok(claim) => self.claim = claim, // the old one is given back
            Err(_) => assert!(want > available, "{want} of {available} could be claimed"),
        }
    }

    fn freeze(&mut self) {
        if self.frozen.is_some() {
            return;
        }
        let mut groups = BTreeMap::new();
        let visit = |group, words: &[u64], free| {
            let zeros: u32 = words.iter().map(|word| word.count_zeros()).sum();
            assert_eq!(zeros, free, "free count of group {group} and its padding");
            groups.insert(group, words.to_vec());
            Ok::<(), ()>(())
        };
        self.allocator.render_dirty(self.running, visit).unwrap();
        self.frozen = Some((self.running, groups));
        self.running = self.running.next();
    }

    fn finish(&mut self) {
        let Some((txn, groups)) = self.frozen.take() else { return };
        for (group, words) in groups {
            self.allocator.source().store(group, &words);
        }
        self.allocator.committed(txn);
        for state in &mut self.model {
            if matches!(*state, State::Freed(id) if !id.is_after(txn)) {
                *state = State::Free;
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..6 => self.reserve(),
            6..10 => self.publish_one(),
            10..12 => self.drop_one(),
            12 => self.split_one(),
            13 => self.shrink_one(),
            14..16 => self.free_some(),
            16 => self.freeze(),
            17 => self.finish(),
            18 => self.evicted += self.allocator.evict(index_of(self.rng.below(6))),
            _ => self.claim_some(),
        }
        self.compare();
    }

    fn compare(&self) {
        let counts = self.allocator.counts();
        let claimed = self.claim.left().get();
        assert_eq!(counts.claimed.get(), claimed);
        assert_eq!(counts.available.get() + claimed, self.count(|state| state == State::Free));
        assert_eq!(counts.reserved.get(), self.count(|state| state == State::Reserved));
        assert_eq!(counts.pending.get(), self.count(|state| matches!(state, State::Freed(_))));
        let durable = self.count(|state| state != State::Used);
        assert_eq!(counts.durable_free().get(), durable);
        assert_eq!(self.allocator.durable_free().get(), durable);
        self.allocator.for_each_group(|group, free| {
            let states = self.model.chunks(usize_of(PER_GROUP)).nth(group.index()).unwrap();
            let expected = states.iter().filter(|state| **state == State::Free).count();
            assert_eq!(usize_of(free), expected, "free clusters of group {group}");
        });
    }

    /// Everything committed, the bitmaps in the source are the model's.
    fn close(mut self) {
        self.finish();
        self.freeze();
        self.finish();
        let layout = self.allocator.layout();
        for (at, state) in self.model.iter().enumerate() {
            let (group, at) = layout.locate(ClusterNr::new(u64_of(at))).unwrap();
            let used = self.allocator.source().is_used(group, at);
            assert_eq!(used, *state == State::Used, "cluster {at} of group {group}");
        }
        for group in (0..layout.groups()).map(GroupNr::new) {
            let runs = self.allocator.free_runs(group).unwrap();
            let free: u64 = runs.iter().map(|run| run.len.get()).sum();
            assert_eq!(free, u64::from(self.allocator.source().count_free(group)));
        }
        self.held.clear();
        self.allocator.evict(usize::MAX);
        assert_eq!(self.allocator.loaded_groups(), 0, "nothing holds a group any more");
    }
}

#[test]
fn allocator_and_model_agree_after_every_event() {
    let [mut evicted, mut no_space, mut short, mut loads] = [0; 4];
    for seed in 0..60 {
        println!("seed {seed}");
        let mut pair = Pair::new(seed);
        for _ in 0..1500 {
            pair.step();
        }
        evicted += pair.evicted;
        no_space += pair.no_space;
        short += pair.short;
        loads += pair.allocator.source().loads.load(Ordering::Relaxed);
        pair.close();
    }
    // The events must have reached the corners they are there for.
    assert!(evicted > 50 && loads > 60 * 5, "{evicted} evictions, {loads} loads");
    assert!(no_space > 50 && short > 50, "{no_space} refusals, {short} short runs");
}
