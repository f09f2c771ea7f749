//! The result of a layout: the blocks of every node.
//!
//! A million nodes have to fit beside the tree in 256 MiB, so a node is three indexes of 4 bytes and an
//! extent 16 bytes; a node's lists end where the next node's begin.

use crate::tree::NodeId;
use hectare_ext4::extent::Extent;
use hectare_ext4::geometry::Geometry;
use hectare_units::{BlockNr, Blocks, LogicalBlock, low32, u64_of, usize_of};
use std::ops::Range;

/// No attribute block.
const NONE: u32 = u32::MAX;

/// Blocks by what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Needs {
    pub(crate) file_data: Blocks,
    pub(crate) directories: Blocks,
    pub(crate) symlinks: Blocks,
    pub(crate) map_nodes: Blocks,
    pub(crate) attribute_blocks: Blocks,
}

/// The space that a tree takes of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) needs: Needs,
    /// Free blocks that are left.
    pub(crate) left: Blocks,
    pub(super) extents: usize,
    pub(super) map_nodes: usize,
    pub(super) attribute_blocks: usize,
}

impl Needs {
    /// All of them together.
    pub(crate) fn total(&self) -> Blocks {
        self.file_data + self.directories + self.symlinks + self.map_nodes + self.attribute_blocks
    }
}

/// Where a node's lists start.
#[derive(Clone, Copy, Debug)]
struct Node {
    extents: u32,
    map_nodes: u32,
    attribute_block: u32,
}

/// A written extent in 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Stored {
    logical: u32,
    len: u32,
    physical: u64,
}

/// An attribute block and how many inodes share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeBlock {
    pub(crate) nr: BlockNr,
    pub(crate) set: usize,
    pub(crate) references: u32,
}

/// Where everything goes.
pub(crate) struct Layout {
    /// One for each node, for each value in an inode of its own, and one behind the last.
    nodes: Vec<Node>,
    extents: Vec<Stored>,
    map_nodes: Vec<BlockNr>,
    attribute_blocks: Vec<AttributeBlock>,
    used: Vec<Range<u64>>,
    left: Blocks,
    needs: Needs,
}

impl Layout {
    /// A layout with the capacity for this many nodes, as measured in `room`.
    pub(super) fn with_capacity(nodes: usize, room: &Room) -> Self {
        Self {
            nodes: Vec::with_capacity(nodes + 1),
            extents: Vec::with_capacity(room.extents),
            map_nodes: Vec::with_capacity(room.map_nodes),
            attribute_blocks: Vec::with_capacity(room.attribute_blocks),
            used: Vec::new(),
            left: Blocks::ZERO,
            needs: Needs::default(),
        }
    }

    /// Begins the next node.
    pub(super) fn begin(&mut self) {
        // The lists would take 64 GiB before an index needs more than 32 bits.
        self.nodes.push(Node {
            extents: low32(u64_of(self.extents.len())),
            map_nodes: low32(u64_of(self.map_nodes.len())),
            attribute_block: NONE,
        });
    }

    /// Adds an extent to the last node, or what it gained to its last one.
    pub(super) fn extent(&mut self, extent: &Extent, joins: bool) {
        let stored =
            Stored { logical: extent.logical.get(), len: extent.len, physical: extent.physical.get() };
        match self.extents.last_mut() {
            Some(last) if joins => *last = stored,
            _ => self.extents.push(stored),
        }
    }

    pub(super) fn map_node(&mut self, nr: BlockNr) {
        self.map_nodes.push(nr);
    }

    pub(super) fn new_attribute_block(&mut self, nr: BlockNr, set: usize) {
        self.attribute_blocks.push(AttributeBlock { nr, set, references: 0 });
    }

    pub(super) fn use_attribute_block(&mut self, index: u32) {
        self.attribute_blocks[usize_of(index)].references += 1;
        if let Some(node) = self.nodes.last_mut() {
            node.attribute_block = index;
        }
    }

    pub(super) fn finish(&mut self, used: Vec<Range<u64>>, room: &Room) {
        self.begin();
        (self.used, self.left, self.needs) = (used, room.left, room.needs);
    }

    fn range(&self, id: NodeId, list: impl Fn(&Node) -> u32) -> Range<usize> {
        usize_of(list(&self.nodes[id.index()]))..usize_of(list(&self.nodes[id.index() + 1]))
    }

    /// The extents of a node's content, in order.
    pub(crate) fn extents(&self, id: NodeId) -> impl ExactSizeIterator<Item = Extent> + '_ {
        self.extents[self.range(id, |node| node.extents)].iter().map(|stored| Extent {
            logical: LogicalBlock::new(stored.logical),
            len: stored.len,
            physical: BlockNr::new(stored.physical),
            unwritten: false,
        })
    }

    /// Blocks of a node's content.
    pub(crate) fn content_blocks(&self, id: NodeId) -> Blocks {
        let extents = &self.extents[self.range(id, |node| node.extents)];
        Blocks::new(extents.iter().map(|extent| u64::from(extent.len)).sum())
    }

    /// The blocks for the tree nodes of a node's map.
    pub(crate) fn map_nodes(&self, id: NodeId) -> &[BlockNr] {
        &self.map_nodes[self.range(id, |node| node.map_nodes)]
    }

    /// The attribute block of a node.
    pub(crate) fn attribute_block(&self, id: NodeId) -> Option<BlockNr> {
        let index = self.nodes[id.index()].attribute_block;
        (index != NONE).then(|| self.attribute_blocks[usize_of(index)].nr)
    }

    /// Every attribute block, in ascending order.
    pub(crate) fn attribute_blocks(&self) -> &[AttributeBlock] {
        &self.attribute_blocks
    }

    /// All that a node uses in whole clusters, which is what `i_blocks` counts.
    pub(crate) fn blocks(&self, id: NodeId, geometry: &Geometry) -> Blocks {
        let mut clusters = u64_of(self.map_nodes(id).len()) + u64::from(self.attribute_block(id).is_some());
        let mut last = None;
        for extent in self.extents(id) {
            let first = geometry.cluster_of(extent.physical).get();
            let end = geometry.cluster_of(extent.physical + Blocks::new(u64::from(extent.len) - 1)).get() + 1;
            // Extents of one file can lie in one cluster.
            clusters += end - first - u64::from(last == Some(first));
            last = Some(end - 1);
        }
        Blocks::new(clusters << geometry.cluster_ratio_shift)
    }

    /// All blocks in use, whole clusters, sorted and joined; the one kept for the root directory is not among
    /// them.
    pub(crate) fn used(&self) -> &[Range<u64>] {
        &self.used
    }

    /// Free blocks that are left.
    pub(crate) fn left(&self) -> Blocks {
        self.left
    }

    /// What was given out, by what it holds.
    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }
}
