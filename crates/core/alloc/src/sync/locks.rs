//! `parking_lot`'s mutex over an explorer's, which has the shape of `std`'s.
//!
//! Poison is ignored, as `parking_lot` has none: a panic in one thread ends the exploration anyway.

use super::AtomicU64;
use super::explorer;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

/// As `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(explorer::Mutex<T>);

/// As `parking_lot::MutexGuard`.
pub(crate) struct MutexGuard<'a, T>(explorer::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(explorer::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(guard)),
            Err(TryLockError::Poisoned(guard)) => Some(MutexGuard(guard.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// `n` words of zero.
pub(crate) fn zeroed_words(n: usize) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}
