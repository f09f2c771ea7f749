//! Which writers enter and which wait, step by step and under load.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long something that must not happen is watched for.
const WATCHED: Duration = Duration::from_millis(30);
/// How long something that must happen may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Enters a range on another thread, reports that, and stays until the sender is dropped or sends.
fn writer<'a>(
    scope: &'a thread::Scope<'a, '_>,
    writers: &'a Writers,
    range: Range<u64>,
) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    scope.spawn(move || {
        let _writing = writers.enter(range);
        entered.send(()).unwrap();
        let _ = may_leave.recv();
    });
    (has_entered, leave)
}

/// Waits until the list has `many` writers.
fn until_listed(writers: &Writers, many: usize) {
    while writers.crowd.get().is_none_or(|crowd| crowd.list.lock().entries.len() < many) {
        thread::yield_now();
    }
}

fn is_at_rest(writers: &Writers) -> bool {
    writers.word.load(Ordering::Relaxed) == NOBODY
        && writers.crowd.get().is_none_or(|crowd| crowd.list.lock().entries.is_empty())
}

#[test]
fn lone_writes_make_no_list() {
    let writers = Writers::default();
    for start in [0, 1, 4096, 1 << 40, (1 << 48) - (1 << 17)] {
        for len in [1, 4096, 1 << 16] {
            drop(writers.enter(start..start + len));
        }
    }
    assert!(writers.crowd.get().is_none() && is_at_rest(&writers));
    drop(writers.enter(0..(1 << 16) + 1)); // too long for the word
    drop(writers.enter(1 << 50..(1 << 50) + 1)); // too far out
    assert!(writers.crowd.get().is_some() && is_at_rest(&writers));
}

#[test]
fn a_range_that_overlaps_waits_and_one_that_does_not_enters() {
    let writers = Writers::default();
    thread::scope(|scope| {
        for held in [100..200, 100..100_000] {
            let end = held.end;
            let writing = writers.enter(held);
            drop(writers.enter_elsewhere(scope, 0..100));
            drop(writers.enter_elsewhere(scope, end..end + 1));
            let (entered, leave) = writer(scope, &writers, 199..300);
            assert!(entered.recv_timeout(WATCHED).is_err());
            drop(writing);
            entered.recv_timeout(PATIENCE).unwrap();
            drop(leave);
        }
    });
    assert!(is_at_rest(&writers));
}

impl Writers {
    /// Has another thread enter a range, which must not take long; it leaves when the value is dropped.
    fn enter_elsewhere<'a>(
        &'a self,
        scope: &'a thread::Scope<'a, '_>,
        range: Range<u64>,
    ) -> mpsc::Sender<()> {
        let (entered, leave) = writer(scope, self, range);
        entered.recv_timeout(PATIENCE).unwrap();
        leave
    }
}

#[test]
fn who_waits_is_not_overtaken_by_who_overlaps_it() {
    let writers = Writers::default();
    thread::scope(|scope| {
        let first = writers.enter(0..10);
        let (long_entered, long_leaves) = writer(scope, &writers, 5..20);
        until_listed(&writers, 2);
        let (short_entered, short_leaves) = writer(scope, &writers, 15..30);
        until_listed(&writers, 3);
        assert!(short_entered.recv_timeout(WATCHED).is_err());
        drop(first);
        long_entered.recv_timeout(PATIENCE).unwrap();
        assert!(short_entered.recv_timeout(WATCHED).is_err());
        drop(long_leaves);
        short_entered.recv_timeout(PATIENCE).unwrap();
        drop(short_leaves);
    });
    assert!(is_at_rest(&writers));
}

#[test]
fn no_byte_has_two_writers_at_once() {
    const BYTES: u64 = 24;
    let (writers, seed) = (Writers::default(), AtomicU32::new(1));
    let owners: Vec<AtomicU32> = (0..BYTES).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = seed.fetch_add(1, Ordering::Relaxed);
                let mut random = u64::from(own) * 0x9e37_79b9_7f4a;
                for n in 0..20_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let start = random % BYTES;
                    // Some of all are too long for the word.
                    let end = if n % 16 == 0 { 1 << 20 } else { start + 1 + (random >> 32) % 4 };
                    let writing = writers.enter(start..end);
                    let touched = &owners[start as usize..end.min(BYTES) as usize];
                    for owner in touched {
                        assert_eq!(owner.swap(own, Ordering::Relaxed), 0);
                    }
                    if n % 64 == 0 {
                        thread::yield_now();
                    }
                    for owner in touched {
                        assert_eq!(owner.swap(0, Ordering::Relaxed), own);
                    }
                    drop(writing);
                }
            });
        }
    });
    assert!(is_at_rest(&writers));
}

proptest! {
    #[test]
    fn a_word_holds_its_range_exactly(start in 0_u64..(1 << 48) - 1, len in 1_u64..1 << 17) {
        let range = start..start + len;
        let word = as_word(&range);
        prop_assert_eq!(word.is_some(), len <= 1 << 16);
        if let Some(word) = word {
            prop_assert!(word != NOBODY && word != CROWD);
            prop_assert_eq!(as_range(word), Some(range));
        }
    }
}
