//! The allocator on volumes in memory: where requests go, what is counted and traced, and threads.
//!
//! The schedules of an explorer are tests of their own (`tests/shuttle.rs`): its locks work only inside its runs.

#![allow(clippy::unwrap_used)] // the helpers of these tests are tests too
#![cfg(not(any(feature = "shuttle", feature = "loom")))]

mod broken;
mod busy;
mod classes;
mod common;
mod lockstep;
mod pages;
mod passes;
mod prealloc;
mod stress;
mod trace;
mod tunables;
