//! The lab: workloads, what they run against, and what they report.
//!
//! Every speed is a ratio: ours and the peer's run in turn within one call, several rounds of it, and what is
//! told is the median with its spread ([`paired`]). One workload so far: building an image from a folder
//! ([`build`]). Volumes are brought to a state worth comparing on by [`age`], and what a run left of their free
//! space is measured by [`fragmentation`].

pub mod age;
pub mod build;
pub mod fragmentation;
pub mod paired;
