//! Small pieces of work, each of which does one operation often. Compiled twice, as the replay is: the
//! difference between its real time and its virtual time is the cost of that operation beside locks and
//! atomics.

use super::alloc::{Allocator, Config, GroupSource, Layout, Policy, Request, Reservation, Transaction};
use crate::virtual_cpus::costs::Probe;
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, usize_of};
use std::convert::Infallible;

/// Clusters of a group, and groups.
const GROUP: u32 = 32_768;
const GROUPS: u32 = 256;
/// Pieces of a round.
const PIECES: u32 = 64;

/// A volume whose groups all have one bitmap, but for the last.
struct Pattern {
    bitmap: Vec<u64>,
    last: Vec<u64>,
}

/// A bitmap with these clusters free.
fn bitmap(free: impl Fn(u32) -> bool) -> Vec<u64> {
    let mut words = vec![u64::MAX; usize_of(GROUP / 64)];
    for at in (0..GROUP).filter(|at| free(*at)) {
        words[usize_of(at / 64)] &= !(1 << (at % 64));
    }
    words
}

impl Pattern {
    fn new(free: impl Fn(u32) -> bool) -> Self {
        Self { bitmap: bitmap(free), last: bitmap(|_| true) }
    }

    fn of(&self, group: GroupNr) -> &[u64] {
        if group.get() + 1 == GROUPS { &self.last } else { &self.bitmap }
    }
}

impl GroupSource for Pattern {
    type Error = Infallible;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Infallible> {
        Ok(self.of(group).to_vec())
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        self.of(group).iter().map(|word| word.count_zeros()).sum()
    }
}

struct Txn;

impl Transaction for Txn {
    fn id(&self) -> TxnId {
        TxnId::new(1)
    }
}

fn allocator(pattern: Pattern) -> Allocator<Pattern> {
    let layout = Layout::new(GROUP, Clusters::new(u64::from(GROUP) * u64::from(GROUPS)));
    let layout = layout.expect("a volume of the probes");
    // In order, without the index: what is looked at is known.
    let policy: Policy = "first-fit,-index".parse().expect("a policy of the probes");
    let allocator = Allocator::new(pattern, layout, Config { policy, ..Config::default() });
    for group in (0..GROUPS).map(GroupNr::new) {
        allocator.group_summary(group).expect("a pattern has every group");
    }
    allocator
}

fn reserve(allocator: &Allocator<Pattern>, len: u64) -> Reservation {
    let request = Request::new(ClusterNr::new(0), Clusters::new(len)).at_least(Clusters::new(len));
    allocator.reserve(&request.for_data(Clusters::new(len))).expect("a pattern has such a run")
}

/// Does the work of a probe often, in rounds; how long one piece took by `now`, which is in nanoseconds, in
/// the fastest round.
pub(crate) fn run(probe: Probe, rounds: u32, now: &dyn Fn() -> f64) -> f64 {
    let pattern = match probe {
        // One cluster, a long way, and the run that is asked for.
        Probe::Word => Pattern::new(|at| at == 0 || at >= GROUP - 64),
        // Many runs that are too short, then that run.
        Probe::Extent => Pattern::new(|at| at.is_multiple_of(64) || at >= GROUP - 64),
        // No group has that run but the last.
        Probe::Group => Pattern::new(|at| at == 0),
        Probe::Change | Probe::Mark | Probe::Split | Probe::Request => Pattern::new(|_| true),
    };
    let allocator = allocator(pattern);
    let mut fastest = f64::INFINITY;
    for _ in 0..rounds {
        // The free space that some of the probes fragment.
        let cut = matches!(probe, Probe::Change | Probe::Mark | Probe::Split);
        let mut space = cut.then(|| reserve(&allocator, PIECES.into()));
        let started = now();
        for left in (0..PIECES).rev() {
            match (probe, &mut space) {
                (Probe::Change, Some(space)) => space.shrink_to(Clusters::new(left.into())),
                (Probe::Mark, Some(space)) => {
                    space.publish_front(Clusters::ONE, &mut Txn);
                }
                (_, Some(space)) => {
                    let rest = space.split_off(Clusters::ONE);
                    std::mem::replace(space, rest).publish(&mut Txn);
                }
                (_, None) => drop(reserve(&allocator, 32)),
            }
        }
        fastest = fastest.min((now() - started) / f64::from(PIECES));
    }
    fastest
}
