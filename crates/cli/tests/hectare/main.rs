//! The binary, run as a user runs it, against volumes that mke2fs, the kernel and Hectare itself made.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod added;
mod age;
mod bench;
mod bombs;
mod build_goals;
mod casefold;
mod change;
mod conform;
mod container;
mod copy;
mod copy_trust;
mod corpus;
mod dedupe;
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
mod memory;
mod mke2fs;
mod monitor;
mod mount;
mod mount_callers;
mod partition;
mod pretended;
mod quota;
mod recipes;
mod report;
mod reproduce;
mod reproducible;
mod stress;
mod support;
mod unreadable;
mod verity;
