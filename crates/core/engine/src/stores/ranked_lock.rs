//! Locks with a place in the lock order, which debug builds check when they are taken.

use hectare_journal::lock_order::{self, LockRank, Ranked};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};

/// A lock of a given rank.
pub(crate) struct RankedLock<T> {
    rank: LockRank,
    lock: RwLock<T>,
}

/// A lock that is held.
pub(crate) struct Held<G> {
    // In this order: the lock is released before its place is left.
    guard: G,
    _ranked: Ranked,
}

impl<T> RankedLock<T> {
    pub(crate) const fn new(rank: LockRank, value: T) -> Self {
        Self { rank, lock: RwLock::new(value) }
    }

    #[track_caller]
    pub(crate) fn read(&self) -> Held<RwLockReadGuard<'_, T>> {
        let ranked = lock_order::enter(self.rank);
        Held { guard: self.lock.read(), _ranked: ranked }
    }

    #[track_caller]
    pub(crate) fn write(&self) -> Held<RwLockWriteGuard<'_, T>> {
        let ranked = lock_order::enter(self.rank);
        Held { guard: self.lock.write(), _ranked: ranked }
    }

    /// The lock, exclusively, if it is free.
    #[track_caller]
    pub(crate) fn try_write(&self) -> Option<Held<RwLockWriteGuard<'_, T>>> {
        let ranked = lock_order::enter(self.rank);
        Some(Held { guard: self.lock.try_write()?, _ranked: ranked })
    }
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}
