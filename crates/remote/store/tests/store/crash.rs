//! A crash at every request: what the store has then is what was flushed last, or what was being flushed,
//! and nothing else; and with the local log, some moment between.

use crate::fault_store::{Fate, FaultStore};
use crate::setup::{bucket, impatient, made, objects, opened, stored};
use hectare_device::Device;
use hectare_store::{Options, summary, sweep};
use hectare_units::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 200_000;

/// Gives a range of a volume's bytes a value.
type Fill<'a> = &'a mut dyn FnMut(std::ops::Range<usize>, u8);

/// What is done to a volume: N turns, each with changes and a flush.
#[derive(Clone, Copy)]
struct Life {
    turns: u8,
    /// How many patches there are in the end.
    patches: usize,
    /// The changes of a turn: bytes that a range gets.
    apply: fn(u8, Fill<'_>),
}

/// Writes, also to parts of chunks, and zeros: chunks are put.
const LARGE: Life = Life {
    turns: 4,
    patches: 0,
    apply: |turn, fill| {
        let at = usize::from(turn) * 20_000;
        fill(at..at + 50_000, turn + 1);
        fill(150_000 + usize::from(turn)..150_010, turn + 101);
        fill(at..at + 17_000, 0);
    },
};

/// Small changes, some of the same bytes again: patches are put, merged, and become chunks.
const SMALL: Life = Life {
    turns: 13,
    patches: 1,
    apply: |turn, fill| {
        let at = usize::from(turn) * 9000;
        fill(at..at + 300, turn + 1);
        fill(150_000 + usize::from(turn)..150_040, turn + 101);
        fill(at + 100..at + 150, 0);
    },
};

/// The states of a life: after the opening, and after each flush.
fn states(life: Life) -> Vec<Vec<u8>> {
    let mut state = vec![0; LEN];
    let mut states = vec![state.clone()];
    for turn in 0..life.turns {
        (life.apply)(turn, &mut |range, byte| state[range].fill(byte));
        states.push(state.clone());
    }
    states
}

/// Writes and flushes until something fails; returns how many flushes succeeded.
fn live(device: &dyn Device, life: Life) -> usize {
    for turn in 0..life.turns {
        let mut failed = false;
        (life.apply)(turn, &mut |range, byte| {
            let (at, len) = (Bytes::of(range.start), range.len());
            let done = match byte {
                0 => device.zero(at, Bytes::of(len)),
                byte => device.write_at(at, &vec![byte; len]),
            };
            failed |= done.is_err();
        });
        if failed || device.flush().is_err() {
            return usize::from(turn);
        }
    }
    usize::from(life.turns)
}

#[test]
fn a_crash_at_any_request_leaves_the_old_or_the_new_state() {
    let points = crash_everywhere(LARGE, Options::default().patches);
    assert!(points > 50, "{points}");
}

#[test]
fn a_crash_at_any_request_of_patches_leaves_the_old_or_the_new_state() {
    let points = crash_everywhere(SMALL, Bytes::new(4200));
    assert!(points > 50, "{points}");
}

/// Crashes a life before and after each of its requests; returns how often.
fn crash_everywhere(life: Life, patches: Bytes) -> u32 {
    let states = states(life);
    let mut points = 0;
    for fate in [Fate::Refused, Fate::Lost] {
        for crash_at in 0.. {
            let honest: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
            let faults = FaultStore::new(Arc::clone(&honest));
            let store: Arc<dyn ObjectStore> = faults.clone();
            let logs = tempfile::tempdir().unwrap();
            let options = Options { patches, ..impatient(logs.path()) };
            let device = made(&store, Bytes::of(LEN), &options);
            faults.rule(move |request| match request.number {
                n if n < crash_at => Fate::Done,
                n if n == crash_at => fate,
                _ => Fate::Refused,
            });
            let flushed = live(&device, life);
            let over = faults.seen().len() as u64 <= crash_at;
            drop(device);
            let found = stored(&honest);
            let allowed = &states[flushed..(flushed + 2).min(states.len())];
            assert!(allowed.contains(&found), "{fate:?} at {crash_at}: {flushed} flushes");
            if over {
                // Eight became one, and with three more chunks.
                let found = summary(&bucket(&honest, &options)).unwrap().patches;
                assert_eq!(found, life.patches);
            }
            check_the_next_writer(&honest, &options, &found, &states, flushed);
            points += 1;
            if over {
                assert_eq!(flushed, usize::from(life.turns));
                break;
            }
        }
    }
    points
}

/// Another opens it once without the log, and works on.
fn check_the_next_writer(
    store: &Arc<dyn ObjectStore>,
    options: &Options,
    found: &[u8],
    states: &[Vec<u8>],
    flushed: usize,
) {
    crate::setup::release(store);
    let other_logs = tempfile::tempdir().unwrap();
    let other = Options { log: Some(other_logs.path().to_owned()), ..options.clone() };
    let copy = crate::setup::copied(store);
    {
        // With the log of the one that crashed: what it had written last is there, or what it had flushed.
        let device = opened(&copy, options).unwrap();
        let recovered = crate::setup::content(&device);
        assert!(states[flushed..].contains(&recovered), "what the log brings back is some moment");
    }
    let device = opened(store, &other).unwrap();
    assert!(crate::setup::content(&device) == found);
    device.write_at(Bytes::new(77), b"next").unwrap();
    device.flush().unwrap();
    drop(device);
    let mut expected = found.to_vec();
    expected[77..81].copy_from_slice(b"next");
    assert!(stored(store) == expected);
    let swept = sweep(&bucket(store, &other), &other, false).unwrap();
    assert_eq!(swept.left, 0);
    assert_eq!(objects(store).len() as u64, swept.used);
    assert!(stored(store) == expected);
}

#[test]
fn what_an_unfinished_flush_had_put_is_gone_after_the_next_opening() {
    let honest: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let faults = FaultStore::new(Arc::clone(&honest));
    let store: Arc<dyn ObjectStore> = faults.clone();
    let logs = tempfile::tempdir().unwrap();
    let options = Options { lease: Duration::from_millis(200), ..impatient(logs.path()) };
    let device = made(&store, Bytes::of(LEN), &options);
    device.write_at(Bytes::ZERO, &[1; LEN]).unwrap();
    device.flush().unwrap();
    let used = objects(&honest);
    faults.rule(|request| if request.kind == "put" { Fate::Done } else { Fate::Refused });
    device.write_at(Bytes::ZERO, &[2; LEN]).unwrap();
    device.flush().unwrap_err();
    drop(device);
    assert!(objects(&honest).len() > used.len() + 10);
    std::thread::sleep(Duration::from_millis(500));
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Options { log: Some(elsewhere.path().to_owned()), takeover: true, ..options };
    let device = opened(&honest, &other).unwrap();
    assert_eq!(objects(&honest), used);
    assert!(crate::setup::content(&device).iter().all(|byte| *byte == 1));
}
