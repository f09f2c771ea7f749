//! Devices on files, block devices and memory of the host: what they do, and what they refuse.

// A failing helper fails its test; sizes here are small.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod behaviour;
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod dax;
mod opening;
mod writers;
