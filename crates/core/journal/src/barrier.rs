//! The barrier: a lock that any number of handles share and a commit takes alone.
//!
//! Handles start and end millions of times between two commits, from every thread; a single reader count
//! would be the one cache line they all write. So the lock is split into shards. A handle takes the one of
//! its thread, a commit takes all of them, in order.
//!
//! A commit takes the shards one after another, and the host may preempt a thread that holds a share, and
//! run others: with more threads than processors, all those on shards not taken yet, each for its time
//! slice. So there is a *gate* before the shards, closed before the first is taken: no new handle gets in
//! anywhere, and the processors are left to the threads with shares to return. The gate only saves time,
//! which it also measures; the shards ensure that no handle is open.
//!
//! Hazards: a thread must not take a second share (a commit that waits between the two would wait for the
//! first and block the second). The locks are fair: once a commit waits, new handles queue behind it, so a
//! stream of handles can't keep a commit out.

use crate::commit_latency::{JournalStats, Pauses};
use crate::sync::{AtomicBool, AtomicU64, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};
use hectare_units::thread_number;
use std::time::Instant;

/// Enough that threads hardly ever meet, few enough that a commit takes them all in a microsecond.
const SHARDS: usize = 64;

/// A shard on a cache line (pair) of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard {
    lock: RwLock<()>,
    /// Handles that took a share here.
    handles: AtomicU64,
}

/// The sharded lock.
pub(crate) struct Barrier {
    shards: Box<[Shard]>,
    gate: Gate,
}

/// What keeps newcomers from the shards while a commit takes them.
struct Gate {
    /// Written twice for each commit, so that looking at it costs nothing.
    closed: AtomicBool,
    /// Taken exclusively while it is closed.
    lock: RwLock<()>,
    /// How long it was closed.
    pauses: Pauses,
}

/// The gate, closed until this is dropped.
struct Closed<'a> {
    gate: &'a Gate,
    since: Instant,
    _lock: RwLockWriteGuard<'a, ()>,
}

impl Gate {
    fn close(&self) -> Closed<'_> {
        let lock = self.lock.write();
        self.closed.store(true, Ordering::Release);
        Closed { gate: self, since: Instant::now(), _lock: lock }
    }

    fn wait(&self) {
        if self.closed.load(Ordering::Acquire) {
            drop(self.lock.read());
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // Before the waiters are woken, each of which may be given this processor at once.
        self.gate.pauses.add(self.since.elapsed());
        self.gate.closed.store(false, Ordering::Release);
    }
}

/// A handle's share.
pub(crate) struct Shared<'a> {
    _guard: RwLockReadGuard<'a, ()>,
    handles: &'a AtomicU64,
}

impl Shared<'_> {
    /// Counts a handle.
    pub(crate) fn count(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a share of the barrier")
    }
}

/// The whole lock; there is no share.
pub(crate) struct Exclusive<'a> {
    // In this order: a thread that waits at the gate finds the shards free.
    _shards: Vec<RwLockWriteGuard<'a, ()>>,
    _gate: Closed<'a>,
}

impl Barrier {
    /// A barrier without shares.
    pub(crate) fn new() -> Self {
        Self {
            shards: std::iter::repeat_with(Shard::default).take(SHARDS).collect(),
            gate: Gate { closed: AtomicBool::default(), lock: RwLock::default(), pauses: Pauses::new() },
        }
    }

    /// Waits until no commit is at its exclusive step, and keeps the next one from it.
    pub(crate) fn share(&self) -> Shared<'_> {
        self.gate.wait();
        let shard = &self.shards[thread_number() % self.shards.len()];
        Shared { _guard: shard.lock.read(), handles: &shard.handles }
    }

    /// Handles counted, and how long they were kept out.
    pub(crate) fn stats(&self) -> JournalStats {
        self.gate.pauses.stats(self.shards.iter().map(|shard| shard.handles.load(Ordering::Relaxed)).sum())
    }

    /// Waits until all shares are returned, and keeps new ones out.
    pub(crate) fn exclude(&self) -> Exclusive<'_> {
        let gate = self.gate.close();
        Exclusive { _shards: self.shards.iter().map(|shard| shard.lock.write()).collect(), _gate: gate }
    }
}
