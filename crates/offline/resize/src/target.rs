//! The superblock of the same volume in another size.
//!
//! What follows from the number of blocks is derived anew: groups, inodes, reserved blocks, the groups with
//! backups under `sparse_super2`, and how many descriptor blocks are reserved. The room of the descriptors in
//! every copy stays what it is as long as it suffices: what the descriptors don't fill is the reserve. Where
//! it does not suffice, further descriptors go to meta groups (`meta_bg`), which moves nothing; a volume of
//! revision 0, which can't have that feature, gets longer copies instead.

use crate::error::{Error, Result};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::raw;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{Blocks, GroupNr, high32, low16, low32};

/// Whether block numbers have 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Width {
    /// As they have now, or more if the size needs it.
    #[default]
    AsNeeded,
    /// 64 (feature `64bit`).
    Wide,
    /// 32.
    Narrow,
}

impl Width {
    /// What a superblock has.
    pub(crate) fn of(sb: &SuperBlock) -> Self {
        if sb.features().incompat.contains(Incompat::BIT64) { Self::Wide } else { Self::Narrow }
    }
}

/// Bytes of a descriptor with and without `64bit`.
const WIDE: u16 = 64;
/// Blocks that a last group must have beside its metadata, as in mke2fs.
const LAST_GROUP_ROOM: u64 = 50;

/// The superblock for `blocks` blocks or a few fewer, if the last group would be too small to be of use.
pub(crate) fn superblock(old: &SuperBlock, blocks: Blocks, width: Width) -> Result<SuperBlock> {
    let geometry = old.geometry();
    let ratio = u64::from(geometry.cluster_blocks());
    let mut blocks = Blocks::new(blocks.get() / ratio * ratio);
    loop {
        let sb = match sized(old, blocks, width) {
            // The last group may be too short even for its copies of superblock and descriptors.
            Err(Error::Corrupt(_)) if end_of_group(geometry, blocks) < blocks => {
                blocks = end_of_group(geometry, blocks);
                continue;
            }
            Err(Error::Corrupt(_)) => {
                return Err(Error::Size("the first group would not hold its own metadata".into()));
            }
            other => other?,
        };
        match useless_end(sb.geometry()) {
            Some(rest) if blocks.get() - rest > u64::from(geometry.first_data_block) => {
                blocks = Blocks::new(blocks.get() - rest);
            }
            Some(_) => return Err(Error::Size("the first group would not hold its own metadata".into())),
            None => return Ok(sb),
        }
    }
}

/// The blocks of the whole groups among the first `blocks`, of which there are some; else `blocks`.
fn end_of_group(geometry: &Geometry, blocks: Blocks) -> Blocks {
    let (first, per) = (u64::from(geometry.first_data_block), u64::from(geometry.blocks_per_group()));
    match blocks.get().saturating_sub(first) / per {
        0 => blocks,
        groups => Blocks::new(first + groups * per),
    }
}

/// Blocks of a last group that has no room for more than its metadata.
fn useless_end(geometry: &Geometry) -> Option<u64> {
    let last = GroupNr::new(geometry.groups() - 1);
    let blocks = u64::from(geometry.blocks_in(last));
    let metadata = u64::from(geometry.base_meta_blocks(last)) + 2 + u64::from(geometry.itable_blocks());
    let needed = metadata + if last.get() > 0 { LAST_GROUP_ROOM } else { 0 };
    let is_partial = last.get() == 0 || blocks < u64::from(geometry.blocks_per_group());
    (is_partial && blocks < needed).then_some(blocks)
}

fn sized(old: &SuperBlock, blocks: Blocks, width: Width) -> Result<SuperBlock> {
    let geometry = old.geometry();
    let first = u64::from(geometry.first_data_block);
    let groups = blocks.get().saturating_sub(first).div_ceil(u64::from(geometry.blocks_per_group()));
    let inodes = groups.checked_mul(u64::from(geometry.inodes_per_group));
    let (Ok(groups), Some(Ok(inodes))) = (u32::try_from(groups), inodes.map(u32::try_from)) else {
        let most = u64::from(u32::MAX) / u64::from(geometry.inodes_per_group.max(1));
        let reason = format!(
            "{blocks} blocks are {groups} groups of {} inodes, and a volume has at most 2^32 - 1, those of \
             {most} groups",
            geometry.inodes_per_group
        );
        return Err(Error::Size(reason));
    };
    if groups == 0 {
        return Err(Error::Size(format!("{blocks} blocks are no volume")));
    }
    let mut raw = *old.raw();
    set_width(&mut raw, old, blocks, width)?;
    raw.s_blocks_count_lo = low32(blocks.get()).into();
    raw.s_blocks_count_hi = high32(blocks.get()).into();
    raw.s_inodes_count = inodes.into();
    set_reserved(&mut raw, old, blocks);
    set_backups(&mut raw, old, groups);
    set_descriptors(&mut raw, old, groups)?;
    Ok(SuperBlock::from_raw(raw)?)
}

/// Turns `64bit` on or off.
fn set_width(raw: &mut raw::SuperBlock, old: &SuperBlock, blocks: Blocks, width: Width) -> Result<()> {
    let features = old.features();
    let is_wide = features.incompat.contains(Incompat::BIT64);
    let needs = blocks.get() > u64::from(u32::MAX);
    let wide = match width {
        Width::AsNeeded => is_wide || needs,
        Width::Wide => true,
        Width::Narrow if needs => {
            return Err(Error::Size(format!("{blocks} blocks need the feature 64bit")));
        }
        Width::Narrow => false,
    };
    if wide == is_wide {
        return Ok(());
    }
    if wide && !features.incompat.contains(Incompat::EXTENTS) {
        return Err(Error::Size("the feature 64bit needs the feature extent, which the volume lacks".into()));
    }
    let mut incompat = features.incompat;
    incompat.set(Incompat::BIT64, wide);
    raw.s_feature_incompat = incompat.bits().into();
    raw.s_desc_size = if wide { WIDE } else { 0 }.into();
    Ok(())
}

/// The blocks for root stay the same share.
fn set_reserved(raw: &mut raw::SuperBlock, old: &SuperBlock, blocks: Blocks) {
    let before = u128::from(old.geometry().blocks_count.get()).max(1);
    let share = u128::from(old.reserved_blocks().get()) * u128::from(blocks.get()) / before;
    let share = u64::try_from(share).expect("a share of the blocks");
    raw.s_r_blocks_count_lo = low32(share).into();
    raw.s_r_blocks_count_hi = high32(share).into();
}

/// Under `sparse_super2` group 1 has the first backup and the last group the second. A volume that had no group
/// for one gets it as soon as it has (of two groups only one has a backup, which mke2fs records as the second); one
/// that was made with fewer has as many as before.
fn set_backups(raw: &mut raw::SuperBlock, old: &SuperBlock, groups: u32) {
    if !old.features().compat.contains(Compat::SPARSE_SUPER2) {
        return;
    }
    let ([first, second], before) = (old.geometry().backup_groups, old.geometry().groups());
    let is_full = before == 1 || before == 2 && (first != 0 || second != 0);
    let (has_first, has_second) = (first != 0 || is_full, second != 0 || is_full);
    let first = u32::from(has_first && groups > 1);
    let second = if has_second && groups > 2 { groups - 1 } else { 0 };
    raw.s_backup_bgs = [first.into(), second.into()];
}

/// Where the descriptors go.
fn set_descriptors(raw: &mut raw::SuperBlock, old: &SuperBlock, groups: u32) -> Result<()> {
    let (geometry, features) = (old.geometry(), old.features());
    let wide = Incompat::from_bits_retain(raw.s_feature_incompat.get()).contains(Incompat::BIT64);
    let was_wide = features.incompat.contains(Incompat::BIT64);
    let desc_size = if wide == was_wide {
        geometry.desc_size
    } else if wide {
        WIDE.into()
    } else {
        32
    };
    let needed = groups.div_ceil(geometry.block_size.get() / desc_size);
    if features.incompat.contains(Incompat::META_BG) {
        raw.s_first_meta_bg = geometry.first_meta_bg.min(needed).into();
        return Ok(());
    }
    let room = geometry.old_desc_blocks() + geometry.reserved_gdt_blocks;
    if needed <= room || raw.s_rev_level.get() == 0 {
        let has_reserve = features.compat.contains(Compat::RESIZE_INODE);
        let most = geometry.block_size.get() / 4;
        let reserved = if has_reserve { room.saturating_sub(needed).min(most) } else { 0 };
        raw.s_reserved_gdt_blocks = low16(reserved.into()).into();
        return Ok(());
    }
    raw.s_feature_incompat = (raw.s_feature_incompat.get() | Incompat::META_BG.bits()).into();
    raw.s_feature_compat = (raw.s_feature_compat.get() & !Compat::RESIZE_INODE.bits()).into();
    raw.s_reserved_gdt_blocks = 0.into();
    raw.s_first_meta_bg = room.into();
    Ok(())
}

/// The same volume without reserved descriptor blocks.
pub(crate) fn without_reserve(old: &SuperBlock) -> Result<SuperBlock> {
    let mut raw = *old.raw();
    raw.s_feature_compat = (raw.s_feature_compat.get() & !Compat::RESIZE_INODE.bits()).into();
    raw.s_reserved_gdt_blocks = 0.into();
    Ok(SuperBlock::from_raw(raw)?)
}

/// The superblock with as many clusters of metadata more or fewer.
pub(crate) fn add_overhead(sb: &mut SuperBlock, before: u64, after: u64) {
    let counted = u64::from(sb.raw().s_overhead_clusters.get());
    if counted > 0 {
        sb.set_overhead_clusters((counted + after).saturating_sub(before));
    }
}

/// The most blocks that a volume with these features can have.
pub(crate) fn most_blocks(sb: &SuperBlock) -> Blocks {
    let geometry = sb.geometry();
    let groups = u64::from(u32::MAX) / u64::from(geometry.inodes_per_group.max(1));
    let by_inodes = groups.saturating_mul(u64::from(geometry.blocks_per_group()));
    let by_number = if sb.raw().s_rev_level.get() == 0 { u64::from(u32::MAX) } else { 1 << 48 };
    Blocks::new(by_inodes.saturating_add(u64::from(geometry.first_data_block)).min(by_number))
}

/// The superblock of a volume without reserved descriptor blocks, with the reserve of `full`.
pub(crate) fn with_reserve(bare: &SuperBlock, full: &SuperBlock) -> Result<SuperBlock> {
    let mut raw = *bare.raw();
    // Only this one: a journal on loan is none that `full` knows.
    raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::RESIZE_INODE.bits()).into();
    raw.s_reserved_gdt_blocks = full.raw().s_reserved_gdt_blocks;
    Ok(SuperBlock::from_raw(raw)?)
}

/// Descriptor blocks of `per_block` that the volume has when it has grown to 1024 times its size, but not
/// beyond 2^32 - 1 blocks: what mke2fs reserves.
pub(crate) fn growth_reserve(geometry: &Geometry, per_block: u32) -> u32 {
    let limit = u64::from(u32::MAX);
    let grown = geometry.blocks_count.get().saturating_mul(1024).min(limit);
    let groups = (grown - u64::from(geometry.first_data_block)).div_ceil(geometry.blocks_per_group().into());
    low32(groups.div_ceil(per_block.into()))
}
