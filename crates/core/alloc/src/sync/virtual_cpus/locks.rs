//! Locks in virtual time.
//!
//! A lock is the real one, with its holder in virtual time beside it. Waiters get it in the order of their
//! arrival, each from the moment its holder releases it, plus the time to move its cache line and those of
//! the data behind it. The real lock is free whenever the virtual one is, so nothing ever waits for that.

use super::run;
use std::ops::{Deref, DerefMut};

/// As `parking_lot::Mutex`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

/// As `parking_lot::MutexGuard`.
pub(crate) struct MutexGuard<'a, T> {
    /// Gone only while it is dropped.
    real: Option<parking_lot::MutexGuard<'a, T>>,
    address: usize,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn held(&self) -> MutexGuard<'_, T> {
        MutexGuard { real: Some(self.0.lock()), address: self.address() }
    }

    pub(crate) fn is_locked(&self) -> bool {
        run::is_held(self.address())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        run::take(self.address());
        self.held()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if !run::try_take(self.address()) {
            return None;
        }
        // Outside a run threads of the host may meet here.
        let real = self.0.try_lock()?;
        Some(MutexGuard { real: Some(real), address: self.address() })
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // First, for others may run before this returns.
        self.real = None;
        run::release(self.address);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.real.as_ref().expect("a guard that is not being dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.real.as_mut().expect("a guard that is not being dropped")
    }
}
