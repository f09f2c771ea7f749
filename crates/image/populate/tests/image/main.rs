//! Whole images, judged by e2fsck and the kernel.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
mod failures;
mod kernel;
mod limits;
mod reproducible;
mod values;
