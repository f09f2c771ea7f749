//! The cache beside a model of the device, after crashes, with faults and with threads.

use super::*;
use crate::{CrashStates, Discarded, FaultDevice, MemoryDevice, Outcome, RecordDevice, Rule, StatsDevice};
use hectare_units::random::SplitMix64;
use proptest::prelude::*;
use std::collections::HashSet;

const LEN: u64 = 64 << 10;

fn limits(pages: usize, read_ahead: usize, buffer: usize) -> CacheLimits {
    CacheLimits { bytes: 2 * buffer + pages * 4300, read_ahead, buffer }
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Fresh(u64, u64),
    Write(u64, u64, u64),
    Durable(u64, u64),
    Zero(u64, u64),
    Discard(u64, u64),
    Extent(u64, u64),
    Flush,
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let range = || (0_u64..LEN, prop_oneof![0_u64..300, 0_u64..20_000]);
    let step = prop_oneof![
        4 => range().prop_map(|(at, len)| Step::Read(at, len)),
        1 => range().prop_map(|(at, len)| Step::Fresh(at, len)),
        6 => (range(), 0_u64..300).prop_map(|((at, len), cut)| Step::Write(at, len, cut)),
        1 => range().prop_map(|(at, len)| Step::Durable(at, len)),
        1 => range().prop_map(|(at, len)| Step::Zero(at, len)),
        1 => range().prop_map(|(at, len)| Step::Discard(at, len)),
        1 => range().prop_map(|(at, len)| Step::Extent(at, len)),
        1 => Just(Step::Flush),
    ];
    proptest::collection::vec(step, 1..most)
}

/// Does a step on a device, beside a model.
fn step(device: &dyn Device, model: &mut [u8], number: usize, step: &Step) {
    let value = u8::try_from(number % 250 + 1).unwrap();
    let fit = |at: u64, len: u64| {
        let len = len.min(LEN - at);
        (Bytes::new(at), Bytes::new(len), index_of(at)..index_of(at + len))
    };
    match *step {
        Step::Read(at, len) | Step::Fresh(at, len) => {
            let (at, _, range) = fit(at, len);
            let mut found = vec![0xee; range.len()];
            match step {
                Step::Read(..) => device.read_at(at, &mut found).unwrap(),
                _ => device.read_fresh(at, &mut found).unwrap(),
            }
            assert!(found == model[range], "step {number}");
        }
        Step::Write(at, len, cut) => {
            let (at, _, range) = fit(at, len);
            let data = vec![value; range.len()];
            let (a, b) = data.split_at(data.len().min(index_of(cut)));
            device.write_all_at(at, &[IoSlice::new(a), IoSlice::new(b)]).unwrap();
            model[range].fill(value);
        }
        Step::Durable(at, len) => {
            let (at, _, range) = fit(at, len);
            device.write_durable(at, &[IoSlice::new(&vec![value; range.len()])]).unwrap();
            model[range].fill(value);
        }
        Step::Zero(at, len) => {
            let (at, len, range) = fit(at, len);
            device.zero(at, len).unwrap();
            model[range].fill(0);
        }
        Step::Discard(at, len) => {
            let (at, len, range) = fit(at, len);
            device.discard(at, len).unwrap();
            // Afterwards it is anything: so it gets something.
            device.write_at(at, &vec![value; range.len()]).unwrap();
            model[range].fill(value);
        }
        Step::Extent(at, len) => {
            let (at, len, range) = fit(at, len);
            let extent = device.extent_at(at, len).unwrap();
            assert!(extent.len <= len && (extent.len > Bytes::ZERO || len == Bytes::ZERO));
            let alike = &model[range.start..range.start + index_of(extent.len.get())];
            assert!(!extent.is_zero || alike.iter().all(|byte| *byte == 0), "step {number}");
        }
        Step::Flush => device.flush().unwrap(),
    }
}

proptest! {
    #[test]
    fn it_is_the_device_below(steps in steps(80), pages in 0_usize..12, ahead in 0_usize..20_000,
        buffer in prop_oneof![Just(0_usize), 1_usize..40_000]) {
        let memory = Arc::new(MemoryDevice::new(Bytes::new(LEN)));
        let device = CacheDevice::new(Arc::clone(&memory), limits(pages, ahead, buffer));
        let mut model = vec![0; index_of(LEN)];
        for (number, one) in steps.iter().enumerate() {
            step(&device, &mut model, number, one);
            if matches!(one, Step::Flush) {
                prop_assert!(memory.to_vec() == model, "step {number}: a flush left something");
            }
        }
        let mut whole = vec![0; model.len()];
        device.read_at(Bytes::ZERO, &mut whole).unwrap();
        prop_assert!(whole == model);
        drop(device);
        prop_assert!(memory.to_vec() == model, "what was buffered was not written at the end");
    }
}

/// The changes on a recording device with a cache over it, with a mark after each of them.
fn recorded(steps: &[Step]) -> Arc<[crate::Event]> {
    let record = Arc::new(RecordDevice::new(MemoryDevice::new(Bytes::new(LEN))));
    let device = CacheDevice::new(Arc::clone(&record), limits(4, 8192, 3000));
    let mut model = vec![0; index_of(LEN)];
    for (number, one) in steps.iter().enumerate() {
        step(&device, &mut model, number, one);
        record.mark(number as u64);
    }
    record.log()
}

/// Of each sector, what a crash after each number of steps can leave without a cache: what was durable, and what
/// was written since; the change that is under way may be done or not.
fn allowed(steps: &[Step]) -> Vec<Vec<HashSet<u8>>> {
    let mut now = vec![HashSet::from([0_u8]); 8];
    let mut latest = [0_u8; 8];
    let mut states = vec![now.clone()];
    for (number, one) in steps.iter().enumerate() {
        let value = u8::try_from(number % 250 + 1).unwrap();
        let sectors = |at: u64, len: u64| index_of(at / 512)..index_of((at + len) / 512);
        match *one {
            Step::Write(at, len, _) | Step::Zero(at, len) => {
                let value = if matches!(one, Step::Zero(..)) { 0 } else { value };
                for sector in sectors(at, len) {
                    now[sector].insert(value);
                    latest[sector] = value;
                }
            }
            Step::Durable(at, len) => {
                for sector in sectors(at, len) {
                    now[sector] = HashSet::from([value]);
                    latest[sector] = value;
                }
            }
            _ => now = latest.iter().map(|value| HashSet::from([*value])).collect(),
        }
        let last = states.last_mut().unwrap();
        last.iter_mut().zip(&now).for_each(|(last, now)| last.extend(now));
        states.push(now.clone());
    }
    states
}

fn small_steps() -> impl Strategy<Value = Vec<Step>> {
    // Whole sectors at few places, so that there are few states.
    let range = || (0_u64..6, 1_u64..3).prop_map(|(at, len)| (at * 512, len * 512));
    let step = prop_oneof![
        6 => range().prop_map(|(at, len)| Step::Write(at, len, 512)),
        1 => range().prop_map(|(at, len)| Step::Durable(at, len)),
        1 => range().prop_map(|(at, len)| Step::Zero(at, len)),
        1 => Just(Step::Flush),
    ];
    proptest::collection::vec(step, 1..9)
}

/// For each sector, the values that a crash at a point can leave there.
fn possible(log: &Arc<[crate::Event]>, after: u64, tries: u64) -> Vec<HashSet<u8>> {
    let memory = MemoryDevice::new(Bytes::new(LEN));
    let mut states = CrashStates::new(memory, Arc::clone(log)).discarded(Discarded::Kept);
    let mut found = vec![HashSet::new(); 8];
    // Up to the mark of this step, and with what comes before the next.
    let reached = |point: usize| log[..point].iter().filter(|e| matches!(e, crate::Event::Mark(_))).count();
    for point in 0..=log.len() {
        if reached(point) as u64 != after {
            continue;
        }
        for seed in 0..tries {
            let state = states.torn(point, seed).unwrap();
            for (sector, values) in found.iter_mut().enumerate() {
                let mut byte = [0];
                state.read_at(Bytes::of(sector * 512), &mut byte).unwrap();
                values.insert(byte[0]);
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Of every sector, after every change: what a crash leaves with the cache, it could have left without.
    #[test]
    fn a_crash_leaves_nothing_new(steps in small_steps()) {
        let (log, without) = (recorded(&steps), allowed(&steps));
        for (after, without) in without.iter().enumerate() {
            let with = possible(&log, after as u64, 24);
            for (sector, (with, without)) in with.iter().zip(without).enumerate() {
                prop_assert!(with.is_subset(without), "{after}, {sector}: {with:?}, {without:?}");
            }
        }
    }
}

#[test]
fn adjacent_writes_become_one_and_reads_that_go_on_few() {
    let stats = Arc::new(StatsDevice::new(MemoryDevice::new(Bytes::mib(8))));
    let device = CacheDevice::new(Arc::clone(&stats), CacheLimits::of(4 << 20));
    for turn in 0..64_u64 {
        device.write_at(Bytes::new(turn * 4096), &[1; 4096]).unwrap();
    }
    assert_eq!(stats.snapshot().of(Operation::Write).done, 0);
    device.flush().unwrap();
    let done = |operation| stats.snapshot().of(operation).done;
    assert_eq!((done(Operation::Write), done(Operation::Flush)), (1, 1));
    let mut buf = [0; 4096];
    for turn in 0..512_u64 {
        device.read_at(Bytes::new((4 << 20) + turn * 4096), &mut buf).unwrap();
    }
    assert!(done(Operation::Read) < 20, "{}", done(Operation::Read));
    let before = done(Operation::Read);
    device.read_at(Bytes::mib(6) - Bytes::kib(8), &mut buf).unwrap();
    assert_eq!(done(Operation::Read), before);
    let counters = device.counters();
    assert_eq!((counters.buffered, counters.written), (64, 1));
    assert!(counters.hits > 480 && counters.misses < 20, "{counters:?}");
}

#[test]
fn a_write_that_fails_late_ends_all_changes() {
    let faulty = Arc::new(FaultDevice::new(MemoryDevice::new(Bytes::mib(1))));
    let device = CacheDevice::new(Arc::clone(&faulty), CacheLimits::of(1 << 20));
    device.read_at(Bytes::ZERO, &mut [0; 10]).unwrap();
    device.write_at(Bytes::ZERO, b"buffered").unwrap();
    faulty.add(Rule::new(Outcome::IO).on(&[Operation::Write]).times(1));
    device.flush().unwrap_err();
    assert!(device.flush().is_err() && device.write_at(Bytes::ZERO, b"x").is_err());
    assert!(device.zero(Bytes::ZERO, Bytes::new(1)).is_err());
    let mut found = [1; 8];
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    assert_eq!(found, [0; 8], "nobody reads what is not there");
}

#[test]
fn what_others_change_is_seen_when_asked_for_and_once_the_device_is_ones_own() {
    struct Any;
    impl Fence for Any {
        fn mark_len(&self) -> usize {
            0
        }
        fn is_fresh(&self) -> bool {
            true
        }
        fn now(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
        fn judge(&self, _: std::time::Duration, _: &[u8]) -> crate::Mark {
            crate::Mark::Ours
        }
    }
    let memory = Arc::new(MemoryDevice::new(Bytes::kib(64)));
    let device = CacheDevice::new(Arc::clone(&memory), CacheLimits::of(1 << 20));
    let mut found = [0; 3];
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    memory.write_at(Bytes::ZERO, b"new").unwrap();
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    assert_eq!(&found, b"\0\0\0");
    device.read_fresh(Bytes::ZERO, &mut found).unwrap();
    assert_eq!(&found, b"new");
    memory.write_at(Bytes::ZERO, b"two").unwrap();
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    memory.write_at(Bytes::ZERO, b"end").unwrap();
    let fence: Arc<dyn Fence> = Arc::new(Any);
    device.add_fence(Bytes::ZERO, &fence);
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    assert_eq!(&found, b"end");
}

/// Threads change and read bytes of their own, many of which share pages, while everything is flushed.
#[test]
fn threads_that_share_pages_stay_apart() {
    const THREADS: u64 = 4;
    for seed in 0..6 {
        let memory = Arc::new(MemoryDevice::new(Bytes::new(LEN)));
        let device = CacheDevice::new(Arc::clone(&memory), limits(6, 16_000, 9000));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let device = &device;
                scope.spawn(move || {
                    let mut random = SplitMix64::new(seed * 100 + thread);
                    let mut mine = [0_u8; 64];
                    for turn in 0..1500_u64 {
                        let slot = random.below(64);
                        let at = Bytes::new(slot * 1000 + thread * 250);
                        let value = u8::try_from(turn % 255 + 1).unwrap();
                        match random.below(8) {
                            0..=2 => {
                                device.write_at(at, &[value; 250]).unwrap();
                                mine[index_of(slot)] = value;
                            }
                            3 if turn % 5 == 0 => {
                                device.write_durable(at, &[IoSlice::new(&[value; 250])]).unwrap();
                                mine[index_of(slot)] = value;
                            }
                            4 if turn % 5 == 0 => {
                                device.zero(at, Bytes::new(250)).unwrap();
                                mine[index_of(slot)] = 0;
                            }
                            5 if turn % 20 == 0 => device.flush().unwrap(),
                            _ => {
                                let mut found = [1; 250];
                                device.read_at(at, &mut found).unwrap();
                                assert!(
                                    found == [mine[index_of(slot)]; 250],
                                    "seed {seed}, {thread}: {turn}"
                                );
                            }
                        }
                    }
                });
            }
        });
        device.flush().unwrap();
        let mut whole = vec![0; index_of(LEN)];
        device.read_at(Bytes::ZERO, &mut whole).unwrap();
        assert!(memory.to_vec() == whole, "seed {seed}");
    }
}
