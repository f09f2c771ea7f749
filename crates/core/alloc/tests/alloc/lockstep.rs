//! The allocator beside a model that knows the state of every single cluster: random events from a seed, and
//! after each event everything that can be counted is compared. All policies, with and without index,
//! classes, flex groups, stripes and discard.

use crate::common::{Disk, Txn};
use hectare_alloc::{
    AllocError, Allocator, Claim, Config, DiscardRun, Layout, Policy, Purpose, Recording, Request,
    Reservation, Run, Tunables,
};
use hectare_units::random::SplitMix64;
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, index_of, u64_of, usize_of};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Reserved,
    Used,
    Freed(TxnId),
}

const PER_GROUP: u32 = 150;
const TOTAL: u32 = 7 * PER_GROUP + 70;
const OWN: u32 = 3;

/// How often the corners were reached that the events are there for.
#[derive(Default, Debug)]
struct Reached {
    evicted: usize,
    no_space: usize,
    short: usize,
    at_goal: usize,
    discarded: usize,
}

struct Pair {
    allocator: Allocator<Disk>,
    config: Config,
    model: Vec<State>,
    /// Free clusters that are to be discarded.
    to_discard: Vec<bool>,
    held: Vec<Reservation>,
    discards: Vec<DiscardRun>,
    claim: Claim,
    running: TxnId,
    /// Bitmaps rendered for a transaction whose commit is under way.
    frozen: Option<(TxnId, BTreeMap<GroupNr, Vec<u64>>)>,
    root_reserve: u64,
    rng: SplitMix64,
    reached: Reached,
}

fn clusters(run: Run) -> Range<usize> {
    index_of(run.start.get())..index_of(run.start.get() + run.len.get())
}

/// The configuration that a seed stands for: the policy by the seed itself, the rest at random.
fn config(seed: u64, rng: &mut SplitMix64) -> Config {
    let policy = Policy::ALL[index_of(seed % 6)];
    let mb_optimize_scan = [None, Some(true), Some(true)][index_of(rng.below(3))];
    let stripe = [0, 0, 16][index_of(rng.below(3))];
    let mb_max_linear_groups = [0, 0, 3][index_of(rng.below(3))];
    let tunables =
        Tunables { mb_optimize_scan, stripe: Some(stripe), mb_max_linear_groups, ..Tunables::default() };
    Config {
        policy,
        tunables,
        block_bytes: 4096,
        cluster_blocks: [1, 16, 64][index_of(rng.below(3))],
        flex_groups: [1, 2, 4][index_of(rng.below(3))],
        discard: rng.below(2) == 0,
        record: (seed / 6).is_multiple_of(2).then_some(Recording::LAST),
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let config = config(seed, &mut rng);
        let layout = Layout::new(PER_GROUP, Clusters::new(u64::from(TOTAL))).unwrap();
        let own = if rng.below(2) == 0 { OWN } else { 0 };
        let disk = if own > 0 { Disk::with_metadata(layout, own) } else { Disk::empty(layout) };
        let model = (0..TOTAL)
            .map(|at| if at % PER_GROUP < own { State::Used } else { State::Free })
            .collect::<Vec<_>>();
        let allocator = Allocator::new(disk, layout, config);
        let claim = allocator.claim(Clusters::ZERO, true).unwrap();
        let root_reserve = 20;
        allocator.set_root_reserve(Clusters::new(root_reserve));
        Self {
            allocator,
            config,
            to_discard: vec![false; model.len()],
            model,
            held: Vec::new(),
            discards: Vec::new(),
            claim,
            running: TxnId::new(u32::MAX - 5), // ids wrap on the way
            frozen: None,
            root_reserve,
            rng,
            reached: Reached::default(),
        }
    }

    fn count(&self, is: impl Fn(State) -> bool) -> u64 {
        u64_of(self.model.iter().filter(|state| is(**state)).count())
    }

    fn paint(&mut self, run: Run, from: State, to: State) {
        for at in clusters(run) {
            assert_eq!(self.model[at], from, "cluster {at} on its way to {to:?}");
            self.model[at] = to;
            self.to_discard[at] = false;
        }
    }

    /// All maximal free runs, cut at groups.
    fn free_runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (at, _) in self.model.iter().enumerate().filter(|(_, state)| **state == State::Free) {
            match runs.last_mut() {
                Some(last) if last.end == at && at % usize_of(PER_GROUP) != 0 => last.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    fn longest(&self) -> u64 {
        u64_of(self.free_runs().iter().map(Range::len).max().unwrap_or(0))
    }

    fn goal_run(&self, goal: ClusterNr) -> u64 {
        let at = index_of(goal.get());
        let end = (at / usize_of(PER_GROUP) + 1) * usize_of(PER_GROUP);
        let group_rest = self.model.get(at..end.min(self.model.len())).unwrap_or(&[]);
        u64_of(group_rest.iter().take_while(|state| **state == State::Free).count())
    }

    fn request(&mut self) -> Request {
        let most = [4, 40, 200][index_of(self.rng.below(3))];
        let want = 1 + self.rng.below(most);
        let want = if self.rng.below(2) == 0 { want.next_power_of_two() } else { want };
        let min = 1 + self.rng.below(want);
        let goal = ClusterNr::new(self.rng.below(u64::from(TOTAL) + 20));
        let mut request = Request::new(goal, Clusters::new(want))
            .at_least(Clusters::new(min))
            .with_root_reserve(self.rng.below(4) == 0);
        if self.rng.below(5) > 0 {
            request = request.for_data(Clusters::new(1 + self.rng.below(want)));
            if self.rng.below(4) == 0 {
                request = request.on_stream(u32::try_from(self.rng.below(1000)).unwrap());
            }
        }
        request
    }

    fn purse(&self, claimed: bool, root: bool) -> u64 {
        let available = self.count(|state| state == State::Free) - self.claim.left().get();
        match (claimed, root) {
            (true, _) => self.claim.left().get(),
            (false, true) => available,
            (false, false) => available.saturating_sub(self.root_reserve),
        }
    }

    fn reserve(&mut self) {
        let request = self.request();
        let claimed = self.rng.below(4) == 0;
        let purse = self.purse(claimed, request.take_root_reserve);
        let result = match claimed {
            true => self.allocator.reserve_claimed(&mut self.claim, &request),
            false => self.allocator.reserve(&request),
        };
        let most = request.want.get().min(purse);
        match result {
            Err(AllocError::NoSpace) => {
                let length = most.min(self.longest());
                assert!(length < request.min.get(), "{length} clusters could be had for {request:?}");
                self.reached.no_space += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(reservation) => {
                let run = reservation.run();
                let len = run.len.get();
                assert!((request.min.get()..=most).contains(&len), "{len} for {request:?} out of {most}");
                let first = run.start.get() / u64::from(PER_GROUP);
                assert_eq!(first, (run.start.get() + len - 1) / u64::from(PER_GROUP), "inside one group");
                self.check_choice(&request, run, most);
                self.reached.short += usize::from(len < request.want.get());
                self.paint(run, State::Free, State::Reserved);
                self.held.push(reservation);
            }
        }
    }

    /// What the policies promise of their choice, as far as that is exact. The model is as before it.
    fn check_choice(&self, request: &Request, run: Run, most: u64) {
        let (goal, stream) = (request.goal, request.stream.is_some());
        let data = request.purpose == Purpose::Data;
        let policy = if data { self.config.policy } else { Policy::FIRST_FIT };
        let goes_to_goal = policy == Policy::FIRST_FIT && !stream;
        if goes_to_goal && self.goal_run(goal) >= most {
            assert_eq!((run.start, run.len.get()), (goal, most), "the goal is free for {request:?}");
        }
        let full: Vec<u64> =
            self.free_runs().iter().map(|run| u64_of(run.len())).filter(|len| *len >= most).collect();
        match policy {
            Policy::BEST_FIT if !full.is_empty() => {
                let around =
                    self.free_runs().into_iter().find(|free| free.contains(&index_of(run.start.get())));
                let around = u64_of(around.unwrap().len());
                assert_eq!(Some(around), full.into_iter().min(), "the shortest for {request:?}");
                assert_eq!(run.len.get(), most);
            }
            Policy::FIRST_FIT if data && !full.is_empty() => {
                assert_eq!(run.len.get(), most, "a full run for {request:?}");
            }
            Policy::MBALLOC | Policy::HYBRID if self.config.tunables.mb_optimize_scan == Some(true) => {
                let asked = request.asked.get().clamp(request.min.get(), most);
                let chunk = asked.next_power_of_two();
                let has_chunk = self.free_runs().iter().any(|free| {
                    let within = u64_of(free.start) % u64::from(PER_GROUP);
                    within.next_multiple_of(chunk) + chunk <= within + u64_of(free.len())
                });
                assert!(!has_chunk || run.len.get() >= asked, "{} for {request:?}", run.len);
            }
            _ => {}
        }
    }

    fn reserve_at(&mut self) {
        let request = Request { stream: None, ..self.request() };
        let most = request.want.get().min(self.purse(false, request.take_root_reserve));
        let length = most.min(self.goal_run(request.goal));
        let classes = matches!(self.config.policy, Policy::SIZE_CLASS | Policy::HYBRID);
        match self.allocator.reserve_at(&request).unwrap() {
            Some(reservation) => {
                assert_eq!(reservation.run(), Run::new(request.goal, Clusters::new(length)));
                self.paint(reservation.run(), State::Free, State::Reserved);
                self.held.push(reservation);
                self.reached.at_goal += 1;
            }
            None if classes && request.purpose == Purpose::Data => {}
            None => assert!(length < request.min.get(), "{length} are free at the goal of {request:?}"),
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
        let Some(mut reservation) = self.pick() else { return };
        let whole = reservation.run();
        if self.rng.below(3) > 0 {
            assert_eq!(reservation.publish(&mut Txn(self.running)), whole);
            return self.paint(whole, State::Reserved, State::Used);
        }
        let n = Clusters::new(self.rng.below(whole.len.get() + 2));
        let front = reservation.publish_front(n, &mut Txn(self.running));
        assert_eq!((front.start, front.len + reservation.len()), (whole.start, whole.len));
        self.paint(front, State::Reserved, State::Used);
        self.held.push(reservation);
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
        let available = self.purse(false, true);
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
        for (state, to_discard) in self.model.iter_mut().zip(&mut self.to_discard) {
            if matches!(*state, State::Freed(id) if !id.is_after(txn)) {
                *state = State::Free;
                *to_discard = self.config.discard;
            }
        }
    }

    fn take_discards(&mut self) {
        let available = self.purse(false, true);
        let expected = u64_of(self.to_discard.iter().filter(|is| **is).count());
        let at_most = [2, usize::MAX][index_of(self.rng.below(2))];
        let runs = self.allocator.take_discards(at_most);
        assert!(runs.len() <= at_most);
        let mut sum = 0;
        for run in runs {
            assert!(self.to_discard[clusters(run.run())].iter().all(|is| *is), "{run:?} is to be discarded");
            self.paint(run.run(), State::Free, State::Reserved);
            sum += run.run().len.get();
            self.discards.push(run);
        }
        if at_most == usize::MAX {
            assert_eq!(sum, expected.min(available), "all that wait are handed out");
        }
        self.reached.discarded += index_of(sum);
    }

    fn finish_discards(&mut self) {
        let runs = std::mem::take(&mut self.discards);
        for run in runs {
            self.paint(run.run(), State::Reserved, State::Free);
            self.to_discard[clusters(run.run())].fill(false);
        }
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..6 => self.reserve(),
            6 => self.reserve_at(),
            7..11 => self.publish_one(),
            11..13 => self.drop_one(),
            13 => self.split_one(),
            14 => self.shrink_one(),
            15..18 => self.free_some(),
            18 => self.freeze(),
            19 => self.finish(),
            20 => {
                let at_most = index_of(self.rng.below(8));
                self.reached.evicted += self.allocator.evict(at_most);
            }
            21 => self.take_discards(),
            22 => self.finish_discards(),
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
        self.allocator.check().unwrap();
    }

    /// Everything committed, the bitmaps in the source are the model's.
    fn close(mut self) -> Reached {
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
        self.discards.clear();
        self.claim.shrink_to(Clusters::ZERO);
        drop(self.allocator.take_discards(usize::MAX));
        self.allocator.evict(usize::MAX);
        assert_eq!(self.allocator.loaded_groups(), 0, "nothing holds a group any more");
        self.allocator.check().unwrap();
        self.reached
    }
}

#[test]
fn allocator_and_model_agree_after_every_event() {
    let mut loads = 0;
    let mut all = Reached::default();
    for seed in 0..90 {
        let mut pair = Pair::new(seed);
        println!("seed {seed}: {:?}", pair.config);
        for _ in 0..1200 {
            pair.step();
        }
        loads += pair.allocator.source().loads.load(Ordering::Relaxed);
        let reached = pair.close();
        all.evicted += reached.evicted;
        all.no_space += reached.no_space;
        all.short += reached.short;
        all.at_goal += reached.at_goal;
        all.discarded += reached.discarded;
    }
    // The events must have reached the corners they are there for.
    println!("{all:?}, {loads} loads");
    assert!(all.evicted > 50 && loads > 90 * 8, "{} evictions, {loads} loads", all.evicted);
    assert!(all.no_space > 50 && all.short > 50 && all.at_goal > 50 && all.discarded > 500, "{all:?}");
}
