//! Counts the space of a volume as `statfs` reports it.

use crate::error::Result;
use crate::space::allocator;
use crate::state::Core;
use hectare_units::{BlockSize, Blocks};

/// How full a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Size of a block.
    pub block_size: BlockSize,
    /// Blocks for content: all, less the format's fixed overhead.
    pub blocks: Blocks,
    /// Free blocks.
    pub free: Blocks,
    /// Free blocks that not only root may take, without those reserved for the blocks of trees.
    pub available: Blocks,
    /// Free blocks that this volume may allocate: those of root, too, if it was opened so
    /// ([`OpenOptions::use_reserved_blocks`](crate::OpenOptions)).
    pub usable: Blocks,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// The longest name in bytes.
    pub name_max: u32,
    /// A number for the volume, from its UUID.
    pub id: u64,
}

/// How full the volume is.
pub(crate) fn statfs(core: &Core) -> Result<StatFs> {
    let geometry = core.state.geometry();
    let shift = geometry.cluster_ratio_shift;
    // What waits for a commit or is preallocated counts as free: an allocation that finds no space
    // commits and discards.
    let counts = core.state.allocator.counts();
    let free = (counts.durable_free() - counts.set_aside).saturating_sub(core.state.delay.promised());
    let free = Blocks::new(free.get() << shift);
    let uuid = core.state.sb.uuid();
    let not_kept =
        free.saturating_sub(Blocks::new(allocator::kept(&core.state.sb, &core.state.options).get() << shift));
    let available = not_kept.saturating_sub(core.state.sb.reserved_blocks());
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| uuid[at + i]));
    Ok(StatFs {
        block_size: geometry.block_size,
        blocks: geometry.blocks_count.saturating_sub(overhead(core)?),
        free,
        available,
        usable: if core.state.options.use_reserved_blocks { not_kept } else { available },
        inodes: geometry.inodes_count(),
        free_inodes: core.state.groups.free_inodes(),
        name_max: 255,
        id: half(0) ^ half(8),
    })
}

/// Blocks that the format takes before any file: superblocks, descriptors, bitmaps, inode tables,
/// journal. The superblock's own count, if it has one.
fn overhead(core: &Core) -> Result<Blocks> {
    let geometry = core.state.geometry();
    let stored = u64::from(core.state.sb.raw().s_overhead_clusters.get());
    if (1..=geometry.clusters_count().get()).contains(&stored) {
        return Ok(Blocks::new(stored << geometry.cluster_ratio_shift));
    }
    let fixed = u64::from(geometry.first_data_block);
    let base: u64 = (0..geometry.groups())
        .map(|nr| u64::from(geometry.base_meta_blocks(hectare_units::GroupNr::new(nr))))
        .sum();
    let tables = u64::from(geometry.groups()) * (2 + u64::from(geometry.itable_blocks()));
    let journal = match core.state.sb.journal_inode() {
        Some(nr) => core.state.inode(nr)?.get().size >> geometry.block_size.shift(),
        None => 0,
    };
    Ok(Blocks::new(fixed + base + tables + journal))
}
