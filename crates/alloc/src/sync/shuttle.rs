//! What shuttle offers in place of the real thing.

pub(crate) use ::shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(super) use ::shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock};
pub(crate) use ::shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};
pub(crate) use ::shuttle::thread;
