//! What of the volume is held in memory: metadata blocks and inodes.

pub(crate) mod block;
mod held;
pub(crate) mod inode;
pub(crate) mod runs;
mod shard;
pub(crate) mod writers;
