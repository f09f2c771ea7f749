//! The states of a power cut against a plain reading of the log.

use super::*;
use crate::{MemoryDevice, RecordDevice};
use proptest::prelude::*;
use std::collections::HashSet;

const SIZE: usize = 16 * 1024;
const SECTOR: usize = 512;
const SECTORS: usize = SIZE / SECTOR;

fn bytes_of(device: &impl Device) -> Vec<u8> {
    let mut bytes = vec![0xee; index_of(device.len().get())];
    device.read_at(Bytes::ZERO, &mut bytes).unwrap();
    bytes
}

fn states(log: Vec<Event>) -> CrashStates<MemoryDevice> {
    CrashStates::new(MemoryDevice::new(Bytes::of(SIZE)), log.into()).discarded(Discarded::Zeros)
}

/// A write of whole sectors, each filled with one value.
fn write(sector: usize, values: &[u8], durable: bool) -> Event {
    let data: Vec<u8> = values.iter().flat_map(|value| [*value; SECTOR]).collect();
    Event::Write { at: Bytes::of(sector * SECTOR), data: data.into(), durable }
}

/// The first byte of each sector, all of whose bytes must be the same.
fn sectors(device: &impl Device) -> Vec<u8> {
    let bytes = bytes_of(device);
    assert!(bytes.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "a torn sector");
    bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
}

fn seen(states: &mut CrashStates<MemoryDevice>, point: usize, seeds: u64) -> HashSet<Vec<u8>> {
    (0..seeds).map(|seed| sectors(&states.torn(point, seed).unwrap())[..3].to_vec()).collect()
}

#[test]
fn writes_since_the_flush_come_and_go_and_tear() {
    let log = vec![write(2, &[9], false), Event::Flush, write(0, &[1, 1], false), write(1, &[2], false)];
    let mut states = states(log);
    let found = seen(&mut states, 4, 400);
    // Both, none, each alone, and the first without one of its sectors: nothing else is possible.
    let all: [[u8; 3]; 6] = [[1, 2, 9], [0, 0, 9], [1, 1, 9], [0, 2, 9], [1, 0, 9], [0, 1, 9]];
    assert_eq!(found, all.map(|state| state.to_vec()).into());
}

#[test]
fn before_the_first_flush_everything_may_be_lost_and_after_it_nothing() {
    let mut states = states(vec![write(0, &[1], false), Event::Flush, Event::Mark(5)]);
    assert_eq!(seen(&mut states, 1, 100).len(), 2);
    assert_eq!((states.pending(1), states.pending(2)), (1, 0));
    assert_eq!(seen(&mut states, 2, 100), HashSet::from([vec![1, 0, 0]]));
    assert_eq!(states.points().collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!((states.marks(2).count(), states.marks(3).collect::<Vec<_>>()), (0, vec![5]));
}

#[test]
fn a_part_that_was_flushed_is_there_and_what_is_beside_it_may_not_be() {
    let device = RecordDevice::new(Arc::new(MemoryDevice::new(Bytes::of(SIZE))));
    let part = device.part(Bytes::of(SECTOR), Bytes::of(SECTOR)).unwrap();
    device.write_at(Bytes::ZERO, &[1; SECTOR]).unwrap();
    part.write_at(Bytes::ZERO, &[2; SECTOR]).unwrap();
    part.flush().unwrap();
    let mut states = CrashStates::new(MemoryDevice::new(Bytes::of(SIZE)), device.log());
    assert_eq!((states.pending(2), states.pending(3)), (2, 1));
    assert_eq!(seen(&mut states, 3, 100), HashSet::from([vec![0, 2, 0], vec![1, 2, 0]]));
    device.flush().unwrap();
    let mut states = CrashStates::new(MemoryDevice::new(Bytes::of(SIZE)), device.log());
    assert_eq!(seen(&mut states, 4, 100), HashSet::from([vec![1, 2, 0]]));
    assert!(states.torn(3, 0).is_err(), "the base holds what was not durable then");
}

#[test]
fn a_durable_write_is_there_once_it_has_returned() {
    let log = vec![write(0, &[1, 1], false), write(1, &[2], true), Event::Mark(0), write(2, &[3], false)];
    let mut states = states(log);
    // It may be under way at its own point only; the one before it is not made durable by it.
    assert!(seen(&mut states, 2, 200).contains(&vec![0, 0, 0]));
    assert_eq!(seen(&mut states, 3, 200), HashSet::from([vec![1, 2, 0], vec![0, 2, 0]]));
    assert!(seen(&mut states, 4, 200).iter().all(|state| state[1] == 2));
}

#[test]
fn a_state_in_use_keeps_the_base_where_it_is() {
    let mut states = states(vec![write(0, &[1], false), Event::Flush, write(0, &[2], false)]);
    let early = states.prefix(1).unwrap();
    assert!(states.prefix(2).err().expect("it would change under the state").is_busy());
    assert_eq!(sectors(&early)[0], 1);
    drop(early);
    let late = states.torn(3, 1).unwrap();
    let other = states.prefix(3).unwrap();
    late.write_at(Bytes::ZERO, &[8; SECTOR]).unwrap();
    assert_eq!((sectors(&late)[0], sectors(&other)[0]), (8, 2));
    drop((late, other));
    assert_eq!(sectors(&states.prefix(2).unwrap())[0], 1, "back to the flush is near enough");
    assert!(states.prefix(1).is_err() && states.prefix(4).is_err());
}

#[test]
fn discarded_ranges_hold_what_was_asked_for() {
    let span = Span::new(Bytes::ZERO, Bytes::of(2 * SECTOR));
    for (discarded, expected) in [(Discarded::Kept, 7), (Discarded::Zeros, 0), (Discarded::Garbage, 0xab)] {
        let log = vec![write(0, &[7; SECTORS], false), Event::Flush, Event::Discard(span), Event::Flush];
        let mut states = states(log).discarded(discarded);
        for point in [3, 4] {
            assert_eq!(sectors(&states.prefix(point).unwrap())[..3], [expected, expected, 7]);
        }
    }
}

#[test]
fn a_new_length_is_always_there() {
    let longer = Bytes::of(2 * SIZE);
    let log = vec![write(0, &[1], false), Event::Resize(longer), write(SECTORS, &[2], false), Event::Flush];
    let mut states = states(log);
    for seed in 0..50 {
        assert_eq!(states.torn(3, seed).unwrap().len(), longer);
    }
    assert_eq!(sectors(&states.prefix(3).unwrap())[SECTORS], 2);
    assert_eq!(sectors(&states.prefix(4).unwrap())[SECTORS], 2);
}

#[derive(Clone, Debug)]
enum Op {
    Write {
        sector: usize,
        count: usize,
        durable: bool,
    },
    Zero {
        sector: usize,
        count: usize,
    },
    Flush,
    /// Of the lower or upper half alone.
    FlushHalf(bool),
    Mark,
}

/// What is flushed by itself; no write crosses the border.
const HALF: usize = SECTORS / 2;

fn op() -> impl Strategy<Value = Op> {
    let range =
        || (0..SECTORS, 1..12_usize).prop_map(|(sector, count)| (sector, count.min(HALF - sector % HALF)));
    prop_oneof![
        8 => range().prop_map(|(sector, count)| Op::Write { sector, count, durable: false }),
        1 => range().prop_map(|(sector, count)| Op::Write { sector, count, durable: true }),
        1 => range().prop_map(|(sector, count)| Op::Zero { sector, count }),
        2 => Just(Op::Flush),
        2 => any::<bool>().prop_map(Op::FlushHalf),
        1 => Just(Op::Mark),
    ]
}

/// Records the operations, and what each sector may hold at each point: the last value is what it holds if
/// nothing is lost.
fn record(ops: &[Op]) -> (Arc<[Event]>, Vec<Vec<Vec<u8>>>) {
    let device = RecordDevice::new(Arc::new(MemoryDevice::new(Bytes::of(SIZE))));
    let mut may_hold = vec![vec![0]; SECTORS];
    let mut at_points = vec![may_hold.clone()];
    for (n, op) in ops.iter().enumerate() {
        let value = (n + 1).to_le_bytes()[0];
        let durable_before = may_hold.clone();
        match *op {
            Op::Write { sector, count, durable } => {
                let (at, data) = (Bytes::of(sector * SECTOR), vec![value; count * SECTOR]);
                if durable {
                    device.write_durable(at, &[std::io::IoSlice::new(&data)]).unwrap();
                } else {
                    device.write_at(at, &data).unwrap();
                }
                may_hold[sector..sector + count].iter_mut().for_each(|sector| sector.push(value));
            }
            Op::Zero { sector, count } => {
                device.zero(Bytes::of(sector * SECTOR), Bytes::of(count * SECTOR)).unwrap();
                may_hold[sector..sector + count].iter_mut().for_each(|sector| sector.push(0));
            }
            Op::Flush => {
                device.flush().unwrap();
                may_hold.iter_mut().for_each(|sector| *sector = vec![*sector.last().unwrap()]);
            }
            Op::FlushHalf(upper) => {
                let (first, len) = (usize::from(upper) * HALF, Bytes::of(HALF * SECTOR));
                device.part(Bytes::of(first * SECTOR), len).unwrap().flush().unwrap();
                let half = &mut may_hold[first..first + HALF];
                half.iter_mut().for_each(|sector| *sector = vec![*sector.last().unwrap()]);
            }
            Op::Mark => {
                device.mark(0);
            }
        }
        at_points.push(may_hold.clone());
        // From the next point on a durable write has returned.
        if let Op::Write { sector, count, durable: true } = *op {
            assert_ne!(durable_before, may_hold);
            may_hold[sector..sector + count].iter_mut().for_each(|sector| *sector = vec![value]);
        }
    }
    (device.take_log(), at_points)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sector_of_every_state_holds_what_it_may(ops in prop::collection::vec(op(), 1..40)) {
        let (log, at_points) = record(&ops);
        let image = Arc::new(MemoryDevice::new(Bytes::of(SIZE)));
        let mut states = CrashStates::new(OverlayDevice::new(Arc::clone(&image)), log);
        for (point, may_hold) in at_points.iter().enumerate() {
            let whole: Vec<u8> = may_hold.iter().map(|values| *values.last().unwrap()).collect();
            prop_assert_eq!(sectors(&states.prefix(point).unwrap()), whole.clone());
            for seed in 0..12 {
                let found = sectors(&states.torn(point, seed).unwrap());
                for (found, may_hold) in found.iter().zip(may_hold) {
                    prop_assert!(may_hold.contains(found), "point {}: {} of {:?}", point, found, may_hold);
                }
                prop_assert_eq!(&found, &sectors(&states.torn(point, seed).unwrap()));
            }
            prop_assert_eq!(sectors(&states.prefix(point).unwrap()), whole);
        }
        prop_assert!(image.to_vec().iter().all(|byte| *byte == 0));
    }
}
