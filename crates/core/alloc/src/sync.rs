//! The locks and atomics of this crate, in one place so that a schedule explorer, or virtual time, can take
//! their place.
//!
//! Nothing else in the crate names `parking_lot` or `std::sync`. The shape is `parking_lot`'s: `lock()` gives
//! the guard, `try_lock()` an `Option` of it. With feature `shuttle` every lock and atomic is a scheduling
//! point of shuttle's (sequentially consistent, random schedules, long runs); with feature `loom` it is
//! loom's (weak memory, all schedules, tiny runs); with feature `virtual` it takes virtual time on virtual
//! processors ([`virtual_cpus`]). Should several be on, `virtual` goes before `shuttle` before `loom`.
//!
//! Work other than locks and atomics that costs virtual time is charged where it is done ([`charge`]).
//! That costs nothing where time is real.
//!
//! Hazard: an explorer's lock works only inside its run, so with such a feature on only the tests written for
//! that explorer can be run.

#[cfg(all(any(feature = "loom", feature = "shuttle"), not(feature = "virtual")))]
mod locks;
#[cfg(all(feature = "loom", not(any(feature = "shuttle", feature = "virtual"))))]
mod loom;
#[cfg(not(any(feature = "loom", feature = "shuttle", feature = "virtual")))]
mod native;
#[cfg(not(feature = "virtual"))]
mod real_time;
#[cfg(all(feature = "shuttle", not(feature = "virtual")))]
mod shuttle;
#[cfg(feature = "virtual")]
pub mod virtual_cpus;

#[cfg(all(feature = "loom", not(any(feature = "shuttle", feature = "virtual"))))]
use self::loom as explorer;
#[cfg(all(feature = "shuttle", not(feature = "virtual")))]
use self::shuttle as explorer;
#[cfg(all(any(feature = "loom", feature = "shuttle"), not(feature = "virtual")))]
pub(crate) use explorer::{AtomicBool, AtomicU32, AtomicU64, thread};
#[cfg(all(any(feature = "loom", feature = "shuttle"), not(feature = "virtual")))]
pub(crate) use locks::{Mutex, MutexGuard, zeroed_words};
#[cfg(not(any(feature = "loom", feature = "shuttle", feature = "virtual")))]
pub(crate) use native::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, thread, zeroed_words};
#[cfg(not(feature = "virtual"))]
pub(crate) use real_time::{charge, count_reference, thread_number};
/// A number that is set now and then and read on every request: no order of it decides anything that is
/// explored, so it is the real thing everywhere.
pub(crate) use std::sync::atomic::AtomicU32 as Setting;
#[cfg(feature = "virtual")]
pub(crate) use virtual_cpus::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, charge, count_reference, thread, thread_number,
    zeroed_words,
};
// Counting references is not what is explored, and an explorer's `Arc` does not turn into one of a trait.
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::{Arc, Weak};

/// Work that takes virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cost {
    /// A search begun: its plan, its statistics, the reservation it makes.
    Request,
    /// A group considered.
    Group,
    /// A free run found in a group.
    Extent,
    /// A word of a group's bitmap examined.
    Word,
    /// A run taken from a group's free space or given back to it.
    Change,
    /// A run marked as used or freed for a transaction.
    Mark,
    /// A piece of a reservation split off.
    Split,
}
