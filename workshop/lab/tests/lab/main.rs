//! Workloads on the engine, in directories and on the kernel; their results; and the reports of them.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod markup;
mod reports;
mod reproduce;
mod workloads;
