//! Changes the map of a file without freeing space: its owner is known only when all is replayed.

use crate::error::Result;
use crate::space::map_edit::MapMut;
use hectare_ext4::extent::{Extent, Progress, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite};
use hectare_ext4::map::MapKind;
use hectare_units::{BlockNr, LogicalBlock};
use std::sync::Arc;

/// Extents removed at a time.
const REMOVE_STEP: usize = 256;

/// A map whose blocks, and those of its tree, stay in use when they are removed.
pub(super) struct FastMap<'a, 'h> {
    pub(super) map: MapMut<'a, 'h>,
    /// Blocks that the tree took.
    pub(super) nodes: Vec<BlockNr>,
}

impl FastMap<'_, '_> {
    fn kind(&self) -> MapKind {
        MapKind::of(self.map.inode.flags)
    }

    /// Makes a range of the file, up to before `end`, a hole.
    pub(super) fn clear(&mut self, first: LogicalBlock, end: u64) -> Result<()> {
        while self.kind().remove(self, first, end, REMOVE_STEP, &mut |_, _, _| ())? == Progress::More {}
        Ok(())
    }

    /// Maps a range that is a hole.
    pub(super) fn insert(&mut self, new: Extent) -> Result<()> {
        self.kind().insert(self, new)
    }
}

impl TreeRead for FastMap<'_, '_> {
    type Error = crate::Error;
    type Node = Arc<[u8]>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.map.root()
    }

    fn node(&self, nr: BlockNr) -> Result<Arc<[u8]>> {
        self.map.node(nr)
    }

    fn geometry(&self) -> TreeGeometry {
        TreeRead::geometry(&self.map)
    }
}

impl TreeWrite for FastMap<'_, '_> {
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        self.map.edit_root(change)
    }

    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.map.edit(nr, change)
    }

    fn allocate(&mut self, goal: BlockNr) -> Result<BlockNr> {
        let nr = self.map.allocate(goal)?;
        self.nodes.push(nr);
        Ok(nr)
    }

    fn free(&mut self, nr: BlockNr) -> Result<()> {
        self.map.core.state.forget_metadata(nr);
        Ok(())
    }
}
