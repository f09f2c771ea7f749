//! How much the format can number.

use hectare_units::BlockSize;

/// Blocks that there can be: extents number them with 48 bits.
pub(crate) const BLOCKS_MAX: u64 = (1 << 48) - 1;

/// Bits in a bitmap that may be used: counts of a 32-byte descriptor have 16 bits.
const CLUSTERS_PER_GROUP_MAX: u32 = 65528;

/// The most clusters of a group: what its bitmap counts.
pub(crate) fn clusters_per_group_max(block_size: BlockSize) -> u32 {
    CLUSTERS_PER_GROUP_MAX.min(8 * block_size.get())
}
