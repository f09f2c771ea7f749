//! Whole images, judged by e2fsck and the kernel.

mod common;
mod failures;
mod kernel;
mod limits;
mod reproducible;
mod values;
