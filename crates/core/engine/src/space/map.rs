//! The map of a file: looks blocks up, whichever kind of map the inode has.
//!
//! The map itself, a tree of extents or an indirect map, is [`hectare_ext4::map`]'s; this module supplies its
//! nodes, from the block cache. Content in the inode has no map, and so nothing is mapped. Changes are
//! [`crate::space::map_edit`]'s.

use crate::error::{Error, Result};
use crate::state::State;
use crate::stores::block_cache::Kind;
use crate::stores::fs_errors::Watched;
use hectare_alloc::Run;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::{Extent, Mapping, ROOT_LEN, TreeGeometry, TreeRead};
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_units::{BlockNr, Blocks, Clusters, InodeNr, LogicalBlock, low32};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most runs among which a block that is mapped twice is looked for: 1 MiB of memory.
const RUNS_MAX: usize = 1 << 16;

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
        if self.inode.is_inline() {
            return Ok(Mapping::Hole { next: None });
        }
        let mapping = self.kind().lookup(self, at).watched(&self.state.findings)?;
        if let Mapping::Mapped(extent) = &mapping {
            self.check_outside(extent.logical, extent.physical, extent.len)?;
        }
        Ok(mapping)
    }

    /// Visits every extent from a file block on, whichever kind of map the inode has.
    pub(crate) fn for_each(
        &self,
        from: LogicalBlock,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.inode.is_inline() {
            return Ok(());
        }
        self.kind().for_each(self, from, visit).watched(&self.state.findings)
    }

    /// Visits every node below the root with its depth, a parent before its children.
    pub(crate) fn for_each_node(&self, visit: &mut dyn FnMut(BlockNr, u16) -> ControlFlow<()>) -> Result<()> {
        if self.inode.is_inline() {
            return Ok(());
        }
        self.kind().for_each_node(self, visit).watched(&self.state.findings)
    }

    /// Returns an error if anything mapped in a range of file blocks can't be freed, because it is metadata of
    /// the volume, or not in use, or mapped twice: before the range is unmapped, in as many transactions as
    /// that takes. So are the nodes above the range, each of which may be freed with the last that it maps;
    /// an indirect map may have tables that map nothing.
    pub(crate) fn check_range(&self, from: LogicalBlock, end: u64) -> Result<()> {
        let (mut runs, mut wrong) = (Vec::new(), Ok(()));
        let mut check = |logical, physical, len| {
            // The first that is wrong stays: nodes and attributes come after the content.
            if wrong.is_ok() {
                wrong =
                    self.check_outside(logical, physical, len).and_then(|()| self.check_used(physical, len));
            }
            if runs.len() < RUNS_MAX {
                runs.push((physical, len));
            }
            if wrong.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let nodes = self.for_each_noting(from, &mut |extent| {
            if u64::from(extent.logical.get()) >= end {
                return ControlFlow::Break(());
            }
            check(extent.logical, extent.physical, extent.len)
        })?;
        let _ = nodes.into_iter().try_for_each(|nr| check(from, nr, 1));
        // It is freed after them, with the whole file.
        if let Some(block) = self.inode.file_acl.filter(|_| from == LogicalBlock::ZERO) {
            let _ = check(from, block, 1);
        }
        wrong?;
        runs.sort_unstable();
        let ends = runs.iter().map(|(first, len)| *first + Blocks::new(u64::from(*len)));
        let mut pairs = ends.zip(runs.iter().skip(1));
        let Some((_, (nr, _))) = pairs.find(|(end, (next, _))| next < end) else { return Ok(()) };
        let wrong = Corrupt::new("the map", Place::Inode(self.nr), format!("it leads to block {nr} twice"));
        Err(wrong.into()).watched(&self.state.findings)
    }

    /// Visits every extent from a file block on, and returns the nodes that were read for it, up to
    /// [`RUNS_MAX`].
    fn for_each_noting(
        &self,
        from: LogicalBlock,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<Vec<BlockNr>> {
        if self.inode.is_inline() {
            return Ok(Vec::new());
        }
        let noting = Noting { map: self, read: RefCell::default() };
        self.kind().for_each(&noting, from, visit).watched(&self.state.findings)?;
        Ok(noting.read.into_inner())
    }

    /// Returns an error for blocks that hold metadata of the volume. Reserved inodes have some of those.
    fn check_outside(&self, at: LogicalBlock, first: BlockNr, len: u32) -> Result<()> {
        if self.nr != InodeNr::ROOT && self.nr < self.state.sb.first_inode() {
            return Ok(());
        }
        let Some(nr) = self.state.groups.metadata_in(first, len) else { return Ok(()) };
        let reason = format!("it leads to block {nr}, which holds metadata of the volume");
        let wrong = Corrupt::new("the map", Place::FileBlock(self.nr, at), reason);
        Err(wrong.into()).watched(&self.state.findings)
    }

    /// Returns an error for blocks that could not be freed, since they are not in use.
    pub(crate) fn check_used(&self, first: BlockNr, len: u32) -> Result<()> {
        let geometry = self.state.geometry();
        let start = geometry.cluster_of(first);
        let last = geometry.cluster_of(first + Blocks::new(u64::from(len) - 1));
        let run = Run::new(start, Clusters::new(last.get() - start.get() + 1));
        self.state.allocator.check_used(run).map_err(Error::from).watched(&self.state.findings)
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
        if self.kind() == MapKind::Blocks {
            // Nothing in a table says that it is one.
            self.check_outside(LogicalBlock::ZERO, nr, 1)?;
        }
        Ok(self.state.blocks.load_with(nr, || self.node_kind(), Place::Block(nr))?.bytes())
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.state.geometry(), self.nr)
    }
}

/// A map that notes which nodes are read.
struct Noting<'a> {
    map: &'a MapRef<'a>,
    read: RefCell<Vec<BlockNr>>,
}

impl TreeRead for Noting<'_> {
    type Error = Error;
    type Node = Arc<[u8]>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.map.root()
    }

    fn node(&self, nr: BlockNr) -> Result<Arc<[u8]>> {
        let mut read = self.read.borrow_mut();
        if read.len() < RUNS_MAX {
            read.push(nr);
        }
        self.map.node(nr)
    }

    fn geometry(&self) -> TreeGeometry {
        self.map.geometry()
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
