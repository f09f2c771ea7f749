//! The journal: starts handles, and commits their changes.

use crate::barrier::Barrier;
use crate::commit_batching::Company;
use crate::commit_latency::JournalStats;
use crate::credits::{Leases, Owed};
use crate::handle::{Credits, Ends, Handle, Lease, Whole};
use crate::lock_order::{self, LockRank};
use crate::sync::{Arc, AtomicU32, Condvar, Mutex, OnceLock, Ordering};
use crate::transaction::{Commit, Running};
use hectare_units::TxnId;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::time::Instant;

/// Nothing can be changed any more, because something failed earlier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the journal is aborted: {reason}")]
pub struct Aborted {
    reason: Arc<str>,
}

impl Aborted {
    /// What failed first.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// What committers share.
struct State {
    /// The running transaction; `None` while a commit is under way.
    running: Option<Running>,
    /// The last transaction known to be safe.
    committed: TxnId,
    company: Company,
}

/// Transactions over one volume; see the [crate's introduction](crate). All methods may be called by any
/// number of threads at once.
pub struct Journal<C> {
    volume: C,
    barrier: Barrier,
    leases: Leases,
    /// The id of the running transaction; changes only while the barrier is held exclusively.
    running: AtomicU32,
    state: Mutex<State>,
    /// A commit has ended, well or not.
    ended: Condvar,
    /// A caller has asked for the running transaction.
    arrived: Condvar,
    aborted: OnceLock<Aborted>,
}

impl<C: Commit> Journal<C> {
    /// A journal over `volume`, whose last transaction so far was `last`.
    pub fn new(volume: C, last: TxnId) -> Self {
        let first = last.next();
        Self {
            volume,
            barrier: Barrier::new(),
            leases: Leases::new(),
            running: AtomicU32::new(first.get()),
            state: Mutex::new(State {
                running: Some(Running::new(first)),
                committed: last,
                company: Company::default(),
            }),
            ended: Condvar::new(),
            arrived: Condvar::new(),
            aborted: OnceLock::new(),
        }
    }

    /// The volume.
    pub const fn volume(&self) -> &C {
        &self.volume
    }

    /// Opens a handle for an operation that dirties no more blocks than `credits` says. Waits while a commit
    /// is at its exclusive step, and commits first if the transaction has no room for that many.
    ///
    /// # Errors
    /// [`Aborted`] after the first failure.
    ///
    /// # Panics
    /// In debug builds, if this thread has an open handle or holds a lock that comes after one: either would
    /// wait for a commit that waits for this thread.
    #[track_caller]
    pub fn start(&self, credits: Credits) -> Result<Handle<'_>, Aborted> {
        let place = Location::caller();
        loop {
            let ranked = lock_order::enter(LockRank::Handle);
            let share = self.barrier.share();
            self.check()?;
            // Read under the share: the next freeze, which the share holds up, is this transaction's.
            let txn = self.running();
            if let Some(lease) = self.lease(credits) {
                share.count();
                return Ok(Handle::new(Whole::new(self, txn, place), lease, share, ranked, credits));
            }
            drop(share);
            drop(ranked);
            self.commit_through(txn)?;
        }
    }

    /// Room for that many blocks in the running transaction. A request for more than half its capacity (the
    /// log is small) gets no more: credits are upper bounds, and the log holds three transactions.
    fn lease(&self, credits: Credits) -> Option<Lease<'_>> {
        let capacity = self.volume.capacity();
        let lease = |blocks| Lease { leases: &self.leases, blocks };
        if capacity == u32::MAX {
            return Some(lease(0));
        }
        let blocks = credits.get().min(capacity / 2);
        self.leases.take(blocks, || self.volume.gathered(), capacity).then(|| lease(blocks))
    }

    /// Makes sure that the running transaction still fits the log after a change without a handle, by a commit
    /// if need be. Called after the change is counted, with no handle open.
    ///
    /// # Errors
    /// [`Aborted`] if this or an earlier commit failed.
    ///
    /// # Panics
    /// As [`commit_through`](Self::commit_through).
    #[track_caller]
    pub fn settle(&self, _owed: Owed) -> Result<(), Aborted> {
        let (capacity, txn) = (self.volume.capacity(), self.running());
        if capacity == u32::MAX || self.leases.take(0, || self.volume.gathered(), capacity) {
            return Ok(());
        }
        self.commit_through(txn)
    }

    /// How many handles and commits there were, and how long commits kept handles out.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        self.barrier.stats()
    }

    /// The transaction that a handle started now would join.
    #[must_use]
    pub fn running(&self) -> TxnId {
        TxnId::new(self.running.load(Ordering::Acquire))
    }

    /// The last transaction that is safe on disk.
    #[must_use]
    pub fn committed(&self) -> TxnId {
        self.state.lock().committed
    }

    /// Whether the journal is not aborted.
    ///
    /// # Errors
    /// [`Aborted`] after the first failure.
    pub fn check(&self) -> Result<(), Aborted> {
        self.aborted.get().map_or(Ok(()), |aborted| Err(aborted.clone()))
    }

    /// Makes this the end of all transactions, for the given reason if it is the first one. What has not been
    /// committed never will be. Returns what [`check`](Self::check) says from now on.
    pub fn abort(&self, reason: impl fmt::Display) -> Aborted {
        let mut first = false;
        let aborted = self.aborted.get_or_init(|| {
            first = true;
            Aborted { reason: reason.to_string().into() }
        });
        if first {
            self.volume.aborted(aborted.reason());
        }
        aborted.clone()
    }

    /// Commits the running transaction and returns its id. Everything done under handles that were closed
    /// before the call is safe afterwards.
    ///
    /// # Errors
    /// [`Aborted`] if this or an earlier commit failed.
    ///
    /// # Panics
    /// As [`commit_through`](Self::commit_through).
    #[track_caller]
    pub fn commit(&self) -> Result<TxnId, Aborted> {
        let txn = self.running();
        self.commit_through(txn)?;
        Ok(txn)
    }

    /// Waits until `txn` and all before it are safe, committing what must be. Callers that wait for the same
    /// transaction share one commit. A transaction that has not begun counts as the running one.
    ///
    /// # Errors
    /// [`Aborted`] if this or an earlier commit failed; a transaction that was safe before stays so, and
    /// asking for it is no error.
    ///
    /// # Panics
    /// In debug builds, if this thread has an open handle or holds a lock that comes after one.
    #[track_caller]
    pub fn commit_through(&self, txn: TxnId) -> Result<(), Aborted> {
        self.reach(txn)
    }

    fn reach(&self, txn: TxnId) -> Result<(), Aborted> {
        lock_order::check(LockRank::Handle);
        let running = self.running();
        let txn = if txn.is_after(running) { running } else { txn };
        let mut state = self.state.lock();
        if txn == self.running() && txn.is_after(state.committed) {
            state.company.arrive(hectare_units::thread_number());
            self.arrived.notify_one();
        }
        let mut waited = false;
        while txn.is_after(state.committed) {
            self.check()?;
            if state.running.is_some()
                && !waited
                && let Some(wait) = state.company.wait()
            {
                waited = true;
                self.arrived.wait_for(&mut state, wait);
                continue;
            }
            match state.running.take() {
                None => self.ended.wait(&mut state),
                Some(running) => {
                    state.company.depart();
                    drop(state);
                    let began = Instant::now();
                    self.run(running)?;
                    state = self.state.lock();
                    state.company.ended(began.elapsed());
                }
            }
        }
        Ok(())
    }

    /// One commit, by the thread that took the running transaction; wakes the others when it has ended.
    fn run(&self, running: Running) -> Result<(), Aborted> {
        let mut ending = Ending { journal: self, txn: running.id(), returned: false };
        let result = self.run_steps(running);
        ending.returned = true;
        result
    }

    fn run_steps(&self, running: Running) -> Result<(), Aborted> {
        running.prepare(&self.volume);
        let locked = running.lock(&self.barrier);
        // Nothing may be written after an abort, not even what was dirtied before it.
        self.check()?;
        let (flushing, next) = locked.freeze(&self.volume, &self.running, |error| self.abort(error))?;
        let committed = flushing.write(&self.volume).map_err(|error| self.abort(error))?;
        let txn = committed.release(&self.volume);
        let mut state = self.state.lock();
        state.committed = txn;
        state.running = Some(next);
        Ok(())
    }
}

impl<C: Commit> Ends for Journal<C> {
    fn unwound(&self, txn: TxnId, place: &'static Location<'static>) {
        let reason = format_args!("a panic left a change of transaction {txn} half done, begun at {place}");
        // The thread unwinds already. That all has ended is known before the volume learns why.
        let _ = catch_unwind(AssertUnwindSafe(|| self.abort(reason)));
    }
}

/// Ends a commit for its waiters, however it ends: one that panicked must not leave them waiting.
///
/// Only `returned` shows that it panicked. The shared state can't: when this runs after a good
/// commit, another thread may already be at the next one.
struct Ending<'a, C: Commit> {
    journal: &'a Journal<C>,
    txn: TxnId,
    returned: bool,
}

impl<C: Commit> Drop for Ending<'_, C> {
    fn drop(&mut self) {
        if !self.returned {
            self.journal.abort(format_args!("the commit of transaction {} did not end", self.txn));
        }
        // Under the lock, so that no thread is between reading the state and going to sleep.
        let _state = self.journal.state.lock();
        self.journal.ended.notify_all();
    }
}
