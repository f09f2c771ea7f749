//! Resizes judged by e2fsprogs and the kernel.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod cancel;
mod crash;
mod failing;
mod fields;
mod pairs;
mod sizes;
mod support;
