//! The locks and atomics of this crate, in one place so that a schedule explorer can take their place in
//! tests.
//!
//! Nothing else in the crate names `parking_lot` or `std::sync`. The shape is `parking_lot`'s: `lock()` gives
//! the guard, `try_lock()` an `Option` of it. With feature `shuttle` every lock and atomic is a scheduling
//! point of shuttle's (sequentially consistent, random schedules, long runs); with feature `loom` it is
//! loom's (weak memory, all schedules, tiny runs). Should both be on, shuttle's are used.
//!
//! Hazard: an explorer's lock works only inside its run, so with such a feature on only the tests written for
//! that explorer can be run.

#[cfg(any(feature = "loom", feature = "shuttle"))]
mod locks;
#[cfg(all(feature = "loom", not(feature = "shuttle")))]
mod loom;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod native;
#[cfg(feature = "shuttle")]
mod shuttle;

#[cfg(all(feature = "loom", not(feature = "shuttle")))]
use self::loom as explorer;
#[cfg(feature = "shuttle")]
use self::shuttle as explorer;
#[cfg(any(feature = "loom", feature = "shuttle"))]
pub(crate) use explorer::{AtomicBool, AtomicU32, AtomicU64, thread};
#[cfg(any(feature = "loom", feature = "shuttle"))]
pub(crate) use locks::{Mutex, MutexGuard, zeroed_words};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub(crate) use native::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, thread, zeroed_words};
/// A number that is set now and then and read on every request: no order of it decides anything that is
/// explored, so it is the real thing everywhere.
pub(crate) use std::sync::atomic::AtomicU32 as Setting;
// Counting references is not what is explored, and an explorer's `Arc` does not turn into one of a trait.
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::{Arc, Weak};
