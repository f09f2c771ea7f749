//! Space: the maps of files, and where the blocks and inodes of a volume come from.
//!
//! Operations are functions on [`crate::state::Core`]; none of them knows [`crate::Volume`].

pub(crate) mod allocator;
pub(crate) mod explain;
pub(crate) mod ialloc;
pub(crate) mod inode_blocks;
pub(crate) mod map;
pub(crate) mod map_convert;
pub(crate) mod map_edit;
pub(crate) mod piece;
pub(crate) mod quota;
pub(crate) mod reserve;
pub(crate) mod statfs;
