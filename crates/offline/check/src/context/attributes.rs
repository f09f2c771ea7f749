//! What is remembered of extended attributes: of one inode, and of those that inodes share.

use hectare_units::InodeNr;
use std::collections::BTreeMap;

/// What the attributes of an inode add to it.
#[derive(Default)]
pub(crate) struct InodeAttributes {
    /// Clusters of its attribute block.
    pub(crate) block: u64,
    /// Clusters that are counted to it for large values.
    pub(crate) values: u64,
    /// How many those are.
    pub(crate) holders: u64,
    /// The tail of content inside the inode (`system.data`).
    pub(crate) inline: Option<Vec<u8>>,
    /// The encryption context, if there is one.
    pub(crate) context: Option<Context>,
}

/// An encryption context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    /// Whether it is of a known version and its length.
    pub(crate) sound: bool,
    /// A sum of what it says beside its nonce.
    pub(crate) policy: u64,
}

impl InodeAttributes {
    /// Clusters counted in the inode's block count.
    pub(crate) fn clusters(&self) -> u64 {
        self.block + self.values
    }
}

/// What is known of attributes that are shared.
#[derive(Default)]
pub(crate) struct Shared {
    /// Attribute blocks.
    pub(crate) blocks: BTreeMap<u64, SharedBlock>,
    /// Inodes that hold a value.
    pub(crate) holders: BTreeMap<u32, Holder>,
    /// Entries whose value is in an inode.
    pub(crate) entries: Vec<LargeEntry>,
}

#[derive(Clone, Copy)]
pub(crate) struct SharedBlock {
    pub(crate) stored: u32,
    pub(crate) users: u32,
    pub(crate) values: u64,
    pub(crate) holders: u64,
    pub(crate) context: Option<Context>,
}

pub(crate) struct Holder {
    pub(crate) size: u64,
    pub(crate) hash: u32,
    pub(crate) stored: u64,
    pub(crate) users: u64,
    /// Whether its times are the same: Lustre keeps no count in them.
    pub(crate) is_lustre: bool,
    pub(crate) is_file: bool,
}

pub(crate) struct LargeEntry {
    pub(crate) owner: InodeNr,
    pub(crate) holder: InodeNr,
    pub(crate) size: u32,
    pub(crate) hash: u32,
    pub(crate) suffix: Vec<u8>,
}
