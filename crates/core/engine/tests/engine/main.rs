//! The engine against its oracles: e2fsck, the kernel, and models in memory.
//!
//! One binary, so that the oracle's volumes and trees are made once. What is too long for every day runs with
//! `HECTARE_LONG=1` and is otherwise listed by name as left out.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs)] // all of this is tests

mod common;

mod block_maps;
mod casefold;
mod checksums;
mod churn;
mod copy;
mod delayed;
mod discard;
mod encrypted;
mod errors;
mod explain;
mod extra;
mod fallocate;
mod fast_commits;
mod fast_feature;
mod faults;
mod fill;
mod flags;
mod found;
mod full;
mod fuzzed;
mod gather;
mod hostile;
mod inline;
mod inodes;
mod journalled;
mod large;
mod logged;
mod mmp;
mod model;
mod nameless;
mod namespace;
mod orphans;
mod overlap;
mod overwrite;
mod permissions;
mod placement;
mod quotas;
mod ranges;
mod ranges_model;
mod read;
mod states;
mod threads;
mod turns;
mod unwritten;
mod value_faults;
mod value_inodes;
mod value_model;
mod verity;
mod write;
