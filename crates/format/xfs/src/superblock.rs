//! Superblocks: one in each group, of which the first counts.
//!
//! The copies differ from the first on purpose: they are marked as in progress, so that none is taken for a
//! volume on its own, and have the counts of a volume without inodes. The first is in use, so written last.

use crate::checksum::seal;
use crate::raw;
use crate::volume::Volume;
use hectare_units::{Blocks, GroupNr, low8, low16};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros};

/// `sb_magicnum`: "XFSB".
pub const MAGIC: u32 = 0x5846_5342;
/// Inodes in use in a fresh volume: the root directory, the bitmap and the summary of the realtime section.
pub const USED_INODES: u32 = 3;
/// An inode number or block number that means none.
const NONE: u64 = u64::MAX;

/// `sb_versionnum`: version 5 with link counts of 32 bits, aligned inodes, log version 2, unwritten extents,
/// directories of version 2, and more bits.
const VERSION: u16 = 5 | 0x0020 | 0x0080 | 0x0400 | 0x1000 | 0x2000 | 0x8000;
/// Data is aligned to the stripe.
const VERSION_DATA_ALIGNED: u16 = 0x0100;
/// Sectors are larger than 512 bytes.
const VERSION_SECTOR: u16 = 0x0800;
/// `sb_features2`: counters lie in the groups, attributes of version 2, project numbers of 32 bits,
/// checksums.
const FEATURES2: u32 = 0x0002 | 0x0008 | 0x0080 | 0x0100;
/// Bytes of an extent of the realtime section that is not there, at least.
const REALTIME_EXTENT: u32 = 4096;

/// Which inode numbers and counts a superblock has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The first: all of them.
    Primary,
    /// A copy that names the root directory, for repair.
    CopyWithRoot,
    /// Any other copy: none.
    Copy,
}

impl Role {
    /// What the superblock of a group is: of the copies the last and one in the middle name the root.
    #[must_use]
    pub fn of(volume: &Volume, group: GroupNr) -> Self {
        match group.get() {
            0 => Self::Primary,
            n if n == volume.groups - 1 || n == (volume.groups - 1) / 2 => Self::CopyWithRoot,
            _ => Self::Copy,
        }
    }
}

/// Free blocks of a volume before its first inodes; those on free lists count as free.
#[must_use]
pub fn free_blocks_without_inodes(volume: &Volume) -> Blocks {
    let roots = u64::from(volume.roots().end) * u64::from(volume.groups);
    volume.blocks.saturating_sub(Blocks::new(roots + u64::from(volume.log.run.len)))
}

/// Renders a superblock into its sector, of which every byte must be zero.
pub fn render(volume: &Volume, role: Role, sector: &mut [u8]) {
    let Ok((raw, _)) = raw::SuperBlock::mut_from_prefix(sector) else { return };
    raw.clone_from(&shape(volume));
    let (root, fresh) = (volume.root_inode(), free_blocks_without_inodes(volume));
    let chunk = volume.chunk_inodes();
    raw.sb_fdblocks.set(fresh.get());
    match role {
        Role::Primary => {
            raw.sb_rootino.set(root);
            raw.sb_rbmino.set(root + 1);
            raw.sb_rsumino.set(root + 2);
            raw.sb_icount.set(chunk.into());
            raw.sb_ifree.set((chunk - USED_INODES).into());
            raw.sb_fdblocks.set(fresh.get() - u64::from(volume.chunk_blocks()));
        }
        Role::CopyWithRoot | Role::Copy => {
            raw.sb_inprogress = 1;
            raw.sb_rootino.set(if role == Role::CopyWithRoot { root } else { NONE });
            raw.sb_rbmino.set(NONE);
            raw.sb_rsumino.set(NONE);
        }
    }
    seal(sector, offset_of!(raw::SuperBlock, sb_crc));
}

/// What all superblocks of a volume have in common.
fn shape(volume: &Volume) -> raw::SuperBlock {
    let mut raw = raw::SuperBlock::new_zeroed();
    let block = volume.block_size;
    let log2 = |n: u32| low8(n.trailing_zeros().into());
    raw.sb_magicnum.set(MAGIC);
    raw.sb_blocksize.set(block.get());
    raw.sb_dblocks.set(volume.blocks.get());
    raw.sb_uuid = volume.uuid;
    raw.sb_logstart.set(volume.block_number(volume.log.group, volume.log.run.start));
    raw.sb_rextsize.set((REALTIME_EXTENT / block.get()).max(1));
    raw.sb_agblocks.set(volume.group_blocks);
    raw.sb_agcount.set(volume.groups);
    raw.sb_logblocks.set(volume.log.run.len);
    raw.sb_versionnum.set(version(volume));
    raw.sb_sectsize.set(low16(volume.sector_size.into()));
    raw.sb_inodesize.set(low16(volume.inode_size.into()));
    raw.sb_inopblock.set(low16(volume.inodes_per_block().into()));
    raw.sb_fname = volume.label;
    raw.sb_blocklog = low8(block.shift().into());
    raw.sb_sectlog = log2(volume.sector_size);
    raw.sb_inodelog = log2(volume.inode_size);
    raw.sb_inopblog = log2(volume.inodes_per_block());
    raw.sb_agblklog = low8(volume.group_shift().into());
    raw.sb_imax_pct = volume.inode_percent;
    raw.sb_inoalignmt.set(volume.inode_alignment());
    if let Some(stripe) = volume.stripe {
        raw.sb_unit.set(stripe.unit);
        raw.sb_width.set(stripe.width);
    }
    raw.sb_dirblklog = log2(volume.directory_block_size / block.get());
    if volume.sector_size > 512 {
        raw.sb_logsectlog = log2(volume.sector_size);
        raw.sb_logsectsize.set(low16(volume.sector_size.into()));
    }
    raw.sb_logsunit.set(volume.log.unit);
    raw.sb_features2.set(FEATURES2);
    raw.sb_bad_features2.set(FEATURES2); // written twice since a time when padding put it elsewhere
    raw.sb_features_ro_compat.set(volume.ro_compat.bits());
    raw.sb_features_incompat.set(volume.incompat.bits());
    raw.sb_spino_align.set(volume.sparse_alignment());
    raw
}

fn version(volume: &Volume) -> u16 {
    let mut version = VERSION;
    if volume.stripe.is_some() {
        version |= VERSION_DATA_ALIGNED;
    }
    if volume.sector_size > 512 {
        version |= VERSION_SECTOR;
    }
    version
}

/// Where the superblock copies of a volume lie that holds these bytes at its start, if it is one of XFS and
/// its numbers make sense: group count, and bytes from one to the next.
#[must_use]
pub fn copies(sector: &[u8]) -> Option<(u32, u64)> {
    let (raw, _) = raw::SuperBlock::ref_from_prefix(sector).ok()?;
    let block = raw.sb_blocksize.get();
    let sane = raw.sb_magicnum.get() == MAGIC && (512..=65536).contains(&block) && block.is_power_of_two();
    let apart = u64::from(raw.sb_agblocks.get()).checked_mul(block.into())?;
    (sane && apart > 0).then_some((raw.sb_agcount.get(), apart))
}
