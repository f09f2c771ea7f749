//! The free space of one group of 32768 clusters, empty and aged: taking and giving a little and a lot,
//! making it from its bitmap, and going over its runs.

#![allow(missing_docs)] // criterion's macros make public functions without docs

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hectare_alloc::bench_support::Buddy;
use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

/// Every free run of a group.
fn runs(buddy: &Buddy) -> Vec<Range<u32>> {
    let next = |from| buddy.next_run(from, u32::MAX);
    std::iter::successors(next(0), |run| next(run.end)).collect()
}

/// The first two clusters of each free run, in an order that jumps about.
fn pairs(buddy: &Buddy) -> Vec<Range<u32>> {
    let mut pairs: Vec<Range<u32>> =
        runs(buddy).iter().filter(|run| run.len() >= 2).map(|run| run.start..run.start + 2).collect();
    pairs.sort_unstable_by_key(|pair| pair.start.wrapping_mul(0x9e37_79b9));
    pairs
}

fn small(c: &mut Criterion) {
    let mut group = c.benchmark_group("take 2, give 2");
    let mut empty = Buddy::new(Buddy::empty_words());
    group.bench_function("empty", |b| {
        b.iter(|| {
            empty.take(black_box(&(1000..1002)));
            empty.give(black_box(&(1000..1002)));
        });
    });
    let mut aged = Buddy::new(Buddy::aged_words());
    let places = pairs(&aged);
    let mut at = 0;
    group.bench_function("aged", |b| {
        b.iter(|| {
            let place = &places[at];
            at = (at + 1) % places.len();
            aged.take(black_box(place));
            aged.give(black_box(place));
        });
    });
    group.finish();
}

fn large(c: &mut Criterion) {
    let mut group = c.benchmark_group("take 512");
    for (name, start) in [("aligned", 0), ("not aligned", 100)] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || Buddy::new(Buddy::empty_words()),
                |buddy| buddy.take(black_box(&(start..start + 512))),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn whole(c: &mut Criterion) {
    let mut group = c.benchmark_group("aged group");
    let words = Buddy::aged_words();
    group.bench_function("made from its bitmap", |b| {
        b.iter_batched(|| words.clone(), Buddy::new, BatchSize::SmallInput);
    });
    let buddy = Buddy::new(words);
    group.throughput(Throughput::Elements(runs(&buddy).len() as u64));
    group.bench_function("over all runs", |b| {
        b.iter(|| {
            let (mut from, mut longest) = (0, 0);
            while let Some(run) = buddy.next_run(from, u32::MAX) {
                longest = longest.max(run.end - run.start);
                from = run.end;
            }
            black_box(longest)
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200));
    targets = small, large, whole
}
criterion_main!(benches);
