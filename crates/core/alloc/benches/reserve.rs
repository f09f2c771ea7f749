//! A whole allocation: reserve with its search, publish, and free again; and a window used up step by step.

#![allow(missing_docs)] // criterion's macros make public functions without docs

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use hectare_alloc::{Allocator, Config, GroupSource, Layout, Policy, Request, Reservation, Run, Transaction};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, usize_of};
use std::convert::Infallible;
use std::hint::black_box;

const PER_GROUP: u32 = 32_768;
const GROUPS: u32 = 512;

/// A volume of 64 GiB in blocks of 4 KiB. Aged: free runs of 16 clusters beside used ones of 16.
struct Source {
    aged: bool,
}

impl GroupSource for Source {
    type Error = Infallible;

    fn load(&self, _: GroupNr) -> Result<Vec<u64>, Infallible> {
        let word = if self.aged { 0xffff_0000_ffff_0000 } else { 0 };
        Ok(vec![word; usize_of(PER_GROUP / 64)])
    }

    fn free_hint(&self, _: GroupNr) -> u32 {
        if self.aged { PER_GROUP / 2 } else { PER_GROUP }
    }

    fn needs_io(&self, _: GroupNr) -> bool {
        false
    }
}

struct Txn(TxnId);

impl Transaction for Txn {
    fn id(&self) -> TxnId {
        self.0
    }
}

fn allocator(policy: Policy, aged: bool) -> Allocator<Source> {
    let total = u64::from(PER_GROUP) * u64::from(GROUPS);
    let layout = Layout::new(PER_GROUP, Clusters::new(total)).expect("a possible layout");
    Allocator::new(Source { aged }, layout, Config { policy, flex_groups: 16, ..Config::default() })
}

/// Gives all back that was published, through a commit.
fn free_all(allocator: &Allocator<Source>, runs: &mut Vec<Run>, txn: &mut Txn) {
    for run in runs.drain(..) {
        allocator.free(run, txn).expect("it is in use");
    }
    allocator.render_dirty(txn.0, |_, _, _| Ok::<(), Infallible>(())).expect("nothing fails");
    allocator.committed(txn.0);
    txn.0 = txn.0.next();
}

/// Times `step`, which returns what is to be freed, and frees outside the measurement.
fn timed(
    c: &mut Criterion,
    name: &str,
    allocator: &Allocator<Source>,
    mut step: impl FnMut(&Allocator<Source>, &mut Txn) -> Run,
) {
    let mut txn = Txn(TxnId::new(1));
    c.bench_function(name, |b| {
        b.iter_custom(|iterations| {
            let mut spent = std::time::Duration::ZERO;
            let mut runs = Vec::with_capacity(4096);
            let mut left = iterations;
            while left > 0 {
                let round = left.min(4096);
                let start = std::time::Instant::now();
                for _ in 0..round {
                    runs.push(step(allocator, &mut txn));
                }
                spent += start.elapsed();
                left -= round;
                free_all(allocator, &mut runs, &mut txn);
            }
            spent
        });
    });
}

fn requests(c: &mut Criterion) {
    for policy in [Policy::MBALLOC, Policy::HYBRID, Policy::SIZE_CLASS, Policy::FIRST_FIT] {
        for aged in [false, true] {
            let allocator = allocator(policy, aged);
            let age = if aged { "aged" } else { "fresh" };
            let two = Clusters::new(2);
            // After what was given last, as a file that grows.
            let mut goal = ClusterNr::new(0);
            timed(c, &format!("{policy}/{age}/goal 8 KiB"), &allocator, |allocator, txn| {
                let request = Request::new(goal, two).for_data(two);
                let run = allocator.reserve(&request).expect("there is space").publish(txn);
                goal = run.start + run.len;
                run
            });
            timed(c, &format!("{policy}/{age}/stream 8 KiB"), &allocator, |allocator, txn| {
                let request = Request::new(goal, two).for_data(two).on_stream(7);
                allocator.reserve(&request).expect("there is space").publish(txn)
            });
        }
    }
}

fn windows(c: &mut Criterion) {
    let allocator = allocator(Policy::MBALLOC, false);
    let window = || -> Reservation {
        let want = Clusters::new(512);
        allocator.reserve(&Request::new(ClusterNr::new(0), want).for_data(want)).expect("there is space")
    };
    let two = Clusters::new(2);
    let mut left = window();
    timed(c, "window/publish_front 8 KiB", &allocator, |_, txn| {
        if left.is_empty() {
            left = window();
        }
        left.publish_front(two, txn)
    });
    let mut left = window();
    timed(c, "window/split_off + publish 8 KiB", &allocator, |_, txn| {
        if left.is_empty() {
            left = window();
        }
        let rest = left.split_off(two);
        std::mem::replace(&mut left, rest).publish(txn)
    });
    c.bench_function("reserve and drop 8 KiB", |b| {
        let request = Request::new(ClusterNr::new(0), two).for_data(two);
        b.iter_batched(
            || request,
            |request| drop(black_box(allocator.reserve(&request))),
            BatchSize::SmallInput,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(700))
        .sample_size(20);
    targets = requests, windows
}
criterion_main!(benches);
