//! The lab: workloads, what they run against, and what they report.
//!
//! A workload ([`Workload`]) runs unchanged on any [`target`]: a volume opened by our engine, any folder of
//! the host, such as a mount of the same image by the kernel, or, where only the limit is asked for, one bare
//! file. [`bench()`] opens the target anew for each run, measures, and looks at what was left behind
//! ([`inspect`]): extents per file and fragmentation. The figures of one run are a [`Run`]; a [`report`] sets
//! several side by side.
//!
//! Every speed is a ratio: ours and the peer's run in turn within one call, several rounds of it, and what is
//! told is the median with its spread ([`paired`]). Building an image from a folder ([`build`]) is measured
//! so as a whole. Volumes are brought to a state worth comparing on by [`age`], and what a run left of their
//! free space is measured by [`fragmentation`]. Whether a volume survives a power cut at any moment is what
//! [`crash`] looks for.

pub mod age;
pub mod bench;
pub mod build;
pub mod crash;
pub mod error;
pub mod fragmentation;
pub mod image_copy;
pub mod inspect;
pub mod latency;
pub mod paired_stats;
pub mod random;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod stats;
pub mod target;
pub mod timing;
pub mod virtual_cpus;
pub mod workload;

pub use bench::{After, Bench, On, Settings, bench, bench_afresh};
pub use error::{Error, Result};
pub use hectare_alloc::{Mechanism, Policy, Tunables};
pub use image_copy::{FreshCopy, fresh_copy};
pub use report::Report;
pub use run::Run;
pub use target::Access;
pub use target::engine::Through;
pub use workload::{How, Streams, Workload};
