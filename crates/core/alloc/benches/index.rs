//! Looking up and updating the group index, from 10 to 30 million groups.
//!
//! Lookups start at random groups (as goals of unrelated files do), or a little after the last answer (as the
//! goal of a stream does). Densities: each, one in 1000, one in 100,000 groups qualifies.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hectare_alloc::bench_support::Index;
use std::hint::black_box;
use std::time::Duration;

const SIZES: [u32; 4] = [10, 10_000, 1_000_000, 30_000_000];

/// A sequence of numbers below `below` (xorshift, multiplied down).
fn random(state: &mut u64, below: u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    u32::try_from(((*state >> 32) * u64::from(below)) >> 32).unwrap_or(0)
}

/// Lookup with wrap-around, as the allocator does it.
fn lookup(index: &Index, start: u32, groups: u32) -> Option<u32> {
    index.next(start, groups).or_else(|| index.next(0, start))
}

fn lookups(c: &mut Criterion) {
    for step in [1, 1000, 100_000] {
        let mut group = c.benchmark_group(format!("lookup, 1 in {step}"));
        for groups in SIZES.into_iter().filter(|groups| *groups == 10 || *groups >= step / 10) {
            let index = Index::new(groups, step.min(groups));
            let mut state = 0x9e37_79b9_7f4a_7c15;
            group.bench_function(BenchmarkId::new("random start", groups), |b| {
                b.iter(|| black_box(lookup(&index, random(&mut state, groups), groups)));
            });
            let mut at = 0;
            group.bench_function(BenchmarkId::new("moving goal", groups), |b| {
                b.iter(|| {
                    let found = lookup(&index, at, groups).unwrap_or(0);
                    at = if found + 3 < groups { found + 3 } else { 0 };
                    black_box(found)
                });
            });
        }
        group.finish();
    }
}

fn updates(c: &mut Criterion) {
    let mut group = c.benchmark_group("update");
    for groups in SIZES {
        let index = Index::new(groups, 1000.min(groups));
        let mut state = 0x9e37_79b9_7f4a_7c15;
        group.bench_function(BenchmarkId::new("one order down and up", groups), |b| {
            b.iter(|| {
                let at = random(&mut state, groups);
                index.update(at, Some(12), Some(11));
                index.update(at, Some(11), Some(12));
            });
        });
        group.bench_function(BenchmarkId::new("one order, nearby", groups), |b| {
            b.iter(|| {
                index.update(3, Some(12), Some(11));
                index.update(3, Some(11), Some(12));
            });
        });
    }
    let index = Index::new(10, 1);
    group.bench_function("request counters", |b| b.iter(|| index.count()));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(20))
        .measurement_time(Duration::from_millis(60));
    targets = lookups, updates
}
criterion_main!(benches);
