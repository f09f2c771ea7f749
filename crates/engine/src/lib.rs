//! An ext4 volume in use.
//!
//! [`Volume`] opens a volume on any device and offers it twice: by inode numbers, for a mount
//! ([`Volume::lookup`], [`Volume::create`], [`Volume::rename`]...), and by paths in the shape of `std::fs`
//! ([`Volume::metadata`], [`Volume::open_file`], [`Volume::remove_dir_all`]...). Every operation may be
//! called from any number of threads. Writes of one file that overlap end as one or the other, whole
//! ([`OpenFile::write_at`]).
//!
//! How it works: typed state in memory (inodes, groups, the allocator) is rendered to blocks once per commit;
//! tree, directory and attribute blocks are edited in place in a block cache, and sealed with their checksums
//! at the commit. A change needs a handle of the journal; data goes to its final place before metadata points
//! at it.
//!
//! The order of locks: rename lock -> operation locks of inodes (parent before child, else the lower number)
//! -> a range of a file that is written over -> handle -> data lock of an inode -> group -> block. Nobody
//! waits for a commit while holding a handle.

mod background;
mod cache;
mod caller;
mod clock;
mod commit;
mod copy;
mod data;
mod delay;
mod directory;
mod discard;
mod error;
mod fallocate;
mod file;
mod fill;
mod findings;
mod flags;
mod flushes;
mod format;
mod fs;
mod gauges;
mod groups;
mod guard;
mod hold;
mod ialloc;
mod journalled;
mod label;
mod log;
mod lookup;
mod map;
mod mmp;
mod nameless;
mod namespace;
mod namespaces;
mod observer;
mod opaque;
mod open;
mod options;
mod orphan;
mod overwrite;
mod permission;
mod recover;
mod remove;
mod rename;
mod report;
mod seek;
mod shutdown;
mod space;
mod stat;
mod times;
mod trim;
mod truncate;
mod unwinding;
mod volume;
mod xattrs;

pub use caller::{Caller, Capabilities};
pub use error::{Error, Result};
pub use fallocate::FallocateMode;
pub use fill::HeldSpace;
pub use findings::FoundErrors;
pub use flags::{to_xflags, with_xflags};
pub use format::Overwrite;
pub use gauges::Gauges;
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
pub use hold::HeldInode;
pub use namespace::{Creation, DirEntry, LINKS_MAX, NewNode};
pub use observer::{Observed, Observer};
pub use open::OpenFile;
pub use options::{JournalDevice, OpenOptions, Synchronous};
pub use orphan::Cleaned;
pub use permission::Access;
pub use rename::RenameMode;
pub use report::{GroupReport, zero_runs};
pub use seek::{ExtentFlags, FileExtent};
pub use shutdown::Shutdown;
pub use space::{Ask, AskGoal, Explanation, Shape};
pub use stat::{Changes, Metadata, StatFs};
pub use volume::Volume;

/// The example of the project's page, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
