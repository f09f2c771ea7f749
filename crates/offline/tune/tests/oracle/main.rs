//! Changes of volumes that others made and filled, judged by e2fsck and the kernel.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod cases;
mod crash;
mod drawn;
mod support;
