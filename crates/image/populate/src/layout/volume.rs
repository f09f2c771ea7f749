//! What a layout has to know of the volume, and the numbers of inodes that follow from it.

use super::kept::Kept;
use super::load::Load;
use crate::tree::NodeId;
use hectare_ext4::feature::Incompat;
use hectare_ext4::superblock::SuperBlock;
use hectare_mkfs::Plan;
use hectare_units::{BlockNr, InodeNr, low32, u64_of};

/// The volume's properties that a layout needs: its empty superblock, and what the formatter reserves.
#[derive(Clone, Copy)]
pub(crate) struct Volume<'a> {
    pub(crate) sb: &'a SuperBlock,
    /// The first inode after those the format itself uses (lost+found, and the orphan file where there is
    /// one).
    pub(crate) first_inode: InodeNr,
    /// The block that the formatter reserves for the start of the root directory.
    pub(crate) root_block: BlockNr,
    /// The formatter's lost+found.
    pub(crate) lost_and_found: InodeNr,
    /// The tree's own lost+found, which the formatter's replaces.
    pub(crate) stand_in: Option<NodeId>,
    /// What is kept of an old image.
    kept: Option<&'a Kept>,
    /// Nodes of the tree; what is numbered after them holds attribute values.
    nodes: u32,
}

impl<'a> Volume<'a> {
    pub(crate) fn new(plan: &'a Plan, load: &'a Load<'_>) -> Self {
        Self {
            sb: plan.superblock(),
            first_inode: plan.first_free_inode(),
            root_block: plan.root_block(),
            lost_and_found: plan.lost_and_found(),
            stand_in: load.stand_in,
            kept: load.kept.as_ref(),
            nodes: low32(u64_of(load.tree.len())), // ids have 32 bits
        }
    }

    /// Whether files are mapped by extents, else by tables of blocks (ext2 and ext3).
    pub(crate) fn has_extents(&self) -> bool {
        self.sb.features().incompat.contains(Incompat::EXTENTS)
    }

    /// The inode a node gets: the root its own, the others in order.
    pub(crate) fn inode_of(&self, node: NodeId) -> InodeNr {
        if node == NodeId::ROOT {
            return InodeNr::ROOT;
        }
        match self.stand_in {
            Some(stand_in) if node == stand_in => self.lost_and_found,
            _ if let Some(kept) = self.kept => kept.inode_of(node), // without values in inodes of their own
            Some(stand_in) if node > stand_in => InodeNr::new(self.first_inode.get() + node.get() - 2),
            _ => InodeNr::new(self.first_inode.get() + node.get() - 1),
        }
    }

    /// The node that stands for a value in an inode of its own.
    pub(crate) fn value_node(&self, value: u32) -> NodeId {
        NodeId::new(self.nodes + value)
    }

    /// The value that a node stands for; `None` for those of the tree.
    pub(crate) fn value_of(&self, node: NodeId) -> Option<u32> {
        node.get().checked_sub(self.nodes)
    }

    /// The inode of a value by its number in an entry, counted from 1.
    pub(crate) fn value_number(&self, number: InodeNr) -> InodeNr {
        self.inode_of(self.value_node(number.get() - 1))
    }

    /// The node with this inode, if it is one of the first `nodes` and not the formatter's.
    pub(crate) fn node_of(&self, inode: InodeNr, nodes: usize) -> Option<NodeId> {
        if inode == InodeNr::ROOT {
            return Some(NodeId::ROOT);
        }
        if let Some(kept) = self.kept {
            return kept.node_of(inode);
        }
        let mut n = inode.get().checked_sub(self.first_inode.get())? + 1;
        if self.stand_in.is_some_and(|stand_in| n >= stand_in.get()) {
            n += 1;
        }
        (hectare_units::usize_of(n) < nodes).then_some(NodeId::new(n))
    }
}
