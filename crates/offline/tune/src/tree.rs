//! Reads the map of an inode from the overlay.

use crate::error::{Error, Result};
use crate::volume::Volume;
use hectare_ext4::extent::{Extent, ROOT_LEN, TreeGeometry, TreeRead};
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_units::{BlockNr, InodeNr, LogicalBlock};
use std::ops::{ControlFlow, Range};

struct Map<'a, 'd> {
    volume: &'a Volume<'d>,
    root: [u8; ROOT_LEN],
    nr: InodeNr,
}

impl TreeRead for Map<'_, '_> {
    type Error = Error;
    type Node = Vec<u8>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.root
    }

    fn node(&self, nr: BlockNr) -> Result<Vec<u8>> {
        self.volume.read(nr)
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.volume.geometry(), self.nr)
    }
}

/// The blocks of a file.
#[derive(Default)]
pub(crate) struct FileMap {
    /// Its content, in ascending order.
    pub(crate) content: Vec<Extent>,
    /// Nodes of the map.
    pub(crate) nodes: Vec<BlockNr>,
}

impl FileMap {
    /// The map of an inode, empty if it has none.
    pub(crate) fn of(volume: &Volume<'_>, nr: InodeNr, inode: &Inode) -> Result<Self> {
        let mut found = Self::default();
        if !inode.is_mapped() {
            return Ok(found);
        }
        let kind = MapKind::of(inode.flags);
        let map = Map { volume, root: inode.block, nr };
        kind.for_each(&map, LogicalBlock::ZERO, &mut |extent| {
            found.content.push(extent);
            ControlFlow::Continue(())
        })?;
        kind.for_each_node(&map, &mut |node, _| {
            found.nodes.push(node);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Every block with its place in the file.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (LogicalBlock, BlockNr)> + '_ {
        self.content.iter().flat_map(|extent| {
            let blocks = run(extent).map(BlockNr::new);
            (extent.logical.get()..).map(LogicalBlock::new).zip(blocks)
        })
    }

    /// All of it, as runs.
    pub(crate) fn runs(&self) -> Vec<Range<u64>> {
        let nodes = self.nodes.iter().map(|node| node.get()..node.get() + 1);
        self.content.iter().map(run).chain(nodes).collect()
    }
}

/// The blocks of an extent.
fn run(extent: &Extent) -> Range<u64> {
    let start = extent.physical.get();
    start..start + u64::from(extent.len)
}
