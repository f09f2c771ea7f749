//! Bounds how much of a file one transaction may change, so that its metadata is a bounded number of blocks.
//!
//! A block bitmap and its group's descriptor are blocks like others: freeing an extent dirties those of every
//! group it lies in (one of 128 MiB lies in two groups of 4 KiB blocks, in five of 1 KiB blocks, and in more
//! where groups were made small), making or freeing a tree node those of its group. Descriptors of
//! neighbouring groups share blocks; those of nodes count one each.

use crate::state::State;
use hectare_ext4::extent::{DEPTH_MAX, WRITTEN_MAX};

/// A node that is made or freed: its bitmap and descriptor, and the node itself.
const NODE: u32 = 3;

/// Levels of blocks below a root.
const LEVELS: u32 = 5;

const _: () = assert!(DEPTH_MAX == 5);

/// One more entry in a tree that is full on every level: a sibling on each, and one more level.
const SPLIT: u32 = NODE * (LEVELS + 1);

/// The nodes above a run of fewer neighbouring leaves than a node has entries: two on each level, which may
/// all become empty.
const ABOVE: u32 = 2 * NODE * (LEVELS - 1);

/// The inode.
const INODE: u32 = 1;

/// What the extents removed in one transaction may dirty, except nodes above and splits.
const REMOVED: u32 = 90;

/// Leaves moved in one transaction.
pub(super) const SHIFT_LEAVES: u32 = 16;

/// Extents whose state changes in one transaction: each may have to be split, and one twice.
pub(super) const MARK_EXTENTS: u32 = 5;

/// Blocks that moving [`SHIFT_LEAVES`] leaves may dirty: these, the nodes above, a split, and a root that
/// becomes lower.
pub(super) const SHIFT_CREDITS: u32 = SHIFT_LEAVES + 2 * (LEVELS - 1) + SPLIT + 2 * LEVELS + INODE;

/// Blocks that marking [`MARK_EXTENTS`] may dirty.
pub(super) const MARK_CREDITS: u32 =
    MARK_EXTENTS * (1 + SPLIT) + SPLIT + 2 * (LEVELS - 1) + 2 * LEVELS + INODE;

// A handle that requests more could never start with a small log.
const _: () = assert!(MARK_CREDITS < 200 && REMOVED + ABOVE + SPLIT + INODE + SHIFT_CREDITS - SPLIT < 200);

/// How many extents one transaction removes.
pub(crate) fn remove_extents(state: &State) -> usize {
    hectare_units::usize_of((REMOVED / extent(state)).max(1))
}

/// Blocks that removing that many may dirty.
pub(crate) fn remove_credits(state: &State) -> u32 {
    REMOVED.max(extent(state)) + ABOVE + SPLIT + INODE
}

/// Blocks that removing them, and then moving what follows, may dirty.
pub(super) fn collapse_credits(state: &State) -> u32 {
    remove_credits(state) + SHIFT_CREDITS - SPLIT
}

/// Blocks that removing one extent may dirty: its leaf, and the bitmaps and descriptors of its groups.
fn extent(state: &State) -> u32 {
    let geometry = state.geometry();
    let group_blocks = u64::from(geometry.clusters_per_group) << geometry.cluster_ratio_shift;
    let groups = hectare_units::low32(u64::from(WRITTEN_MAX).div_ceil(group_blocks)) + 1;
    let per_block = (geometry.block_size.get() / geometry.desc_size.max(1)).max(1);
    NODE + groups + groups.div_ceil(per_block) + 1
}
