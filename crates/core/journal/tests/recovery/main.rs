//! Recovery against the oracles: e2fsck's result, byte for byte, and what the kernel wrote.

#![allow(clippy::unwrap_used)] // a failing helper fails its test

mod damaged;
mod debugfs;
mod external;
mod fast;
mod kernel;
mod logs;
mod volume;
mod written;
