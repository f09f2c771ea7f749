//! The binary, run as a user runs it, against volumes that mke2fs, the kernel and Hectare itself made.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod age;
mod bench;
mod bombs;
mod change;
mod conform;
mod container;
mod copy;
mod copy_trust;
mod corpus;
mod described;
mod diff;
mod errors;
mod explain;
mod export;
mod journal;
mod killed;
mod like;
mod look;
mod make;
mod make_on_devices;
mod mke2fs;
mod monitor;
mod mount;
mod mount_callers;
mod partition;
mod pretended;
mod recipes;
mod report;
mod reproduce;
mod support;
mod verity;
