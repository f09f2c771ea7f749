//! Where everything of a tree goes in a volume: inode numbers and blocks, before a byte of data is read.
//!
//! Inodes are numbered in the order of the tree's nodes, and space is given out in one pass over the free ranges of the
//! empty volume, from its start to its end: for each node its content, then the tree blocks of its map, then its
//! attribute block. So a directory's files lie behind each other, an image is a function of the tree and the options
//! alone. Whether a tree fits a volume of a given
//! size, and how much it lacks, is known exactly without reading data, which is what the search for the smallest size
//! relies on.
//!
//! With `bigalloc` everything takes whole clusters, and a block of a file keeps its place inside its cluster.
//!
//! Not here: the places of the format's own metadata (that is `hectare-mkfs`), reading data and writing (that is
//! [`crate::write`]).

mod attributes;
mod contents;
mod cursor;
mod inode;
mod place;

pub(crate) use attributes::Attributes;
pub(crate) use contents::TreeContents;
pub(crate) use inode::{Inodes, LINKS_MAX};
pub(crate) use place::{DirectorySizes, Lacking, Layout, Needs};

use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, InodeNr};

use crate::tree::NodeId;

/// What a layout needs to know of the volume: its empty superblock.
#[derive(Clone, Copy)]
pub(crate) struct Volume<'a> {
    pub(crate) sb: &'a SuperBlock,
    /// The first inode after those the format itself uses (lost+found, and the orphan file where there is one).
    pub(crate) first_inode: InodeNr,
    /// The block the formatter keeps for the start of the root directory.
    pub(crate) root_block: BlockNr,
}

impl Volume<'_> {
    /// The inode a node gets: the root its own, the others in order.
    pub(crate) fn inode_of(&self, node: NodeId) -> InodeNr {
        match node.get() {
            0 => InodeNr::ROOT,
            n => InodeNr::new(self.first_inode.get() + n - 1),
        }
    }

    /// The node that has an inode, if one of `nodes` has it.
    pub(crate) fn node_of(&self, inode: InodeNr, nodes: usize) -> Option<NodeId> {
        if inode == InodeNr::ROOT {
            return Some(NodeId::ROOT);
        }
        let n = inode.get().checked_sub(self.first_inode.get())? + 1;
        (hectare_units::usize_of(n) < nodes).then_some(NodeId::new(n))
    }
}
