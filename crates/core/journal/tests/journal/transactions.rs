//! Handles, the barrier and the commit, with real threads.

use hectare_journal::{Commit, Credits, Journal};
use hectare_units::TxnId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// A volume that records what the journal does to it.
#[derive(Default)]
struct Recorder {
    /// Handles open just now, as their owners count them.
    open: AtomicUsize,
    /// Changes since the last freeze, by the transaction their handle was in.
    dirty: Mutex<BTreeMap<u32, u64>>,
    /// Changes in frozen state that was written.
    written: AtomicU64,
    freezes: AtomicU32,
    last_committed: AtomicU32,
    /// Writes wait while this is true.
    held: Mutex<bool>,
    moved: Condvar,
    writing: AtomicBool,
    hold_freezes: AtomicBool,
    fail_freeze: AtomicBool,
    fail_write: AtomicBool,
    panic_write: AtomicBool,
}

impl Recorder {
    fn hold_writes(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.moved.notify_all();
    }

    fn wait_until_writing(&self) {
        while !self.writing.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

impl Commit for Recorder {
    type Frozen = u64;
    type Error = String;

    fn freeze(&self, txn: TxnId) -> Result<u64, String> {
        self.freezes.fetch_add(1, Ordering::SeqCst);
        while self.hold_freezes.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        if self.fail_freeze.load(Ordering::SeqCst) {
            return Err(format!("transaction {txn} can't be rendered"));
        }
        assert_eq!(self.open.load(Ordering::SeqCst), 0, "a handle is open during the freeze of {txn}");
        thread::yield_now();
        let dirty = std::mem::take(&mut *self.dirty.lock().unwrap());
        assert!(dirty.keys().all(|id| *id == txn.get()), "freezing {txn}, dirty are {dirty:?}");
        assert_eq!(self.open.load(Ordering::SeqCst), 0, "a handle opened during the freeze of {txn}");
        Ok(dirty.values().sum())
    }

    fn write(&self, frozen: u64, txn: TxnId) -> Result<(), String> {
        self.writing.store(true, Ordering::SeqCst);
        let held = self.held.lock().unwrap();
        drop(self.moved.wait_while(held, |held| *held).unwrap());
        self.writing.store(false, Ordering::SeqCst);
        assert!(!self.panic_write.load(Ordering::SeqCst), "asked to panic");
        if self.fail_write.load(Ordering::SeqCst) {
            return Err(format!("transaction {txn} can't be written"));
        }
        self.written.fetch_add(frozen, Ordering::SeqCst);
        Ok(())
    }

    fn committed(&self, txn: TxnId) {
        self.last_committed.store(txn.get(), Ordering::SeqCst);
    }
}

fn journal(last: u32) -> Journal<Recorder> {
    Journal::new(Recorder::default(), TxnId::new(last))
}

/// One change under one handle; returns its transaction.
fn change(journal: &Journal<Recorder>) -> TxnId {
    let mut handle = journal.start(Credits::new(1)).unwrap();
    let volume = journal.volume();
    volume.open.fetch_add(1, Ordering::SeqCst);
    handle.dirtied("a block");
    *volume.dirty.lock().unwrap().entry(handle.txn().get()).or_default() += 1;
    volume.open.fetch_sub(1, Ordering::SeqCst);
    let txn = handle.txn();
    handle.stop();
    txn
}

#[test]
fn no_commit_freezes_while_a_handle_is_open_and_none_is_in_the_wrong_transaction() {
    // The ids wrap on the way.
    const COMMITS_WANTED: u32 = 20;
    let journal = journal(u32::MAX - COMMITS_WANTED);
    let (workers, rounds) = (6, 4000);
    let commits = AtomicU32::new(0);
    let work = |worker| {
        for round in 0.. {
            if round >= rounds && commits.load(Ordering::Relaxed) > COMMITS_WANTED {
                return round;
            }
            let txn = change(&journal);
            if round % 500 == worker {
                journal.commit_through(txn).unwrap();
                assert!(!txn.is_after(journal.committed()), "{txn} is committed");
            }
        }
        unreachable!("it runs until there were enough commits")
    };
    let work = &work;
    let changes: u64 = thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        let commit = || {
            while handles.iter().any(|worker| !worker.is_finished()) {
                let txn = journal.commit().unwrap();
                assert!(!txn.is_after(journal.committed()));
                commits.fetch_add(1, Ordering::Relaxed);
            }
        };
        thread::scope(|inner| {
            inner.spawn(commit);
            commit();
        });
        handles.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let last = journal.commit().unwrap();
    let volume = journal.volume();
    assert_eq!(volume.written.load(Ordering::SeqCst), changes);
    assert_eq!(volume.last_committed.load(Ordering::SeqCst), last.get());
    assert_eq!(journal.running(), last.next());
    let freezes = volume.freezes.load(Ordering::SeqCst);
    assert_eq!(last.get().wrapping_sub(u32::MAX - COMMITS_WANTED), freezes, "ids count the commits");
}

#[test]
fn callers_waiting_for_one_transaction_share_its_commit() {
    let journal = journal(0);
    let volume = journal.volume();
    volume.hold_writes(true);
    let waiters = 12;
    let (asking, asked) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| journal.commit().unwrap());
        volume.wait_until_writing();
        // New work continues beside the write, in the next transaction.
        let txn = change(&journal);
        assert_eq!(txn, TxnId::new(2));
        for _ in 0..waiters {
            let (journal, asking) = (&journal, asking.clone());
            scope.spawn(move || {
                asking.send(()).unwrap();
                journal.commit_through(txn).unwrap();
                assert_eq!(journal.volume().written.load(Ordering::SeqCst), 1, "durable when reported so");
                assert_eq!(journal.volume().last_committed.load(Ordering::SeqCst), 2);
            });
        }
        for _ in 0..waiters {
            asked.recv().unwrap();
        }
        thread::sleep(Duration::from_millis(20)); // let them queue up; correct without, but weaker
        assert_eq!(volume.freezes.load(Ordering::SeqCst), 1, "one commit at a time");
        volume.hold_writes(false);
    });
    assert_eq!(volume.freezes.load(Ordering::SeqCst), 2, "{waiters} callers, one commit");
}

/// A commit that has ended well was taken for one that had died if another thread began the next one in
/// between.
#[test]
fn regression_a_quick_successor_is_no_failure() {
    let journal = journal(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    journal.commit().unwrap();
                }
            });
        }
    });
    journal.check().unwrap();
}

#[test]
fn what_is_safe_needs_no_commit() {
    let journal = journal(10);
    journal.commit_through(TxnId::new(10)).unwrap();
    journal.commit_through(TxnId::new(7)).unwrap();
    assert_eq!(journal.volume().freezes.load(Ordering::SeqCst), 0);
    journal.commit_through(TxnId::new(12)).unwrap();
    assert_eq!(journal.committed(), TxnId::new(11), "a future transaction counts as the running one");
}

#[test]
fn the_first_failure_is_final_and_everyone_is_told_it() {
    for in_freeze in [true, false] {
        let journal = journal(0);
        let first = journal.commit().unwrap();
        let volume = journal.volume();
        volume.fail_freeze.store(in_freeze, Ordering::SeqCst);
        volume.fail_write.store(true, Ordering::SeqCst);
        change(&journal);
        let what = if in_freeze { "rendered" } else { "written" };
        let expected = format!("the journal is aborted: transaction 2 can't be {what}");
        assert_eq!(journal.commit().unwrap_err().to_string(), expected);
        volume.fail_freeze.store(false, Ordering::SeqCst);
        volume.fail_write.store(false, Ordering::SeqCst);
        assert_eq!(journal.start(Credits::ZERO).unwrap_err().to_string(), expected);
        assert_eq!(journal.commit().unwrap_err().to_string(), expected);
        assert_eq!(journal.abort("a later reason").reason(), &expected["the journal is aborted: ".len()..]);
        journal.commit_through(first).unwrap(); // it was safe before
        assert_eq!(volume.last_committed.load(Ordering::SeqCst), 1);
        assert_eq!(volume.written.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn nothing_dirtied_before_an_abort_is_written() {
    let journal = journal(0);
    change(&journal);
    journal.abort("inode 12 is corrupt");
    assert_eq!(journal.commit().unwrap_err().reason(), "inode 12 is corrupt");
    assert_eq!(journal.volume().freezes.load(Ordering::SeqCst), 0);
}

/// The thread panics with a handle open, after it changed something and before all was changed.
#[test]
fn regression_half_a_change_that_a_panic_left_is_not_committed() {
    let journal = journal(7);
    let txn = change(&journal);
    journal.commit_through(txn).unwrap();
    change(&journal);
    thread::scope(|scope| {
        let half = scope.spawn(|| {
            let mut handle = journal.start(Credits::new(2)).unwrap();
            handle.dirtied("the first of two blocks");
            *journal.volume().dirty.lock().unwrap().entry(handle.txn().get()).or_default() += 1;
            panic!("on purpose");
        });
        half.join().unwrap_err();
    });
    let aborted = journal.start(Credits::new(1)).unwrap_err();
    let reason = aborted.reason();
    assert!(reason.contains("transaction 9") && reason.contains("transactions.rs:"), "{reason}");
    assert_eq!(journal.commit().unwrap_err(), aborted);
    assert_eq!(journal.volume().written.load(Ordering::SeqCst), 1, "what was safe before");
}

/// Cleaning up, a thread that unwinds may do whole operations: they end well.
#[test]
fn a_whole_change_made_while_unwinding_is_committed() {
    struct Cleans<'a>(&'a Journal<Recorder>);
    impl Drop for Cleans<'_> {
        fn drop(&mut self) {
            change(self.0);
        }
    }
    let journal = journal(0);
    thread::scope(|scope| {
        let cleans = scope.spawn(|| {
            let _cleans = Cleans(&journal);
            panic!("on purpose");
        });
        cleans.join().unwrap_err();
    });
    journal.commit().unwrap();
    assert_eq!(journal.volume().written.load(Ordering::SeqCst), 1);
}

#[test]
fn waiters_are_told_when_the_commit_they_wait_for_fails_or_panics() {
    for panics in [true, false] {
        let journal = journal(0);
        let volume = journal.volume();
        volume.hold_writes(true);
        volume.panic_write.store(panics, Ordering::SeqCst);
        volume.fail_write.store(true, Ordering::SeqCst);
        let ready = Barrier::new(5);
        thread::scope(|scope| {
            let committer = scope.spawn(|| journal.commit());
            volume.wait_until_writing();
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        ready.wait();
                        journal.commit_through(TxnId::new(1)).unwrap_err().to_string()
                    })
                })
                .collect();
            ready.wait();
            volume.hold_writes(false);
            let told: Vec<String> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            assert_eq!(committer.join().is_err(), panics);
            let reason = if panics {
                "the commit of transaction 1 did not end"
            } else {
                "transaction 1 can't be written"
            };
            assert!(told.iter().all(|text| text.ends_with(reason)), "{told:?}");
        });
    }
}

#[test]
fn a_handle_that_waited_for_a_failing_commit_is_not_opened() {
    let journal = journal(0);
    let volume = journal.volume();
    volume.fail_freeze.store(true, Ordering::SeqCst);
    volume.hold_freezes.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let committer = scope.spawn(|| journal.commit());
        while volume.freezes.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        let start = || scope.spawn(|| journal.start(Credits::ZERO).map(drop));
        let starters: Vec<_> = std::iter::repeat_with(start).take(4).collect();
        thread::sleep(Duration::from_millis(20)); // let them wait for the commit; correct without, but weaker
        volume.hold_freezes.store(false, Ordering::SeqCst);
        assert!(committer.join().unwrap().is_err());
        for starter in starters {
            assert!(starter.join().unwrap().is_err(), "a handle was opened after the failure");
        }
    });
}

#[cfg(debug_assertions)]
mod checked_in_debug_builds {
    use super::*;

    #[test]
    #[should_panic(expected = "about to wait for a handle while it holds a handle")]
    fn a_second_handle_on_one_thread() {
        let journal = journal(0);
        let _first = journal.start(Credits::ZERO).unwrap();
        let _second = journal.start(Credits::ZERO);
    }

    #[test]
    #[should_panic(expected = "about to wait for a handle while it holds a handle")]
    fn waiting_for_a_commit_with_an_open_handle() {
        let journal = journal(0);
        let _handle = journal.start(Credits::ZERO).unwrap();
        let _ = journal.commit();
    }

    #[test]
    #[should_panic(expected = "inode 12 is block 3 that a handle with credits for 2 dirties")]
    fn more_blocks_than_credits() {
        let journal = journal(0);
        let mut handle = journal.start(Credits::new(1).and(Credits::new(1))).unwrap();
        handle.dirtied("a bitmap");
        handle.dirtied("a descriptor");
        assert_eq!(handle.credits_left(), Credits::ZERO);
        handle.dirtied("inode 12");
    }

    #[test]
    fn a_closed_handle_makes_room_for_the_next() {
        let journal = journal(0);
        for _ in 0..3 {
            journal.start(Credits::ZERO).unwrap().stop();
            drop(journal.start(Credits::ZERO).unwrap());
        }
        journal.commit().unwrap();
    }
}
