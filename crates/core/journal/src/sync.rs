//! The locks and atomics of this crate, in one place so that a schedule explorer can take their place in
//! tests.
//!
//! Nothing else in the crate names `parking_lot` or `std::sync`.

pub(crate) use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, OnceLock};
