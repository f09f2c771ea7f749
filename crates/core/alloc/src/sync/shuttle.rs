//! Shuttle's replacements for the real locks and atomics.

pub(crate) use ::shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
pub(super) use ::shuttle::sync::{Mutex, MutexGuard};
pub(crate) use ::shuttle::thread;
