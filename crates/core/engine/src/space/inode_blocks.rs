//! Which blocks an inode has, for callers that compare or copy volumes.
//!
//! Buffered content that has no blocks yet is not among them.

use crate::error::Result;
use crate::space::map::MapRef;
use crate::state::State;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{BlockNr, Blocks, InodeNr, LogicalBlock, u64_of};
use std::ops::ControlFlow;

/// The blocks of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InodeBlocks {
    /// Its content, in order.
    pub extents: Vec<Extent>,
    /// The nodes of its map below the inode (of its extent tree, or the tables of its block map), a parent
    /// before its children.
    pub map_nodes: Vec<BlockNr>,
    /// Its attribute block, which other inodes may share.
    pub attribute_block: Option<BlockNr>,
}

impl InodeBlocks {
    /// The number of places where the content is: runs of the volume's blocks that hold neighbouring blocks of
    /// the file, in order.
    #[must_use]
    pub fn places(&self) -> u64 {
        places(&self.extents)
    }

    /// The fewest places where it could be: the number of its stretches without a hole.
    #[must_use]
    pub fn stretches(&self) -> u64 {
        u64_of(self.extents.chunk_by(|a, b| a.end() == u64::from(b.logical.get())).count())
    }
}

/// The number of places where extents, in the file's order, are.
pub(crate) fn places(extents: &[Extent]) -> u64 {
    let continues = |a: &Extent, b: &Extent| {
        a.end() == u64::from(b.logical.get()) && a.physical + Blocks::new(a.len.into()) == b.physical
    };
    u64_of(extents.chunk_by(continues).count())
}

/// The blocks of inode `nr`.
pub(crate) fn of(state: &State, nr: InodeNr) -> Result<InodeBlocks> {
    let cached = state.inode(nr)?;
    let inode = cached.get();
    let mut blocks = InodeBlocks { attribute_block: inode.file_acl, ..InodeBlocks::default() };
    if inode.flags.contains(InodeFlags::INLINE_DATA) || !inode.has_map() {
        return Ok(blocks);
    }
    let map = MapRef { state, nr, inode: &inode };
    map.for_each(LogicalBlock::ZERO, &mut |extent| {
        blocks.extents.push(extent);
        ControlFlow::Continue(())
    })?;
    map.for_each_node(&mut |nr, _| {
        blocks.map_nodes.push(nr);
        ControlFlow::Continue(())
    })?;
    Ok(blocks)
}
