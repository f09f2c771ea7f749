//! What shuttle offers in place of the real thing.

pub(crate) use ::shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
pub(super) use ::shuttle::sync::{Mutex, MutexGuard};
pub(crate) use ::shuttle::thread;
