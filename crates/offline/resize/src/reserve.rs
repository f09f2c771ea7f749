//! The resize inode: keeps the reserved descriptor blocks, of which every copy of the descriptors has some
//! behind it.
//!
//! Its map is a table of tables (`i_block[13]`): slot *n* of the first names the reserved block that would
//! be descriptor block *n*, of the primary copy; and that block names those of the same index in every
//! backup. Around a change of shape the inode is emptied before and filled again after it.

use crate::error::{Error, Result};
use crate::inodes;
use crate::volume::Volume;
use hectare_ext4::feature::Compat;
use hectare_ext4::inode::Inode;
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockNr, GroupNr, InodeNr, low32, u64_of};

/// The resize inode.
const RESIZE_INODE: InodeNr = InodeNr::new(7);
/// The slot of `i_block` that names the table of tables, in bytes.
const DOUBLE_INDIRECT: std::ops::Range<usize> = 52..56;

/// Empties the resize inode, and gives its first table's block, which is free now.
pub(crate) fn empty(volume: &mut Volume) -> Result<Option<BlockNr>> {
    if !volume.sb.features().compat.contains(Compat::RESIZE_INODE) {
        return Ok(None);
    }
    let inode = inodes::read(volume, RESIZE_INODE)?;
    inodes::clear(volume, RESIZE_INODE)?;
    let table = inode.block[DOUBLE_INDIRECT].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if table == 0 {
        return Ok(None);
    }
    let table = BlockNr::new(table.into());
    let cluster = volume.geometry().cluster_of(table).get();
    volume.mark(cluster..cluster + 1, false)?;
    Ok(Some(table))
}

/// Fills the resize inode for the reserve that the superblock says, with its table in `table` if there is
/// one that is on the volume still.
pub(crate) fn fill(volume: &mut Volume, table: Option<BlockNr>, now: Timestamp) -> Result<()> {
    if !volume.sb.features().compat.contains(Compat::RESIZE_INODE) {
        return Ok(());
    }
    let geometry = volume.geometry().clone();
    let per_block = u64::from(geometry.block_size.get() / 4);
    let group_blocks = u64::from(geometry.blocks_per_group());
    let backups: Vec<u64> = (1..geometry.groups())
        .filter(|nr| geometry.has_super(GroupNr::new(*nr)))
        .map(|nr| u64::from(nr) * group_blocks)
        .collect();
    let first = geometry.super_block(GroupNr::new(0)).get() + 1;
    let mut tables = vec![0; geometry.block_size.len()];
    for i in 0..u64::from(geometry.reserved_gdt_blocks) {
        let index = u64::from(geometry.desc_blocks()) + i;
        let mut names = vec![0; geometry.block_size.len()];
        for (slot, distance) in backups.iter().enumerate() {
            put(&mut names, slot, first + distance + index);
        }
        put(&mut tables, hectare_units::index_of(index % per_block), first + index);
        volume.write(BlockNr::new(first + index), &names)?;
    }
    let at = table_place(volume, table)?;
    volume.write(at, &tables)?;
    let mut inode = Inode::new(0o100_600, now, 0, &volume.sb);
    inode.links = 1;
    inode.size = (12 + per_block + per_block * per_block) << geometry.block_size.shift();
    let held = 1 + u64::from(geometry.reserved_gdt_blocks) * (1 + u64_of(backups.len()));
    inode.sectors = held << (geometry.cluster_ratio_shift + geometry.block_size.shift() - 9);
    inode.block[DOUBLE_INDIRECT].copy_from_slice(&low32(at.get()).to_le_bytes());
    inodes::write(volume, RESIZE_INODE, &inode)
}

/// A block for the table of tables: the one it had, else the first that is free.
fn table_place(volume: &mut Volume, table: Option<BlockNr>) -> Result<BlockNr> {
    let end = volume.geometry().clusters_count().get().min(u64::from(u32::MAX));
    if let Some(table) = table {
        let cluster = volume.geometry().cluster_of(table).get();
        if cluster < end && !volume.is_used(cluster)? {
            volume.mark(cluster..cluster + 1, true)?;
            return Ok(table);
        }
    }
    let run = volume.free_run(0..end, 1)?;
    let run = run.ok_or_else(|| Error::NoSpace { what: "the resize inode".into(), missing: 1 })?;
    volume.take(run.clone())?;
    Ok(volume.geometry().cluster_start(hectare_units::ClusterNr::new(run.start)))
}

fn put(table: &mut [u8], slot: usize, block: u64) {
    if let Some(entry) = table.get_mut(4 * slot..4 * slot + 4) {
        entry.copy_from_slice(&low32(block).to_le_bytes());
    }
}
