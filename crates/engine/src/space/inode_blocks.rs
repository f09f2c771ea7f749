//! Which blocks an inode has, for callers that compare or copy volumes.
//!
//! Buffered content that has no blocks yet is not among them.

use crate::error::Result;
use crate::space::map::MapRef;
use crate::state::State;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{BlockNr, InodeNr, LogicalBlock};
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
