//! Measures the costs of the model on this machine.
//!
//! Locks, atomics and the transfer of a cache line between two processors are timed directly. Other costs of
//! the allocator are found by probes, one after another: a probe is run in real time and, with the costs
//! found so far, in virtual time; the difference is the cost of the operation that it does often. Each time
//! is the least of several rounds: on a busy machine that is the undisturbed one.
//!
//! What it is not: a fit to the experiment. No probe makes the requests that are replayed.

use super::costs::Probe;
use super::{COSTS, Costs, Time, machine, native, simulated};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Rounds of which the fastest counts.
const ROUNDS: u32 = 400;

/// Words that lie between the two runs of [`Probe::Word`], runs of [`Probe::Extent`], and groups.
const WORDS: f64 = 510.0;
const EXTENTS: f64 = 511.0;
const GROUPS: f64 = 255.0;

impl Probe {
    /// In this order: each rests on those before it.
    const ALL: [Self; 7] =
        [Self::Change, Self::Mark, Self::Split, Self::Request, Self::Word, Self::Extent, Self::Group];

    /// The cost that it is about, and how many times a piece of it pays that.
    fn about(self, costs: &mut Costs) -> (&mut Time, f64) {
        match self {
            Self::Word => (&mut costs.word, WORDS),
            Self::Extent => (&mut costs.extent, EXTENTS),
            Self::Group => (&mut costs.group, GROUPS),
            Self::Change => (&mut costs.change, 1.0),
            Self::Mark => (&mut costs.mark, 1.0),
            Self::Split => (&mut costs.split, 1.0),
            Self::Request => (&mut costs.request, 1.0),
        }
    }
}

/// The fastest of some rounds.
fn best(mut round: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of one of `times` runs of `f`.
fn each(times: u32, mut f: impl FnMut() -> u64) -> f64 {
    let started = Instant::now();
    for _ in 0..times {
        black_box(f());
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

/// A line that goes to and fro between two threads, in nanoseconds for one way: the fastest of many short
/// stretches, for only while both threads run it is that.
fn hand_over() -> f64 {
    const STRETCHES: u32 = 2000;
    const ROUNDS_OF_STRETCH: u32 = 20;
    let turn = AtomicU32::new(0);
    let play = |mine: u32| {
        let mut spins = 0_u32;
        while turn.load(Ordering::Acquire) != mine {
            spins += 1;
            if spins.is_multiple_of(1000) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        turn.fetch_add(1, Ordering::AcqRel);
    };
    let mut fastest = f64::INFINITY;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..STRETCHES * ROUNDS_OF_STRETCH).for_each(|step| play(2 * step + 1)));
        for stretch in 0..STRETCHES {
            let steps = (0..ROUNDS_OF_STRETCH).map(|step| stretch * ROUNDS_OF_STRETCH + step);
            let started = Instant::now();
            steps.for_each(|step| play(2 * step));
            fastest = fastest.min(started.elapsed().as_secs_f64() * 1e9);
        }
    });
    fastest / f64::from(2 * ROUNDS_OF_STRETCH)
}

/// Measures all costs that can be measured on one socket; the way to another socket is taken for as many
/// times the way inside one as in [`COSTS`]. Takes some seconds, and wants two processors that are idle.
#[must_use]
pub fn calibrate() -> Costs {
    let word = AtomicU64::new(0);
    let load = best(|| each(10_000, || word.load(Ordering::SeqCst)));
    let update = best(|| each(10_000, || word.fetch_add(1, Ordering::SeqCst)));
    // A copy comes to be read, then the line itself to be written: two ways.
    let near = ((hand_over() - update - load) / 2.0).max(0.0);
    let mut costs = Costs {
        load: Time::from_ns(load),
        update: Time::from_ns(update),
        near: Time::from_ns(near),
        far: Time::from_ns(near * COSTS.far.ns() / COSTS.near.ns()),
        ..COSTS
    };
    for probe in Probe::ALL {
        *probe.about(&mut costs).0 = Time::ZERO;
    }
    for probe in Probe::ALL {
        let real = real_time(probe);
        let missing = real - virtual_time(probe, &costs);
        let (cost, times) = probe.about(&mut costs);
        *cost = Time::from_ns((missing / times).max(0.0));
    }
    costs
}

fn real_time(probe: Probe) -> f64 {
    let started = Instant::now();
    native::probe::run(probe, ROUNDS, &|| started.elapsed().as_secs_f64() * 1e9)
}

fn virtual_time(probe: Probe, costs: &Costs) -> f64 {
    let took = AtomicU64::new(0);
    machine::run(1, costs, |_| {
        let ns = simulated::probe::run(probe, 2, &|| machine::now().ns());
        took.store(ns.to_bits(), Ordering::Relaxed);
    });
    f64::from_bits(took.into_inner())
}
