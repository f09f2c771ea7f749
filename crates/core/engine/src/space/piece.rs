//! Pieces of files: neighbouring blocks that are mapped together, and the space they bring.

use crate::state::State;
use crate::stores::inode_cache::CachedInode;
use crate::stores::quotas::Claim;
use hectare_alloc::{Reservation, Window};
use hectare_ext4::extent::Extent;
use hectare_units::{BlockNr, Clusters, LogicalBlock};
use std::sync::Arc;

/// The free space that a block of metadata may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// What is available to all.
    Open,
    /// All of it, reserved clusters included.
    Kept,
}

/// File blocks to be mapped together: their mapping, and the space they bring, if it is new.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The mapping; its state is set when it is published.
    pub(crate) extent: Extent,
    /// The new space; `None` if the blocks lie in a cluster the file has already (`bigalloc`).
    space: Option<Reservation>,
    /// What it counts for until it is mapped, if the volume has quotas.
    quota: Option<Claim>,
}

impl Piece {
    /// Blocks from `logical` on, in a cluster that holds other blocks of the file.
    pub(super) fn shared(logical: LogicalBlock, len: u32, physical: BlockNr) -> Self {
        Self { extent: Extent { logical, len, physical, unwritten: false }, space: None, quota: None }
    }

    /// Blocks with space that the caller chose.
    pub(crate) fn held(extent: Extent, space: Reservation) -> Self {
        Self { extent, space: Some(space), quota: None }
    }

    /// The same, with what is claimed for it.
    pub(super) fn claimed(self, quota: Option<Claim>) -> Self {
        Self { quota, ..self }
    }

    /// The mapping, the space it brings, and what is claimed for it.
    pub(crate) fn into_parts(self) -> (Extent, Option<Reservation>, Option<Claim>) {
        (self.extent, self.space, self.quota)
    }
}

/// The purpose of space.
#[derive(Clone, Copy)]
pub(crate) enum Use<'a> {
    /// A directory's or a symbolic link's blocks.
    Names,
    /// A file's data.
    Data {
        /// The preallocation for what the file will write next.
        window: &'a Arc<Window>,
        /// Whether space as such was requested.
        explicit: bool,
        /// Whether the file is not open any more.
        closed: bool,
    },
}

impl<'a> Use<'a> {
    /// For what a file writes.
    pub(crate) fn data(inode: &'a CachedInode) -> Self {
        Self::Data { window: inode.window(), explicit: false, closed: inode.is_left() }
    }

    /// For what a file is allocated before it writes.
    pub(crate) fn explicit(inode: &'a CachedInode) -> Self {
        Self::Data { window: inode.window(), explicit: true, closed: false }
    }
}

/// The number of 512-byte sectors of `clusters`.
pub(crate) fn cluster_sectors(state: &State, clusters: Clusters) -> u64 {
    let geometry = state.geometry();
    clusters.get() << (geometry.cluster_ratio_shift + geometry.block_size.shift() - 9)
}
