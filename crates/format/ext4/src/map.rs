//! The two kinds of maps a file can have, behind one interface: extent trees and indirect maps.
//!
//! Callers that only map, look up and unmap use this; what only one kind can do (unwritten extents, moving
//! keys) stays with [`crate::extent`]. Both kinds keep their root in `i_block` and their nodes in blocks, so
//! both are reached through the same store ([`TreeRead`], [`TreeWrite`]).
//!
//! It is not: a decision which kind a new file gets; the volume's features make it.

use crate::error::Corrupt;
use crate::extent::{self, Extent, Mapping, Node, Progress, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite};
use crate::indirect;
use crate::inode::InodeFlags;
use hectare_units::{BlockNr, BlockSize, LogicalBlock, low32};
use std::ops::ControlFlow;

/// Tables of an indirect map that one transaction fills, beside the first.
const STEP_TABLES: u32 = 3;

/// How a file's blocks are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapKind {
    /// By an extent tree.
    Extents,
    /// By an indirect map, as in ext2 and ext3.
    Blocks,
}

impl MapKind {
    /// The kind of an inode with these flags, if it has a map at all.
    #[must_use]
    pub fn of(flags: InodeFlags) -> Self {
        if flags.contains(InodeFlags::EXTENTS) { Self::Extents } else { Self::Blocks }
    }

    /// The root of an empty file.
    #[must_use]
    pub fn empty_root(self) -> [u8; ROOT_LEN] {
        match self {
            Self::Extents => extent::empty_root(),
            Self::Blocks => [0; ROOT_LEN],
        }
    }

    /// Levels of nodes below the root.
    ///
    /// # Errors
    /// When the root is corrupt.
    pub fn height(self, root: &[u8; ROOT_LEN], geometry: &TreeGeometry) -> Result<u32, Corrupt> {
        match self {
            Self::Extents => Ok(Node::root(root, geometry)?.depth().into()),
            Self::Blocks => Ok(indirect::height(root)),
        }
    }

    /// Bytes of the longest file with such a map; `huge` says whether inodes can count more than 2^32 sectors
    /// (`huge_file`).
    #[must_use]
    pub fn size_max(self, size: BlockSize, huge: bool) -> u64 {
        let counted = if huge { u64::MAX } else { u64::from(u32::MAX) >> (size.shift() - 9) };
        match self {
            Self::Extents => u64::from(u32::MAX).min(counted) << size.shift(),
            Self::Blocks => indirect::size_max(size),
        }
    }

    /// The blocks from file block `at` on that one transaction maps at most, so that the nodes it makes are
    /// few.
    #[must_use]
    pub fn step_max(self, at: LogicalBlock, size: BlockSize) -> u32 {
        match self {
            Self::Extents => u32::MAX,
            Self::Blocks => low32(indirect::run(at, size)).saturating_add(STEP_TABLES * (size.get() / 4)),
        }
    }

    /// The blocks from file block `at` on that one [`insert`](Self::insert) takes at most.
    #[must_use]
    pub fn insert_max(self, at: LogicalBlock, unwritten: bool, size: BlockSize) -> u32 {
        match self {
            Self::Extents => Extent::len_max(unwritten),
            Self::Blocks => low32(indirect::run(at, size)),
        }
    }

    /// What a file block is mapped to. Of an indirect map the extent ends with its table, and begins at `at`.
    ///
    /// # Errors
    /// When a node can't be read or is corrupt.
    pub fn lookup<T: TreeRead>(self, tree: &T, at: LogicalBlock) -> Result<Mapping, T::Error> {
        match self {
            Self::Extents => extent::lookup(tree, at),
            Self::Blocks => indirect::lookup(&tree.root(), &tree.geometry(), at, |nr| tree.node(nr)),
        }
    }

    /// Visits every extent that ends after file block `from`, in order, until `visit` breaks.
    ///
    /// # Errors
    /// When a node can't be read or is corrupt; extents before it have been visited.
    pub fn for_each<T: TreeRead>(
        self,
        tree: &T,
        from: LogicalBlock,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), T::Error> {
        match self {
            Self::Extents => extent::for_each(tree, from, visit),
            Self::Blocks => {
                let table = |nr| tree.node(nr);
                indirect::for_each(&tree.root(), &tree.geometry(), from, table, visit)
            }
        }
    }

    /// Visits every node block with its depth (0: it names data), a parent before its children, until `visit`
    /// breaks.
    ///
    /// # Errors
    /// When a node can't be read or is corrupt; nodes before it have been visited.
    pub fn for_each_node<T: TreeRead>(
        self,
        tree: &T,
        visit: &mut dyn FnMut(BlockNr, u16) -> ControlFlow<()>,
    ) -> Result<(), T::Error> {
        match self {
            Self::Extents => extent::for_each_node(tree, visit),
            Self::Blocks => indirect::for_each_table(tree, visit),
        }
    }

    /// The extent that ends last; `None` if nothing is mapped.
    ///
    /// # Errors
    /// When a node can't be read or is corrupt.
    pub fn last<T: TreeRead>(self, tree: &T) -> Result<Option<Extent>, T::Error> {
        match self {
            Self::Extents => extent::last(tree),
            Self::Blocks => indirect::last(tree),
        }
    }

    /// Maps the blocks of `new`, no more than [`insert_max`](Self::insert_max) and a hole so far.
    ///
    /// # Errors
    /// As [`extent::insert`] or [`indirect::insert`].
    pub fn insert<T: TreeWrite>(self, tree: &mut T, new: Extent) -> Result<(), T::Error> {
        match self {
            Self::Extents => extent::insert(tree, new),
            Self::Blocks => indirect::insert(tree, new),
        }
    }

    /// Gives the blocks of an extent another place without any other change of the map, where it can: not if
    /// `old` is no whole entry of a tree, or lies in several tables. Returns whether it did.
    ///
    /// # Errors
    /// As [`extent::repoint`] or [`indirect::repoint`]; nothing has changed then.
    pub fn repoint<T: TreeWrite>(self, tree: &mut T, old: Extent, to: BlockNr) -> Result<bool, T::Error> {
        match self {
            Self::Extents => extent::repoint(tree, old, to),
            Self::Blocks => indirect::repoint(tree, old, to),
        }
    }

    /// Unmaps up to `limit` extents from the end of a range, and reports each run to `freed`.
    ///
    /// # Errors
    /// As [`extent::remove`] or [`indirect::remove`].
    pub fn remove<T: TreeWrite>(
        self,
        tree: &mut T,
        from: LogicalBlock,
        to_exclusive: u64,
        limit: usize,
        freed: &mut dyn FnMut(BlockNr, u32, LogicalBlock),
    ) -> Result<Progress, T::Error> {
        match self {
            Self::Extents => extent::remove(tree, from, to_exclusive, limit, freed),
            Self::Blocks => indirect::remove(tree, from, to_exclusive, limit, freed),
        }
    }
}
