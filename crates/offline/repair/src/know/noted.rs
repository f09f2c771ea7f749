//! What a round notes of inodes for its later steps.

use hectare_ext4::xattr::Name;
use hectare_units::InodeNr;
use std::collections::{BTreeMap, BTreeSet};

/// What an inode claimed that belonged to something else.
#[derive(Default)]
pub(crate) struct Conflict {
    /// Clusters of the file, by their place in it.
    pub(crate) clusters: BTreeSet<u64>,
    /// Blocks of its map.
    pub(crate) nodes: BTreeSet<u64>,
    /// Clusters counted to it beside its map.
    pub(crate) extra: u64,
    /// The file block from which on nothing is kept.
    pub(crate) cut: Option<u64>,
}

/// What inodes share.
#[derive(Default)]
pub(crate) struct Shared {
    /// Attribute blocks that are sound now.
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Inodes whose attribute block belongs to something else, and its content.
    pub(crate) homeless: Vec<(InodeNr, Vec<u8>)>,
    pub(crate) entries: Vec<LargeEntry>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Block {
    pub(crate) users: u32,
    pub(crate) values: u64,
    pub(crate) context: Option<bool>,
}

/// An entry whose value is in an inode.
pub(crate) struct LargeEntry {
    pub(crate) owner: InodeNr,
    /// The block it is in; `None` for the inode itself.
    pub(crate) block: Option<u64>,
    pub(crate) name: Name,
    pub(crate) holder: InodeNr,
    pub(crate) size: u32,
    pub(crate) hash: u32,
}
