//! Whole volumes, as planned and as written, beside those of mke2fs and mkfs.xfs.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;
mod large;
mod mke2fs;
mod volume;
mod xfs;
mod xfs_plan;
