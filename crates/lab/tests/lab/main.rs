//! Workloads on the engine, on folders and on the kernel; what they leave; and the reports of them.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod markup;
mod reports;
mod reproduce;
mod workloads;
