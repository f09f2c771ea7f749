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
//! The crate is built in floors, each of which uses those below it only (`cargo xtask tidy` checks that).
//! From the lowest: `stores` (caches, groups, orphans, the log: each knows itself only); `state` (the stores
//! of one volume, and its transactions); the operations, which are functions on that state: `space`, `data`,
//! `attributes`, `names`; `open` (opening, recovery, closing); and `volume`, the face that users see.
//!
//! Lock order: rename lock -> operation locks of inodes (parent before child, else the lower number) -> a
//! range of a file being overwritten -> handle -> data lock of an inode -> group -> block. Never wait for a
//! commit while holding a handle.

mod attributes;
mod caller;
mod clock;
mod data;
mod encrypted_names;
mod error;
mod free_extents;
mod immutable;
mod names;
mod observer;
mod open;
mod options;
mod space;
mod state;
mod stores;
mod volume;

pub use attributes::flags::{to_xflags, with_xflags};
pub use attributes::permission::Access;
pub use attributes::stat::{Changes, Metadata};
pub use caller::{Caller, Capabilities, on_behalf};
pub use data::fallocate::FallocateMode;
pub use data::gather::Gathered;
pub use data::seek::{ExtentFlags, FileExtent};
pub use error::{Error, Result};
pub use free_extents::{Bucket, FreeExtents, RunJoiner};
pub use hectare_alloc::{
    BadClasses, BadTunable, Counts as SpaceCounts, Mechanism, Policy, Recording, SizeClasses, StatsSnapshot,
    Tunables, UnknownPolicy,
};
pub use hectare_ext4::dir::Cookie;
pub use hectare_ext4::error::{Corrupt, Place};
pub use hectare_ext4::extent::Extent;
pub use hectare_ext4::group::GroupDesc;
pub use hectare_ext4::inode::{DeviceNumber, InodeFlags, Kind};
pub use hectare_ext4::quota::{Kind as QuotaKind, Record as QuotaRecord, Resource as QuotaResource};
pub use hectare_ext4::superblock::{DataMode, OnError, SuperBlock, Tolerances};
pub use hectare_ext4::time::Timestamp;
pub use hectare_ext4::verity::{Algorithm as VerityAlgorithm, Params as VerityParams};
pub use hectare_ext4::xattr::How as XattrHow;
pub use hectare_journal::JournalStats;
pub use names::node::{Creation, DirEntry, LINKS_MAX, NewNode};
pub use names::rename::RenameMode;
pub use observer::{Observed, Observer};
pub use open::shutdown::Shutdown;
pub use options::{JournalDevice, OpenOptions, Synchronous};
pub use space::explain::{Ask, AskGoal, Explanation, Shape};
pub use space::inode_blocks::InodeBlocks;
pub use space::statfs::StatFs;
pub use stores::fs_errors::FoundErrors;
pub use stores::orphans::Cleaned;
pub use volume::Volume;
#[cfg(feature = "format")]
pub use volume::format::Overwrite;
pub use volume::group_report::{GroupReport, zero_runs};
pub use volume::held_space::HeldSpace;
pub use volume::memory_stats::Gauges;
pub use volume::open_file::OpenFile;
pub use volume::pinned_inode::HeldInode;
pub use volume::quotas::{QuotaLimits, QuotaReport};
