//! What of the volume is held in memory: metadata blocks and inodes.

pub(crate) mod block;
pub(crate) mod inode;
mod ranked_lock;
pub(crate) mod runs;
mod shard;
pub(crate) mod writers;
