//! The map of a file: looks blocks up, whichever kind of map the inode has.
//!
//! The map itself, a tree of extents or an indirect map, is [`hectare_ext4::map`]'s; this module supplies its
//! nodes, from the block cache. Changes are [`crate::space::map_edit`]'s.

use crate::error::{Error, Result};
use crate::state::State;
use crate::stores::block_cache::Kind;
use crate::stores::fs_errors::Watched;
use hectare_ext4::error::Place;
use hectare_ext4::extent::{Extent, Mapping, ROOT_LEN, TreeGeometry, TreeRead};
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_units::{BlockNr, InodeNr, LogicalBlock, low32};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The map of an inode, for lookups.
pub(crate) struct MapRef<'a> {
    pub(crate) state: &'a State,
    pub(crate) nr: InodeNr,
    pub(crate) inode: &'a Inode,
}

impl MapRef<'_> {
    /// How the nodes of this map are verified and sealed.
    pub(super) fn node_kind(&self) -> Kind {
        node_kind(self.state, self.nr, self.inode)
    }

    /// What a file block is mapped to, whichever kind of map the inode has.
    pub(crate) fn lookup(&self, at: LogicalBlock) -> Result<Mapping> {
        self.kind().lookup(self, at).watched(&self.state.findings)
    }

    /// Visits every extent from a file block on, whichever kind of map the inode has.
    pub(crate) fn for_each(
        &self,
        from: LogicalBlock,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.kind().for_each(self, from, visit).watched(&self.state.findings)
    }

    /// Visits every node below the root with its depth, a parent before its children.
    pub(crate) fn for_each_node(&self, visit: &mut dyn FnMut(BlockNr, u16) -> ControlFlow<()>) -> Result<()> {
        self.kind().for_each_node(self, visit).watched(&self.state.findings)
    }

    /// Levels of nodes below the root.
    pub(crate) fn height(&self) -> Result<u32> {
        Ok(self.kind().height(&self.inode.block, &self.geometry())?)
    }

    /// How the blocks are mapped.
    pub(crate) fn kind(&self) -> MapKind {
        MapKind::of(self.inode.flags)
    }

    /// The first extent that maps any block from `from` to before `end`.
    pub(crate) fn first_in(&self, from: u64, end: u64) -> Result<Option<Extent>> {
        let mut at = from;
        while at < end {
            match self.lookup(LogicalBlock::new(low32(at)))? {
                Mapping::Mapped(extent) => return Ok(Some(extent)),
                Mapping::Hole { next: Some(next) } if u64::from(next.get()) > at => at = next.get().into(),
                Mapping::Hole { .. } => break,
            }
        }
        Ok(None)
    }
}

impl TreeRead for MapRef<'_> {
    type Error = Error;
    type Node = Arc<[u8]>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.inode.block
    }

    fn node(&self, nr: BlockNr) -> Result<Arc<[u8]>> {
        Ok(self.state.blocks.load_with(nr, || self.node_kind(), Place::Block(nr))?.bytes())
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.state.geometry(), self.nr)
    }
}

pub(crate) fn node_kind(state: &State, nr: InodeNr, inode: &Inode) -> Kind {
    match MapKind::of(inode.flags) {
        MapKind::Extents => {
            let geometry = TreeGeometry::of(state.geometry(), nr);
            Kind::ExtentNode { geometry, seed: inode.seed(nr, &state.sb) }
        }
        MapKind::Blocks => Kind::Plain,
    }
}
