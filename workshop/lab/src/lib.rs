//! The lab: workloads, their targets, and their reports.
//!
//! A workload ([`Workload`]) runs unchanged on any [`target`]: a volume opened by our engine, any directory
//! of the host, such as a mount of the same image by the kernel, or, to measure only the limit, one bare
//! file. [`bench()`] opens the target anew for each run, measures, and inspects what was left behind
//! ([`inspect`]): extents per file and fragmentation. The measurements of one run are a [`Run`]; a [`report`]
//! compares several.
//!
//! Every speed is a ratio: ours and the peer's run in turn within one call, several rounds of it, and the
//! median with its spread is reported ([`paired_stats`]). Building an image from a directory ([`build`]) is
//! measured so as a whole. [`age`] brings volumes to a state worth comparing on, and [`fragmentation`]
//! measures what a run left of their free space.

pub mod age;
pub mod bench;
pub mod build;
mod exponential;
pub mod fragmentation;
pub mod image_copy;
pub mod inspect;
pub mod latency;
pub mod paired_stats;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod stats;
pub mod target;
pub mod timing;
pub mod virtual_cpus;
pub mod workload;

pub use bench::{After, Bench, On, Settings, bench, bench_afresh};
pub use hectare_alloc::{Mechanism, Policy, Tunables};
pub use hectare_tools::error::{Error, Result};
pub use image_copy::{FreshCopy, fresh_copy};
pub use report::Report;
pub use run::Run;
pub use target::Access;
pub use target::engine::Through;
pub use workload::{How, Streams, Workload};
