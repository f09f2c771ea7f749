//! The overhead of a format, and what it leaves free: for `--explain-size` and for finding the smallest
//! size.

use super::layout::base_range;
use super::note::Note;
use super::options::FormatOptions;
use super::plan::Plan;
use super::system_inodes::FileBlocks;
use crate::error::Result;
use hectare_units::{Blocks, Bytes, GroupNr};

/// Blocks of each part of an empty volume. Parts that share a cluster are counted by their own blocks; what
/// rounding to clusters wastes is in [`Overhead::rounding`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overhead {
    /// All blocks.
    pub volume: Blocks,
    /// Superblock copies, and the boot block.
    pub superblocks: Blocks,
    /// Group descriptors, all copies.
    pub descriptors: Blocks,
    /// Descriptor blocks reserved for growing, all copies.
    pub reserved_descriptors: Blocks,
    /// Block and inode bitmaps.
    pub bitmaps: Blocks,
    /// Inode tables.
    pub inode_tables: Blocks,
    /// The journal.
    pub journal: Blocks,
    /// The orphan file.
    pub orphan_file: Blocks,
    /// Root directory, lost+found, MMP block, quota files, blocks of file maps.
    pub other: Blocks,
    /// Free blocks lost because only whole clusters can be taken.
    pub rounding: Blocks,
    /// What is left for files.
    pub free: Blocks,
    /// Of those, what only root may take.
    pub reserved_for_root: Blocks,
}

/// What a volume can hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Free blocks, in whole clusters.
    pub free_blocks: Blocks,
    /// Free inodes.
    pub free_inodes: u64,
    /// Size of a block.
    pub block_size: hectare_units::BlockSize,
    /// Size of a cluster in blocks.
    pub cluster_blocks: u32,
    /// Bytes of the device that the volume uses; fewer than it has where the end is left out.
    pub volume: Bytes,
    /// What was decided differently from what was asked.
    pub notes: Vec<Note>,
}

/// Returns what each part of a volume of `size` bytes takes.
///
/// # Errors
/// If no volume can be made of these options and size.
pub fn overhead(options: &FormatOptions, size: Bytes) -> Result<Overhead> {
    Plan::new(options, size, true)?.overhead()
}

/// Returns what a volume of `size` bytes can hold.
///
/// # Errors
/// If no volume can be made of these options and size.
pub fn capacity(options: &FormatOptions, size: Bytes) -> Result<Capacity> {
    let plan = Plan::new(options, size, true)?;
    let geometry = plan.geometry();
    Ok(Capacity {
        free_blocks: plan.free_blocks()?,
        free_inodes: u64::from(geometry.inodes_count()) + 1 - u64::from(plan.first_free_inode().get()),
        block_size: geometry.block_size,
        cluster_blocks: geometry.cluster_blocks(),
        volume: geometry.bytes(),
        notes: plan.notes().to_vec(),
    })
}

impl Plan {
    /// Returns what each part of the planned volume takes.
    ///
    /// # Errors
    /// If the metadata of a group does not fit.
    pub fn overhead(&self) -> Result<Overhead> {
        let (geometry, own) = (self.geometry(), self.own());
        let groups = geometry.groups();
        let mut out = Overhead { volume: geometry.blocks_count, ..Overhead::default() };
        let mut base = 0;
        for group in (0..groups).map(GroupNr::new) {
            let blocks = base_range(geometry, group);
            base += blocks.end - blocks.start;
            if geometry.has_super(group) {
                out.superblocks += Blocks::ONE;
                out.reserved_descriptors += Blocks::new(geometry.reserved_gdt_blocks.into());
            }
        }
        // The block before the superblock of 1 KiB volumes, inside the first group or before it.
        let boot = geometry.super_block(GroupNr::new(0)).get();
        out.descriptors = Blocks::new(
            base + u64::from(geometry.first_data_block)
                - boot
                - out.superblocks.get()
                - out.reserved_descriptors.get(),
        );
        out.superblocks += Blocks::new(boot);
        out.bitmaps = Blocks::new(2 * u64::from(groups));
        out.inode_tables = Blocks::new(u64::from(groups) * u64::from(geometry.itable_blocks()));
        let len = |place: Option<&FileBlocks>| Blocks::new(place.map_or(0, FileBlocks::len));
        out.journal = len(own.journal.as_ref().map(|(place, _)| place));
        out.orphan_file = len(own.orphan_file.as_ref().map(|(_, place)| place));
        let taken: u64 = own.used.iter().map(|range| range.end - range.start).sum();
        out.other = Blocks::new(taken) - out.journal - out.orphan_file;
        out.free = self.free_blocks()?;
        out.reserved_for_root = self.superblock().reserved_blocks();
        let counted = out.superblocks
            + out.descriptors
            + out.reserved_descriptors
            + out.bitmaps
            + out.inode_tables
            + out.journal
            + out.orphan_file
            + out.other
            + out.free;
        out.rounding = out.volume.saturating_sub(counted);
        Ok(out)
    }

    /// Free blocks of the empty volume, as its superblock counts them.
    fn free_blocks(&self) -> Result<Blocks> {
        let geometry = self.geometry();
        let own = crate::ext4::layout::total(self.own().used.iter());
        let clusters = geometry.clusters_count().get() - self.layout().metadata_clusters()?;
        Ok(Blocks::new((clusters << geometry.cluster_ratio_shift) - own))
    }
}
