//! What a volume keeps in memory: caches, groups, orphans, errors, the log.
//!
//! The lowest floor: a store knows its own data, locks and format, and none of the operations on a volume.
//! So each can be tested alone.

pub(crate) mod appended;
pub(crate) mod block_cache;
pub(crate) mod delay;
pub(crate) mod discards;
pub(crate) mod flush_tracker;
pub(crate) mod fs_errors;
pub(crate) mod groups;
pub(crate) mod inode_cache;
pub(crate) mod lazytime;
pub(crate) mod mmp;
pub(crate) mod orphan_file;
pub(crate) mod orphans;
pub(crate) mod quotas;
pub(crate) mod ranked_lock;
pub(crate) mod runs;
mod shard;
mod sharded;
pub(crate) mod value_index;
pub(crate) mod volume_journal;
pub(crate) mod wb_error;
pub(crate) mod writers;
