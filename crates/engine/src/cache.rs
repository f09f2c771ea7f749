//! The caches of the volume: metadata blocks and inodes.

pub(crate) mod block;
pub(crate) mod inode;
mod ranked_lock;
pub(crate) mod runs;
mod shard;
pub(crate) mod writers;
