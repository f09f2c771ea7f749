//! The binary, run as a user runs it, against volumes that mke2fs, the kernel and Hectare itself made.

// It needs Linux; `any_host` does not.
#![cfg(all(target_os = "linux", not(hectare_portable)))]
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod added;
mod batch;
mod bombs;
mod build_goals;
mod casefold;
mod change;
mod container;
mod copy;
mod copy_trust;
mod corpus;
mod damaged;
mod dedupe;
mod described;
mod diff;
mod disk_image;
mod disks;
mod errors;
mod explain;
mod export;
mod identify;
mod journal;
mod like;
mod logical;
mod look;
mod lookup;
mod make;
mod make_on_devices;
mod memory;
mod mke2fs;
mod monitor;
mod mount;
mod mount_callers;
mod partition;
mod pretended;
mod protected;
mod quota;
mod recipes;
mod remote;
mod remote_writers;
mod repair;
mod report;
mod reproducible;
mod resize;
mod salvage;
mod salvage_resume;
mod space;
mod store;
mod support;
mod tune;
mod unread;
mod unreadable;
mod verity;

/// The program.
const BINARY: &str = env!("CARGO_BIN_EXE_hectare");

/// The program with a command: always the same.
fn program_of(_: Option<&std::ffi::OsStr>) -> std::path::PathBuf {
    BINARY.into()
}
