//! The headers of an allocation group behind its superblock: AGF, AGI and AGFL, a sector each.
//!
//! Hazard: the three repeat each other. What is on the free list (AGFL) is counted in the AGF but not among
//! its free blocks; the inodes counted in the AGI are those of its trees.

use crate::checksum::seal;
use crate::raw;
use crate::volume::{Run, Volume};
use hectare_units::GroupNr;
use std::mem::offset_of;
use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

/// `agf_magicnum`: "XAGF".
const AGF_MAGIC: u32 = 0x5841_4746;
/// `agi_magicnum`: "XAGI".
const AGI_MAGIC: u32 = 0x5841_4749;
/// `agfl_magicnum`: "XAFL".
const AGFL_MAGIC: u32 = 0x5841_464c;
const HEADER_VERSION: u32 = 1;
/// A block or inode number inside a group that means none.
const NONE: u32 = u32::MAX;
/// The slot of the free list that is filled first: it is a ring, and 0 was the end of the empty one.
const FREE_LIST_FIRST: u32 = 1;

/// Inodes of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inodes {
    /// The number of the first, counted from the group's start.
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// How many of them are free.
    pub free: u32,
}

/// Renders the AGF into its sector, of which every byte must be zero.
pub fn render_agf(volume: &Volume, group: GroupNr, free: &[Run], free_list: Run, sector: &mut [u8]) {
    let Ok((raw, _)) = raw::Agf::mut_from_prefix(sector) else { return };
    let roots = volume.roots();
    raw.agf_magicnum.set(AGF_MAGIC);
    raw.agf_versionnum.set(HEADER_VERSION);
    raw.agf_seqno.set(group.get());
    raw.agf_length.set(volume.group_len(group));
    raw.agf_bno_root.set(roots.bno);
    raw.agf_cnt_root.set(roots.cnt);
    raw.agf_bno_level.set(1);
    raw.agf_cnt_level.set(1);
    if let Some(root) = roots.rmap {
        raw.agf_rmap_root.set(root);
        raw.agf_rmap_level.set(1);
        raw.agf_rmap_blocks.set(1);
    }
    if let Some(root) = roots.refcount {
        raw.agf_refcount_root.set(root);
        raw.agf_refcount_level.set(1);
        raw.agf_refcount_blocks.set(1);
    }
    raw.agf_flfirst.set(FREE_LIST_FIRST);
    raw.agf_fllast.set(FREE_LIST_FIRST + free_list.len - 1);
    raw.agf_flcount.set(free_list.len);
    raw.agf_freeblks.set(free.iter().map(|run| run.len).sum());
    raw.agf_longest.set(free.iter().map(|run| run.len).max().unwrap_or(0));
    raw.agf_uuid = volume.uuid;
    seal(sector, offset_of!(raw::Agf, agf_crc));
}

/// Renders the AGI into its sector, of which every byte must be zero.
pub fn render_agi(volume: &Volume, group: GroupNr, inodes: Option<Inodes>, sector: &mut [u8]) {
    let Ok((raw, _)) = raw::Agi::mut_from_prefix(sector) else { return };
    let roots = volume.roots();
    let counted = u32::from(volume.ro_compat.contains(crate::RoCompat::INOBTCOUNT));
    raw.agi_magicnum.set(AGI_MAGIC);
    raw.agi_versionnum.set(HEADER_VERSION);
    raw.agi_seqno.set(group.get());
    raw.agi_length.set(volume.group_len(group));
    raw.agi_root.set(roots.ino);
    raw.agi_level.set(1);
    raw.agi_newino.set(inodes.map_or(NONE, |inodes| inodes.first));
    raw.agi_dirino.set(NONE);
    raw.agi_unlinked = [U32::new(NONE); 64];
    raw.agi_uuid = volume.uuid;
    raw.agi_iblocks.set(counted);
    if let Some(inodes) = inodes {
        raw.agi_count.set(inodes.count);
        raw.agi_freecount.set(inodes.free);
    }
    if let Some(root) = roots.fino {
        raw.agi_free_root.set(root);
        raw.agi_free_level.set(1);
        raw.agi_fblocks.set(counted);
    }
    seal(sector, offset_of!(raw::Agi, agi_crc));
}

/// Renders the AGFL with the blocks of `free_list` into its sector, of which every byte must be zero.
///
/// # Panics
/// If the sector can't hold as many; the smallest holds 119.
pub fn render_agfl(volume: &Volume, group: GroupNr, free_list: Run, sector: &mut [u8]) {
    let Ok((raw, slots)) = raw::Agfl::mut_from_prefix(sector) else { return };
    raw.agfl_magicnum.set(AGFL_MAGIC);
    raw.agfl_seqno.set(group.get());
    raw.agfl_uuid = volume.uuid;
    slots.fill(0xff);
    let slots = slots.chunks_exact_mut(4).skip(1);
    for (slot, block) in slots.zip(free_list.start..free_list.end()) {
        slot.copy_from_slice(&block.to_be_bytes());
    }
    seal(sector, offset_of!(raw::Agfl, agfl_crc));
}
