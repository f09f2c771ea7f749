//! The oracles: e2fsprogs, the Linux kernel, and a walk that compares two directories or volumes entry by
//! entry.
//!
//! Every claim that Hectare writes real ext4 ends here. A test makes a volume and checks it with
//! [`fsck::assert_clean`], mounts it with [`KernelMount`] and compares what the kernel sees ([`walk()`]) with
//! the expectation ([`compare()`]); or it takes a volume that e2fsprogs and the kernel made ([`combos()`],
//! [`filled()`]) and compares what Hectare reads from it. The sources are awkward on purpose ([`Tree`]).
//!
//! An oracle may be absent: no root, no loop devices, no e2fsprogs, a kernel without a feature. Then a
//! function here returns a [`Skip`], and the test passes it to [`skip!`], which names the test, prints the
//! reason and counts it. An oracle that is present and *disagrees* is never a skip: it panics with all its
//! output.
//!
//! Hazards: mounts and loop devices belong to the whole machine. [`KernelMount`] releases them when dropped,
//! also while a panic unwinds; what a killed process left is removed by the next one ([`scratch`]).
//!
//! This crate is for tests and `xtask` only: no layer may depend on it, it depends on none, and it panics
//! freely where a library must not.

pub mod browser;
pub mod compare;
pub mod corpus;
pub mod e2fsprogs;
pub mod feature_matrix;
pub mod filled;
mod fixtures;
pub mod fsck;
pub mod locks;
pub mod loops;
pub mod mount;
pub mod prometheus;
mod stored;
pub mod superblock;
pub mod trees;

/// Whether all of Linux is used: not with the switch by which Linux gets what other hosts have.
pub const IS_LINUX: bool = cfg!(all(target_os = "linux", not(hectare_portable)));

pub use compare::{What, assert_same, compare};
pub use corpus::{corpus, unpacked};
pub use e2fsprogs::{
    debugfs, debugfs_write, dumpe2fs, dumpe2fs_superblock, dumped, e2freefrag, mke2fs, name_journal,
};
pub use feature_matrix::{Combo, combos};
pub use filled::{Filled, filled, source};
pub use fsck::{assert_clean, assert_clean_but_wide, e2fsck};
pub use hectare_tools::{
    Content, Entry, Kind, Skip, Time, entry, hunt, is_root, scratch, skip, skip_part, sparse, tool, until,
    wait, walk, xattr,
};
pub use locks::sync_all;
pub use loops::LoopDevice;
pub use mount::{KernelMount, MountError};
pub use prometheus::Metrics;
pub use trees::{Scale, Tree};
