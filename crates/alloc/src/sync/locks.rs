//! `parking_lot`'s locks over an explorer's, which have the shape of `std`'s.
//!
//! Poison is passed over, as `parking_lot` has none: a panic in one thread ends the exploration anyway.
#![allow(dead_code)] // the set of `parking_lot`, whatever the crate uses of it today

use super::AtomicU64;
use super::explorer;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError, TryLockResult};

/// What a `try_` call got, if anything.
fn got<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// As `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(explorer::Mutex<T>);

/// As `parking_lot::MutexGuard`. It is empty only while [`Condvar::wait`] holds it.
pub(crate) struct MutexGuard<'a, T>(Option<explorer::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(explorer::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        got(self.0.try_lock()).map(|guard| MutexGuard(Some(guard)))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard is empty only inside Condvar::wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard is empty only inside Condvar::wait")
    }
}

/// As `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub(crate) struct Condvar(explorer::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(explorer::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("a guard is empty only inside Condvar::wait");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub(crate) use explorer::{RwLockReadGuard, RwLockWriteGuard};

/// As `parking_lot::RwLock`.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(explorer::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(explorer::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        got(self.0.try_read())
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        got(self.0.try_write())
    }
}

/// As `std::sync::OnceLock`: its waiters wait on the explorer's mutex, so it sees them.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    cell: std::sync::OnceLock<T>,
    turn: explorer::Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { cell: std::sync::OnceLock::new(), turn: explorer::Mutex::new(()) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.cell.get()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.cell.set(value)
    }

    pub(crate) fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.cell.get_or_init(f)
    }
}

/// `n` words of zero.
pub(crate) fn zeroed_words(n: usize) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}
