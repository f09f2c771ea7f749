//! Virtual processors: the locks and atomics of this crate in virtual time.
//!
//! [`run`] runs a job on each of up to 256 virtual CPUs, on one thread of the host and with the same result
//! each time. A CPU has a clock of its own. Whenever a job comes to a lock or an atomic it lets those CPUs
//! go first whose clocks show less, so all accesses to shared state are made in the order of virtual time.
//! The cost of an access depends on which CPU had its cache line last (`lines`); a lock that is held costs
//! its waiter the time until it is released and handed over (`locks`); the work of a search itself is charged
//! where it is done (`Cost`). Between two accesses a job runs without looking at the others.
//!
//! Invariants: of all CPUs that can run, the one with the least clock does, at equal clocks the one with the
//! lower number; a clock never goes back; what is not shared costs nothing but what is charged.
//!
//! Cache lines are those of the real layout: the types here are their real counterparts and nothing more,
//! and the state of a line is kept beside them, by its address. So what shares a line in the real allocator
//! does so here. That is the same in each run only for what is aligned to lines, which everything shared in
//! this crate is.
//!
//! Outside a run (setting up a volume, looking at its counters) locks and atomics work as the real ones do,
//! and cost nothing.
//!
//! Hazards: a job must not wait for anything but the locks of this module; it is never taken off its CPU, and
//! a run whose jobs wait for each other in a circle panics. The weak orders of memory are not modelled: every
//! access is made in one order. Jobs have stacks of 256 KiB.
//!
//! What it is not: a model of a certain machine. It has no memory bandwidth, no interrupts and no caches that
//! are too small.

mod atomics;
mod costs;
mod lines;
mod locks;
mod run;

pub use costs::{Costs, Time};
pub use run::{now, run};

pub(crate) use atomics::{AtomicBool, AtomicU32, AtomicU64, zeroed_words};
pub(crate) use locks::{Mutex, MutexGuard};
pub(crate) use run::{charge, count_reference, thread, thread_number};

#[cfg(test)]
mod tests;
