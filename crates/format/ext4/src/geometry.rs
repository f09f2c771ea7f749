//! Computes where things lie: groups, superblock copies, descriptor blocks, inode slots.
//!
//! A volume is divided into groups of `clusters_per_group` clusters. Some groups begin with a copy of the
//! superblock and of the group descriptors ("base metadata"); bitmaps and inode tables lie where the
//! descriptors say. All of this follows from a few numbers of the superblock, and the same arithmetic serves
//! the formatter, the engine and the reports. Everything here is pure and assumes numbers validated by
//! [`crate::superblock`].
//!
//! Hazard: `first_data_block` is 1 only with 1 KiB blocks without bigalloc; the group boundaries, but not the
//! byte offset of the primary superblock (always 1024), shift with it.

use crate::feature::{Compat, Features, Incompat, RoCompat};
use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, ClusterNr, Clusters, GroupNr, InodeNr, usize_of};

/// The bytes before the primary superblock, and its size.
pub const SUPERBLOCK_OFFSET: Bytes = Bytes::new(1024);

/// The shape of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of a block.
    pub block_size: BlockSize,
    /// log2 of the blocks in a cluster; 0 unless bigalloc.
    pub cluster_ratio_shift: u32,
    /// The first block that belongs to a group: 0 or 1.
    pub first_data_block: u32,
    /// Blocks on the volume, the first data block's predecessors included.
    pub blocks_count: Blocks,
    /// Clusters in a full group, at most 8 times the block size.
    pub clusters_per_group: u32,
    /// Inodes in a group, a multiple of 8 and at most 8 times the block size.
    pub inodes_per_group: u32,
    /// Bytes of an inode slot: a power of two from 128 to the block size.
    pub inode_size: u32,
    /// Bytes of a group descriptor: 32, or 64 and more with `64bit`.
    pub desc_size: u32,
    /// Descriptor blocks kept free for growing after the descriptors of every copy.
    pub reserved_gdt_blocks: u32,
    /// The first descriptor block that lies in its own meta group.
    pub first_meta_bg: u32,
    /// log2 of the groups whose metadata lies together; 0 without `flex_bg`.
    pub flex_shift: u32,
    /// Groups with backup superblocks under `sparse_super2`; 0 for none.
    pub backup_groups: [u32; 2],
    /// The features that shape the layout.
    pub features: Features,
}

impl Geometry {
    /// Number of groups.
    ///
    /// # Panics
    /// If there are more than 2^32 - 1, which the superblock's validation excludes.
    #[must_use]
    pub fn groups(&self) -> u32 {
        let blocks = self.blocks_count.get() - u64::from(self.first_data_block);
        u32::try_from(blocks.div_ceil(u64::from(self.blocks_per_group()))).expect("validated group count")
    }

    /// Blocks in a full group.
    #[must_use]
    pub fn blocks_per_group(&self) -> u32 {
        self.clusters_per_group << self.cluster_ratio_shift
    }

    /// The group's first block.
    #[must_use]
    pub fn first_block(&self, group: GroupNr) -> BlockNr {
        BlockNr::new(
            u64::from(self.first_data_block) + u64::from(group.get()) * u64::from(self.blocks_per_group()),
        )
    }

    /// Blocks of the group; fewer than [`Self::blocks_per_group`] only in the last.
    #[must_use]
    pub fn blocks_in(&self, group: GroupNr) -> u32 {
        let rest = self.blocks_count.get() - self.first_block(group).get();
        u32::try_from(rest.min(u64::from(self.blocks_per_group()))).expect("bounded by the group's size")
    }

    /// Clusters of the group, a partial last one included.
    #[must_use]
    pub fn clusters_in(&self, group: GroupNr) -> u32 {
        self.blocks_in(group).div_ceil(1 << self.cluster_ratio_shift)
    }

    /// The group that holds a block; `None` for blocks before the first group or beyond the end.
    #[must_use]
    pub fn group_of(&self, block: BlockNr) -> Option<GroupNr> {
        let first = u64::from(self.first_data_block);
        if block.get() < first || block.get() >= self.blocks_count.get() {
            return None;
        }
        u32::try_from((block.get() - first) / u64::from(self.blocks_per_group())).ok().map(GroupNr::new)
    }

    /// Blocks in a cluster.
    #[must_use]
    pub fn cluster_blocks(&self) -> u32 {
        1 << self.cluster_ratio_shift
    }

    /// Bytes in a cluster.
    #[must_use]
    pub fn cluster_bytes(&self) -> u64 {
        self.block_size.bytes().get() << self.cluster_ratio_shift
    }

    /// All clusters of the volume.
    #[must_use]
    pub fn clusters_count(&self) -> Clusters {
        let blocks = self.blocks_count.get() - u64::from(self.first_data_block);
        Clusters::new(blocks.div_ceil(u64::from(self.cluster_blocks())))
    }

    /// The cluster that holds a block (which must not lie before the first data block).
    #[must_use]
    pub fn cluster_of(&self, block: BlockNr) -> ClusterNr {
        ClusterNr::new((block.get() - u64::from(self.first_data_block)) >> self.cluster_ratio_shift)
    }

    /// The first block of a cluster.
    #[must_use]
    pub fn cluster_start(&self, cluster: ClusterNr) -> BlockNr {
        BlockNr::new((cluster.get() << self.cluster_ratio_shift) + u64::from(self.first_data_block))
    }

    /// Descriptors in a block.
    #[must_use]
    pub fn descs_per_block(&self) -> u32 {
        self.block_size.get() / self.desc_size
    }

    /// Blocks that the descriptors of all groups fill.
    #[must_use]
    pub fn desc_blocks(&self) -> u32 {
        self.groups().div_ceil(self.descs_per_block())
    }

    /// Whether the group begins with a copy of the superblock.
    #[must_use]
    pub fn has_super(&self, group: GroupNr) -> bool {
        let nr = group.get();
        if nr == 0 {
            return true;
        }
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&nr);
        }
        if !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) || nr == 1 {
            return true;
        }
        nr % 2 == 1 && [3, 5, 7].into_iter().any(|base| is_power_of(nr, base))
    }

    /// Whether the descriptor block with this index lies in its own meta group.
    fn in_meta_group(&self, desc_block: u32) -> bool {
        self.features.incompat.contains(Incompat::META_BG) && desc_block >= self.first_meta_bg
    }

    /// Descriptor blocks in every full copy: all of them, or those before the meta groups.
    #[must_use]
    pub fn old_desc_blocks(&self) -> u32 {
        if self.features.incompat.contains(Incompat::META_BG) {
            self.first_meta_bg.min(self.desc_blocks())
        } else {
            self.desc_blocks()
        }
    }

    /// Where the primary copy of a descriptor block lies.
    #[must_use]
    pub fn desc_block(&self, index: u32) -> BlockNr {
        if !self.in_meta_group(index) {
            return BlockNr::new(self.super_block(GroupNr::new(0)).get() + 1 + u64::from(index));
        }
        let group = GroupNr::new(index * self.descs_per_block());
        self.meta_desc_place(group)
    }

    /// Where a group that holds a copy of a meta group's descriptor block holds it.
    fn meta_desc_place(&self, group: GroupNr) -> BlockNr {
        let first = self.first_block(group);
        let after_super = if self.has_super(group) { self.super_block(group) + Blocks::ONE } else { first };
        if after_super.get() > first.get() { after_super } else { first }
    }

    /// The block that holds the group's superblock copy. In group 0 the superblock is at byte 1024, which
    /// with 1 KiB blocks is block 1 even where the first data block is 0 (bigalloc).
    #[must_use]
    pub fn super_block(&self, group: GroupNr) -> BlockNr {
        if group.get() == 0 { self.block_size.block_at(SUPERBLOCK_OFFSET) } else { self.first_block(group) }
    }

    /// The copies of a meta group's descriptor block beside the primary one; none for a block that lies in
    /// the full copies, which follow the superblock copies.
    #[must_use]
    pub fn desc_block_backups(&self, index: u32) -> Vec<BlockNr> {
        if !self.in_meta_group(index) {
            return Vec::new();
        }
        let per = self.descs_per_block();
        let first = index * per;
        let last = per - 1;
        // Meta groups of one or two groups have fewer copies than three.
        [Some(1).filter(|second| *second < last), Some(last).filter(|last| *last > 0)]
            .into_iter()
            .flatten()
            .filter_map(|within| first.checked_add(within))
            .filter(|nr| *nr < self.groups())
            .map(|nr| self.meta_desc_place(GroupNr::new(nr)))
            .collect()
    }

    /// Every place where a descriptor block lies, the primary one first: in its meta group, or in group 0 and
    /// after the superblock copies.
    pub fn desc_block_copies(&self, index: u32) -> impl Iterator<Item = BlockNr> + '_ {
        let copied = !self.in_meta_group(index);
        let groups = if copied { 1..self.groups() } else { 0..0 };
        let per = self.descs_per_block();
        // In a meta group nothing but its own descriptors follows a superblock.
        let holds = move |group: &GroupNr| self.has_super(*group) && !self.in_meta_group(group.get() / per);
        let after_supers = groups.map(GroupNr::new).filter(holds);
        let after_super = move |group| self.super_block(group) + Blocks::new(u64::from(index) + 1);
        std::iter::once(self.desc_block(index))
            .chain(self.desc_block_backups(index))
            .chain(after_supers.map(after_super))
    }

    /// Blocks from the start of the group that its base metadata takes: superblock copy, descriptor blocks,
    /// reserved descriptor blocks. In group 0 of a volume with 1 KiB blocks whose first data block is 0, the
    /// boot block before the superblock is counted too.
    #[must_use]
    pub fn base_meta_blocks(&self, group: GroupNr) -> u32 {
        let has_super = self.has_super(group);
        let boot = if group.get() == 0 {
            u32::try_from(self.super_block(group).get()).expect("0 or 1") - self.first_data_block
        } else {
            0
        };
        let base = boot + u32::from(has_super);
        let per = self.descs_per_block();
        let meta_index = group.get() / per;
        if !self.in_meta_group(meta_index) {
            return if has_super { base + self.old_desc_blocks() + self.reserved_gdt_blocks } else { base };
        }
        let within = group.get() % per;
        base + u32::from(within == 0 || within == 1 || within == per - 1)
    }

    /// Inodes on the volume.
    #[must_use]
    pub fn inodes_count(&self) -> u32 {
        self.inodes_per_group.saturating_mul(self.groups())
    }

    /// Inodes in a block of the inode table.
    #[must_use]
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size.get() / self.inode_size
    }

    /// Blocks of one group's inode table.
    #[must_use]
    pub fn itable_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// The group an inode lives in and its index there; `None` beyond the last inode.
    #[must_use]
    pub fn inode_slot(&self, inode: InodeNr) -> Option<(GroupNr, u32)> {
        if inode.get() == 0 || inode.get() > self.inodes_count() {
            return None;
        }
        let index = inode.get() - 1;
        Some((GroupNr::new(index / self.inodes_per_group), index % self.inodes_per_group))
    }

    /// The inode in slot `index` of a group.
    #[must_use]
    pub fn inode_at(&self, group: GroupNr, index: u32) -> InodeNr {
        InodeNr::new(group.get() * self.inodes_per_group + index + 1)
    }

    /// Groups whose metadata lies together.
    #[must_use]
    pub fn flex_groups(&self) -> u32 {
        1 << self.flex_shift
    }

    /// The size of the volume.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.blocks_count.bytes(self.block_size)
    }

    /// Bytes of a block bitmap that are covered by its checksum.
    #[must_use]
    pub fn block_bitmap_bytes(&self) -> usize {
        usize_of(self.clusters_per_group / 8)
    }

    /// Bytes of an inode bitmap that are covered by its checksum.
    #[must_use]
    pub fn inode_bitmap_bytes(&self) -> usize {
        usize_of(self.inodes_per_group / 8)
    }
}

fn is_power_of(nr: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(nr) {
        power *= u64::from(base);
    }
    power == u64::from(nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Geometry {
        Geometry {
            block_size: BlockSize::KIB4,
            cluster_ratio_shift: 0,
            first_data_block: 0,
            blocks_count: Blocks::new(100 * 32768 + 5),
            clusters_per_group: 32768,
            inodes_per_group: 8192,
            inode_size: 256,
            desc_size: 64,
            reserved_gdt_blocks: 7,
            first_meta_bg: 0,
            flex_shift: 4,
            backup_groups: [0, 0],
            features: Features { ro_compat: RoCompat::SPARSE_SUPER, ..Features::default() },
        }
    }

    #[test]
    fn backups_lie_in_powers_of_3_5_7() {
        let geometry = small();
        let with: Vec<u32> = (0..101).filter(|g| geometry.has_super(GroupNr::new(*g))).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
    }

    #[test]
    fn base_metadata_counts_superblock_descriptors_and_reserve() {
        let geometry = small();
        assert_eq!(geometry.groups(), 101);
        assert_eq!(geometry.desc_blocks(), 2);
        assert_eq!(geometry.base_meta_blocks(GroupNr::new(1)), 1 + 2 + 7);
        assert_eq!(geometry.base_meta_blocks(GroupNr::new(2)), 0);
        assert_eq!(geometry.blocks_in(GroupNr::new(100)), 5);
    }

    #[test]
    fn meta_groups_hold_their_descriptors_three_times() {
        let mut geometry = small();
        geometry.features.incompat |= Incompat::META_BG;
        geometry.reserved_gdt_blocks = 0;
        assert_eq!(geometry.desc_block(0), BlockNr::new(1));
        assert_eq!(geometry.desc_block(1), BlockNr::new(64 * 32768));
        assert_eq!(geometry.base_meta_blocks(GroupNr::new(0)), 2);
        assert_eq!(geometry.base_meta_blocks(GroupNr::new(63)), 1);
        assert_eq!(geometry.base_meta_blocks(GroupNr::new(62)), 0);
        assert_eq!(geometry.desc_block_backups(1), [BlockNr::new(65 * 32768)]);
    }

    #[test]
    fn one_kib_bigalloc_counts_its_boot_block() {
        let mut geometry = small();
        geometry.block_size = BlockSize::KIB1;
        geometry.cluster_ratio_shift = 4;
        geometry.clusters_per_group = 8192;
        geometry.reserved_gdt_blocks = 0;
        assert_eq!(geometry.super_block(GroupNr::new(0)), BlockNr::new(1));
        assert_eq!(geometry.desc_block(0), BlockNr::new(2));
        assert_eq!(geometry.base_meta_blocks(GroupNr::new(0)), 2 + geometry.desc_blocks());
    }
}
