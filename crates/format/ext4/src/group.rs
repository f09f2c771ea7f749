//! Group descriptors: where a group keeps its bitmaps and inode table, and how much of it is free.

use crate::checksum::crc16;
use crate::error::{Corrupt, Place};
use crate::feature::RoCompat;
use crate::geometry::Geometry;
use crate::raw;
use crate::superblock::SuperBlock;
use bitflags::bitflags;
use hectare_units::{BlockNr, GroupNr, high32, join32, low16, low32, usize_of};
use zerocopy::{FromBytes, IntoBytes};

bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table were never written; all inodes are free.
        const INODE_UNINIT = 0x1;
        /// The block bitmap was never written; only the group's own metadata is in use.
        const BLOCK_UNINIT = 0x2;
        /// The inode table was zeroed.
        const INODE_ZEROED = 0x4;
        const _ = !0;
    }
}

const STRUCTURE: &str = "the group descriptor";
/// Offset of `bg_checksum` in a descriptor.
const CHECKSUM_AT: usize = 0x1e;

/// A validated group descriptor: its pointers lie on the volume, its counts are within the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// The block of the block bitmap.
    pub block_bitmap: BlockNr,
    /// The block of the inode bitmap.
    pub inode_bitmap: BlockNr,
    /// The first block of the inode table.
    pub inode_table: BlockNr,
    /// Free clusters.
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Inodes that are directories.
    pub used_dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// What was initialised.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap; 16 bits of it with 32-byte descriptors.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap; 16 bits of it with 32-byte descriptors.
    pub inode_bitmap_csum: u32,
}

impl GroupDesc {
    /// Validates one descriptor of `geometry.desc_size` bytes, its checksum included.
    ///
    /// # Errors
    /// [`Corrupt`] names the group and the field.
    pub fn parse(bytes: &[u8], group: GroupNr, sb: &SuperBlock) -> Result<Self, Corrupt> {
        let geometry = sb.geometry();
        let bytes = bytes
            .get(..usize_of(geometry.desc_size))
            .ok_or_else(|| Corrupt::new(STRUCTURE, Place::Group(group), "it is truncated"))?;
        let raw = raw_of(bytes);
        check_checksum(bytes, &raw, group, sb)?;
        let desc = Self::from_raw(&raw);
        desc.check(group, geometry)?;
        Ok(desc)
    }

    /// Like [`Self::parse`], for a copy among the backups. Only the places in it are current: the kernel
    /// doesn't write what changes into backups. So nothing counts as never initialised.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_backup(bytes: &[u8], group: GroupNr, sb: &SuperBlock) -> Result<Self, Corrupt> {
        let desc = Self::parse(bytes, group, sb)?;
        Ok(Self { flags: GroupFlags::INODE_ZEROED, itable_unused: 0, ..desc })
    }

    fn from_raw(raw: &raw::GroupDesc) -> Self {
        let block = |lo: u32, hi: u32| BlockNr::new(join32(lo, hi));
        let count = |lo: u16, hi: u16| u32::from(lo) | u32::from(hi) << 16;
        Self {
            block_bitmap: block(raw.bg_block_bitmap_lo.get(), raw.bg_block_bitmap_hi.get()),
            inode_bitmap: block(raw.bg_inode_bitmap_lo.get(), raw.bg_inode_bitmap_hi.get()),
            inode_table: block(raw.bg_inode_table_lo.get(), raw.bg_inode_table_hi.get()),
            free_clusters: count(raw.bg_free_blocks_count_lo.get(), raw.bg_free_blocks_count_hi.get()),
            free_inodes: count(raw.bg_free_inodes_count_lo.get(), raw.bg_free_inodes_count_hi.get()),
            used_dirs: count(raw.bg_used_dirs_count_lo.get(), raw.bg_used_dirs_count_hi.get()),
            itable_unused: count(raw.bg_itable_unused_lo.get(), raw.bg_itable_unused_hi.get()),
            flags: GroupFlags::from_bits_retain(raw.bg_flags.get()),
            block_bitmap_csum: count(raw.bg_block_bitmap_csum_lo.get(), raw.bg_block_bitmap_csum_hi.get()),
            inode_bitmap_csum: count(raw.bg_inode_bitmap_csum_lo.get(), raw.bg_inode_bitmap_csum_hi.get()),
        }
    }

    fn check(&self, group: GroupNr, geometry: &Geometry) -> Result<(), Corrupt> {
        let bad = |what: String| Err(Corrupt::new(STRUCTURE, Place::Group(group), what));
        let blocks = geometry.blocks_count.get();
        let on_volume = |block: BlockNr, len: u64| {
            // The first has the superblock, or lies before it.
            block.get() > u64::from(geometry.first_data_block)
                && block.get().checked_add(len).is_some_and(|end| end <= blocks)
        };
        if !on_volume(self.block_bitmap, 1) {
            return bad(format!("its block bitmap lies at block {}", self.block_bitmap));
        }
        if !on_volume(self.inode_bitmap, 1) {
            return bad(format!("its inode bitmap lies at block {}", self.inode_bitmap));
        }
        if !on_volume(self.inode_table, u64::from(geometry.itable_blocks())) {
            return bad(format!("its inode table lies at block {}", self.inode_table));
        }
        if self.free_clusters > geometry.clusters_in(group) {
            return bad(format!("it counts {} free clusters", self.free_clusters));
        }
        if self.free_inodes > geometry.inodes_per_group || self.itable_unused > geometry.inodes_per_group {
            return bad(format!("it counts {} free inodes", self.free_inodes));
        }
        Ok(())
    }

    /// Writes the descriptor into its slot of `geometry.desc_size` bytes, checksum included. Bytes beyond the
    /// known 64 and the snapshot fields are kept.
    ///
    /// # Panics
    /// If the slot is shorter than a descriptor of this volume.
    pub fn render(&self, slot: &mut [u8], group: GroupNr, sb: &SuperBlock) {
        if let Some(whole) = slot.first_chunk_mut() {
            self.fill(descriptor(whole), true);
        } else {
            let mut whole = [0; 64];
            whole[..slot.len()].copy_from_slice(slot);
            self.fill(descriptor(&mut whole), false);
            slot.copy_from_slice(&whole[..slot.len()]);
        }
        let checksum = checksum_of(slot, group, sb);
        slot[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_le_bytes());
    }

    fn fill(&self, raw: &mut raw::GroupDesc, wide: bool) {
        let lo = |n: u32| low16(u64::from(n)).into();
        let hi = |n: u32| low16(u64::from(n >> 16)).into();
        raw.bg_block_bitmap_lo = low32(self.block_bitmap.get()).into();
        raw.bg_inode_bitmap_lo = low32(self.inode_bitmap.get()).into();
        raw.bg_inode_table_lo = low32(self.inode_table.get()).into();
        raw.bg_free_blocks_count_lo = lo(self.free_clusters);
        raw.bg_free_inodes_count_lo = lo(self.free_inodes);
        raw.bg_used_dirs_count_lo = lo(self.used_dirs);
        raw.bg_flags = self.flags.bits().into();
        raw.bg_block_bitmap_csum_lo = lo(self.block_bitmap_csum);
        raw.bg_inode_bitmap_csum_lo = lo(self.inode_bitmap_csum);
        raw.bg_itable_unused_lo = lo(self.itable_unused);
        if wide {
            raw.bg_block_bitmap_hi = high32(self.block_bitmap.get()).into();
            raw.bg_inode_bitmap_hi = high32(self.inode_bitmap.get()).into();
            raw.bg_inode_table_hi = high32(self.inode_table.get()).into();
            raw.bg_free_blocks_count_hi = hi(self.free_clusters);
            raw.bg_free_inodes_count_hi = hi(self.free_inodes);
            raw.bg_used_dirs_count_hi = hi(self.used_dirs);
            raw.bg_itable_unused_hi = hi(self.itable_unused);
            raw.bg_block_bitmap_csum_hi = hi(self.block_bitmap_csum);
            raw.bg_inode_bitmap_csum_hi = hi(self.inode_bitmap_csum);
        }
    }

    /// Compares a block bitmap with the stored checksum.
    ///
    /// # Errors
    /// [`Corrupt`] if they differ, or if the bitmap is truncated; fine without `metadata_csum`.
    pub fn verify_block_bitmap(&self, bitmap: &[u8], group: GroupNr, sb: &SuperBlock) -> Result<(), Corrupt> {
        let covered = sb.geometry().block_bitmap_bytes();
        verify_bitmap("the block bitmap", bitmap.get(..covered), self.block_bitmap_csum, group, sb)
    }

    /// Compares an inode bitmap with the stored checksum.
    ///
    /// # Errors
    /// [`Corrupt`] if they differ, or if the bitmap is truncated; fine without `metadata_csum`.
    pub fn verify_inode_bitmap(&self, bitmap: &[u8], group: GroupNr, sb: &SuperBlock) -> Result<(), Corrupt> {
        let covered = sb.geometry().inode_bitmap_bytes();
        verify_bitmap("the inode bitmap", bitmap.get(..covered), self.inode_bitmap_csum, group, sb)
    }

    /// Takes over the checksum of a block bitmap about to be written.
    ///
    /// # Panics
    /// If the bitmap is shorter than a group's.
    pub fn seal_block_bitmap(&mut self, bitmap: &[u8], sb: &SuperBlock) {
        if let Some(seed) = sb.seed() {
            self.block_bitmap_csum = seed.checksum(&bitmap[..sb.geometry().block_bitmap_bytes()]);
        }
    }

    /// Takes over the checksum of an inode bitmap about to be written.
    ///
    /// # Panics
    /// If the bitmap is shorter than a group's.
    pub fn seal_inode_bitmap(&mut self, bitmap: &[u8], sb: &SuperBlock) {
        if let Some(seed) = sb.seed() {
            self.inode_bitmap_csum = seed.checksum(&bitmap[..sb.geometry().inode_bitmap_bytes()]);
        }
    }
}

fn verify_bitmap(
    structure: &'static str,
    covered: Option<&[u8]>,
    stored: u32,
    group: GroupNr,
    sb: &SuperBlock,
) -> Result<(), Corrupt> {
    let covered = covered.ok_or_else(|| Corrupt::new(structure, Place::Group(group), "it is truncated"))?;
    let Some(seed) = sb.seed() else { return Ok(()) };
    let mask = if sb.geometry().desc_size >= 64 { !0 } else { 0xffff };
    let expected = seed.checksum(covered) & mask;
    if expected == stored & mask {
        return Ok(());
    }
    Err(Corrupt::checksum(structure, Place::Group(group), stored, expected))
}

fn check_checksum(
    bytes: &[u8],
    raw: &raw::GroupDesc,
    group: GroupNr,
    sb: &SuperBlock,
) -> Result<(), Corrupt> {
    if !sb.features().group_checksums() || sb.ignores_checksums() {
        return Ok(());
    }
    let expected = checksum_of(bytes, group, sb);
    if raw.bg_checksum.get() == expected {
        return Ok(());
    }
    Err(Corrupt::checksum(STRUCTURE, Place::Group(group), raw.bg_checksum.get().into(), expected.into()))
}

/// `bg_checksum` of a descriptor, whatever its field holds now: crc32c of group number and descriptor with a
/// zero field (`metadata_csum`, low 16 bits kept), or crc16 over UUID, group number and descriptor without
/// the field (`uninit_bg`); 0 without either feature.
fn checksum_of(slot: &[u8], group: GroupNr, sb: &SuperBlock) -> u16 {
    let number = group.get().to_le_bytes();
    if let Some(seed) = sb.seed() {
        // What all descriptors have in one piece: formatters do this a million times, and short pieces cost
        // as much as long ones.
        let (slot, rest) = slot.split_at(slot.len().min(size_of::<raw::GroupDesc>()));
        let mut bytes = [0; size_of::<u32>() + size_of::<raw::GroupDesc>()];
        let bytes = &mut bytes[..number.len() + slot.len()];
        bytes[..number.len()].copy_from_slice(&number);
        bytes[number.len()..].copy_from_slice(slot);
        bytes[number.len() + CHECKSUM_AT..][..2].fill(0);
        return low16(seed.then(bytes).checksum(rest).into());
    }
    let (before, after) = (&slot[..CHECKSUM_AT], slot.get(CHECKSUM_AT + 2..).unwrap_or_default());
    if !sb.features().ro_compat.contains(RoCompat::GDT_CSUM) {
        return 0;
    }
    let crc = crc16(crc16(crc16(!0, &sb.uuid()), &number), before);
    if usize_of(sb.geometry().desc_size) > CHECKSUM_AT + 2 { crc16(crc, after) } else { crc }
}

fn descriptor(bytes: &mut [u8; 64]) -> &mut raw::GroupDesc {
    raw::GroupDesc::mut_from_bytes(bytes).expect("64 bytes are a descriptor")
}

/// The bytes of a descriptor record, for tests and reports.
#[must_use]
pub fn raw_of(slot: &[u8]) -> raw::GroupDesc {
    let mut whole = [0u8; 64];
    let len = slot.len().min(64);
    whole[..len].copy_from_slice(&slot[..len]);
    raw::GroupDesc::read_from_bytes(whole.as_bytes()).expect("64 bytes are a descriptor")
}
