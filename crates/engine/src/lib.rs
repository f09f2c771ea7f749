//! An ext4 volume in use.
//!
//! [`Volume`] opens a volume on any device and offers two interfaces: by inode numbers, for a mount
//! ([`Volume::lookup`], [`Volume::create`], [`Volume::rename`]...), and by paths in the shape of `std::fs`
//! ([`Volume::metadata`], [`Volume::open_file`], [`Volume::remove_dir_all`]...). Every operation may be
//! called from any number of threads. Overlapping writes of one file end wholly as one or the other
//! ([`OpenFile::write_at`]).
//!
//! How it works: typed state in memory (inodes, groups, the allocator) is rendered to blocks once per commit;
//! tree, directory and attribute blocks are edited in place in a block cache, and sealed with their checksums
//! at the commit. A change needs a handle of the journal; data goes to its final place before metadata points
//! at it.
//!
//! Lock order: rename lock -> operation locks of inodes (parent before child, else the lower number) -> a
//! range of a file being overwritten -> handle -> data lock of an inode -> group -> block. Never wait for a
//! commit while holding a handle.

mod background;
mod caller;
mod clock;
mod commit;
mod copy;
mod data;
mod delalloc;
mod directory;
mod encrypted_names;
mod error;
mod exact_alloc;
mod fallocate;
mod file;
mod flags;
mod format;
mod free_extents;
mod group_report;
mod ialloc;
mod immutable;
mod journalled;
mod label;
mod lookup;
mod map;
mod memory_stats;
mod namespace;
mod observer;
mod open_file;
mod options;
mod orphan_cleanup;
mod overwrite;
mod path_api;
mod permission;
mod pinned_inode;
mod recover;
mod remove;
mod rename;
mod seek;
mod shutdown;
mod space;
mod stat;
mod stores;
mod tmpfile;
mod trim;
mod truncate;
mod unwinding;
mod volume;
mod xattr_permission;
mod xattrs;

pub use caller::{Caller, Capabilities};
pub use error::{Error, Result};
pub use exact_alloc::HeldSpace;
pub use fallocate::FallocateMode;
pub use flags::{to_xflags, with_xflags};
pub use format::Overwrite;
pub use free_extents::{Bucket, FreeExtents, RunJoiner};
pub use group_report::{GroupReport, zero_runs};
pub use hectare_alloc::{
    BadClasses, BadTunable, Mechanism, Policy, Recording, SizeClasses, StatsSnapshot, Tunables, UnknownPolicy,
};
pub use hectare_ext4::dir::Cookie;
pub use hectare_ext4::extent::Extent;
pub use hectare_ext4::inode::{DeviceNumber, InodeFlags, Kind};
pub use hectare_ext4::superblock::{DataMode, OnError};
pub use hectare_ext4::time::Timestamp;
pub use hectare_ext4::xattr::How as XattrHow;
pub use hectare_journal::JournalStats;
pub use memory_stats::Gauges;
pub use namespace::{Creation, DirEntry, LINKS_MAX, NewNode};
pub use observer::{Observed, Observer};
pub use open_file::OpenFile;
pub use options::{JournalDevice, OpenOptions, Synchronous};
pub use permission::Access;
pub use pinned_inode::HeldInode;
pub use rename::RenameMode;
pub use seek::{ExtentFlags, FileExtent};
pub use shutdown::Shutdown;
pub use space::{Ask, AskGoal, Explanation, Shape};
pub use stat::{Changes, Metadata, StatFs};
pub use stores::fs_errors::FoundErrors;
pub use stores::orphans::Cleaned;
pub use volume::Volume;

/// The example of the project's page, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
