//! Repairs every checksum of a damaged volume, and finds out what of it is in use.
//!
//! It goes wherever the damaged structures lead, so it trusts nothing: what doesn't lie inside the image is
//! skipped, and constants limit how much is read. It shares only the checksum functions and the superblock's
//! geometry with the tested code; a panic there is a finding as well.

use hectare_ext4::checksum::{Seed, crc16, crc32c};
use hectare_ext4::dir::{self, Format};
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::{extent, group, orphan, xattr};
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, LogicalBlock, index_of, u64_of, usize_of};
use std::ops::Range;

const SUPERBLOCK: Range<usize> = 1024..2048;
const GROUPS_MAX: u32 = 64;
const INODES_MAX: u32 = 8192;
/// Blocks of one file that are looked at.
const BLOCKS_MAX: usize = 512;
const METADATA_CSUM: u32 = 0x400;
const EXTENTS_FLAG: u32 = 0x8_0000;
const INLINE_FLAG: u32 = 0x1000_0000;
const INDEX_FLAG: u32 = 0x1000;
/// Where an inode has its link count.
const LINKS_AT: usize = 0x1a;
/// Where it has the bytes of its checksum.
const CHECKSUM_AT: [usize; 4] = [0x7c, 0x7d, 0x82, 0x83];

/// Seals a volume as it is now.
pub fn seal(image: &mut [u8]) {
    if image.len() < SUPERBLOCK.end {
        return;
    }
    seal_superblock(&mut image[SUPERBLOCK]);
    let Ok(sb) = SuperBlock::parse(&image[SUPERBLOCK], Bytes::of(image.len())) else { return };
    let mut volume = Volume { image, sb: &sb };
    let mut inodes = 0;
    for nr in 0..sb.geometry().groups().min(GROUPS_MAX) {
        let group = GroupNr::new(nr);
        let Some(table) = volume.seal_group(group) else { continue };
        for index in 0..sb.geometry().inodes_per_group {
            inodes += 1;
            if inodes > INODES_MAX {
                break;
            }
            volume.seal_inode(table, index, sb.geometry().inode_at(group, index));
        }
    }
    volume.seal_mmp();
}

/// Where the inodes in use of a sound volume have their slots: byte offsets.
pub fn inodes(image: &mut [u8]) -> Vec<usize> {
    let Ok(sb) = SuperBlock::parse(&image[SUPERBLOCK], Bytes::of(image.len())) else { return Vec::new() };
    let mut volume = Volume { image, sb: &sb };
    let mut slots = Vec::new();
    for group in (0..sb.geometry().groups()).map(GroupNr::new) {
        // It is sealed as it was.
        let Some(table) = volume.seal_group(group) else { continue };
        let used = |index: &u32| volume.slot(table, *index).is_some_and(|range| volume.image[range][0] != 0);
        let used = (0..sb.geometry().inodes_per_group).filter(used);
        slots.extend(used.filter_map(|index| Some(volume.slot(table, index)?.start)));
    }
    slots
}

/// The first byte of something in use that differs between two states of a volume. The superblock (which records
/// findings) and the group descriptors, free blocks, free inodes and checksums may differ: an operation that
/// fails gives back what it took.
#[must_use]
pub fn first_change(before: &[u8], after: &[u8]) -> Option<usize> {
    let mut image = after.to_vec();
    let sb = SuperBlock::parse(&after[SUPERBLOCK], Bytes::of(after.len())).ok()?;
    let volume = Volume { image: &mut image, sb: &sb };
    let changes = (0..after.len()).filter(|at| before.get(*at) != Some(&after[*at]));
    changes.into_iter().find(|at| !SUPERBLOCK.contains(at) && volume.is_used(*at))
}

/// Sets the checksum of a superblock of 1024 bytes, if it says that there is one.
pub fn seal_superblock(bytes: &mut [u8]) {
    if long(bytes, 0x64).is_some_and(|features| features & METADATA_CSUM != 0) {
        let sum = crc32c(!0, &bytes[..0x3fc]);
        bytes[0x3fc..0x400].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Sets the checksum of an inode's slot.
pub fn seal_inode_slot(slot: &mut [u8], nr: InodeNr, seed: Seed) {
    if slot.len() < 128 {
        return;
    }
    let generation = long(slot, 0x64).unwrap_or(0);
    let wide = slot.len() >= 0x84 && short(slot, 0x80).is_some_and(|extra| extra >= 4);
    slot[0x7c..0x7e].fill(0);
    if wide {
        slot[0x82..0x84].fill(0);
    }
    let sum = seed.inode(nr, generation).checksum(slot).to_le_bytes();
    slot[0x7c..0x7e].copy_from_slice(&sum[..2]);
    if wide {
        slot[0x82..0x84].copy_from_slice(&sum[2..]);
    }
}

/// Sets the checksum of a group descriptor, whatever kind it is.
pub fn seal_descriptor(slot: &mut [u8], group: GroupNr, sb: &SuperBlock) {
    if slot.len() < 0x20 {
        return;
    }
    slot[0x1e..0x20].fill(0);
    let number = group.get().to_le_bytes();
    let sum = if let Some(seed) = sb.seed() {
        let bytes = seed.then(&number).checksum(slot).to_le_bytes();
        u16::from_le_bytes([bytes[0], bytes[1]])
    } else if sb.features().ro_compat.contains(RoCompat::GDT_CSUM) {
        crc16(crc16(crc16(crc16(!0, &sb.uuid()), &number), &slot[..0x1e]), &slot[0x20..])
    } else {
        return;
    };
    slot[0x1e..0x20].copy_from_slice(&sum.to_le_bytes());
}

struct Volume<'a> {
    image: &'a mut [u8],
    sb: &'a SuperBlock,
}

impl Volume<'_> {
    fn block_range(&self, nr: BlockNr) -> Option<Range<usize>> {
        let size = self.sb.geometry().block_size;
        if nr >= BlockNr::new(1 << 40) {
            return None;
        }
        let start = index_of(nr.offset(size).get());
        (start + size.len() <= self.image.len()).then(|| start..start + size.len())
    }

    fn block(&self, nr: BlockNr) -> Option<&[u8]> {
        self.block_range(nr).map(|range| &self.image[range])
    }

    fn block_mut(&mut self, nr: BlockNr) -> Option<&mut [u8]> {
        self.block_range(nr).map(|range| &mut self.image[range])
    }

    /// Where a group has its descriptor.
    fn descriptor(&self, group: GroupNr) -> Option<Range<usize>> {
        let geometry = self.sb.geometry();
        let per_block = geometry.descs_per_block();
        let block = self.block_range(geometry.desc_block(group.get() / per_block))?;
        let len = usize_of(geometry.desc_size);
        let start = block.start + usize_of(group.get() % per_block) * len;
        (start + len <= self.image.len()).then_some(start..start + len)
    }

    /// A group's block bitmap, inode bitmap and inode table.
    fn places(&self, group: GroupNr) -> Option<[BlockNr; 3]> {
        let raw = group::raw_of(&self.image[self.descriptor(group)?]);
        let join = |lo: u32, hi: u32| BlockNr::new(u64::from(lo) | u64::from(hi) << 32);
        Some([
            join(raw.bg_block_bitmap_lo.get(), raw.bg_block_bitmap_hi.get()),
            join(raw.bg_inode_bitmap_lo.get(), raw.bg_inode_bitmap_hi.get()),
            join(raw.bg_inode_table_lo.get(), raw.bg_inode_table_hi.get()),
        ])
    }

    /// Whether a byte is of something in use, descriptors apart.
    fn is_used(&self, at: usize) -> bool {
        let geometry = self.sb.geometry();
        let nr = BlockNr::new(u64_of(at) >> geometry.block_size.shift());
        let mut descs = (0..geometry.desc_blocks()).map(|index| geometry.desc_block(index));
        let Some(group) = geometry.group_of(nr) else { return true };
        let Some([bitmap, _, table]) = self.places(group) else { return true };
        let within = (nr.get() - geometry.first_block(group).get()) >> geometry.cluster_ratio_shift;
        let bit = index_of(within);
        let is_free = self
            .block(bitmap)
            .and_then(|bits| bits.get(bit / 8))
            .is_some_and(|byte| byte >> (bit % 8) & 1 == 0);
        let size = usize_of(geometry.inode_size);
        let start = index_of(table.offset(geometry.block_size).get());
        let slot = at.checked_sub(start).map(|at| start + at / size * size);
        let in_table = |slot: &usize| slot - start < size * usize_of(geometry.inodes_per_group);
        // Its checksum is written with an inode that is otherwise as it was; also to where there is none.
        let is_unused = slot.filter(in_table).is_some_and(|slot| {
            short(self.image, slot + LINKS_AT) == Some(0) || CHECKSUM_AT.contains(&(at - slot))
        });
        !(descs.any(|desc| desc == nr) || is_free || is_unused)
    }

    /// Seals a group's bitmaps and descriptor; the first block of its inode table.
    fn seal_group(&mut self, group: GroupNr) -> Option<BlockNr> {
        let geometry = self.sb.geometry();
        let [blocks, inodes, table] = self.places(group)?;
        let range = self.descriptor(group)?;
        let mut slot = self.image[range.clone()].to_vec();
        if let Some(seed) = self.sb.seed() {
            let sum = |nr: BlockNr, covered: usize| {
                Some(seed.checksum(self.block(nr)?.get(..covered)?).to_le_bytes())
            };
            if let Some(sum) = sum(blocks, geometry.block_bitmap_bytes()) {
                put_halves(&mut slot, 0x18, 0x38, sum);
            }
            if let Some(sum) = sum(inodes, geometry.inode_bitmap_bytes()) {
                put_halves(&mut slot, 0x1a, 0x3a, sum);
            }
        }
        seal_descriptor(&mut slot, group, self.sb);
        self.image[range].copy_from_slice(&slot);
        Some(table)
    }

    /// Where an inode has its slot in the table of a group.
    fn slot(&self, table: BlockNr, index: u32) -> Option<Range<usize>> {
        let size = usize_of(self.sb.geometry().inode_size);
        let at = self.block_range(table)?.start + usize_of(index) * size;
        (at + size <= self.image.len()).then_some(at..at + size)
    }

    fn seal_inode(&mut self, table: BlockNr, index: u32, nr: InodeNr) {
        let Some(seed) = self.sb.seed() else { return };
        let Some(range) = self.slot(table, index) else { return };
        let slot = &mut self.image[range];
        if slot.iter().all(|byte| *byte == 0) {
            return;
        }
        seal_inode_slot(slot, nr, seed);
        let slot = slot.to_vec();
        self.seal_blocks_of(&slot, nr, seed);
    }

    fn seal_blocks_of(&mut self, slot: &[u8], nr: InodeNr, seed: Seed) {
        let own = seed.inode(nr, long(slot, 0x64).unwrap_or(0));
        let acl = u64::from(long(slot, 0x68).unwrap_or(0)) | u64::from(short(slot, 0x76).unwrap_or(0)) << 32;
        if let Some(block) = self.block_mut(BlockNr::new(acl)).filter(|_| acl != 0) {
            xattr::seal(block, seed, BlockNr::new(acl));
        }
        let flags = long(slot, 0x20).unwrap_or(0);
        let is_directory = short(slot, 0).is_some_and(|mode| mode >> 12 == 4);
        if flags & INLINE_FLAG != 0 {
            return;
        }
        let mut blocks = Vec::new();
        if flags & EXTENTS_FLAG != 0 {
            self.seal_tree(&slot[0x28..0x64], own, 0, &mut blocks);
        } else if is_directory {
            let direct = (0..12u32).filter_map(|i| Some((i, long(slot, 0x28 + 4 * usize_of(i))?)));
            blocks.extend(direct.map(|(i, nr)| (i, BlockNr::new(u64::from(nr)))));
        }
        if is_directory {
            self.seal_directory(&blocks, own, flags & INDEX_FLAG != 0);
        }
        if nr.get() == self.sb.raw().s_orphan_file_inum.get() {
            for (_, nr) in blocks {
                if let Some(block) = self.block_mut(nr) {
                    orphan::OrphanBlockMut::new(block, nr).seal(own);
                }
            }
        }
    }

    /// Seals the nodes below one and collects the blocks they map.
    fn seal_tree(&mut self, node: &[u8], seed: Seed, depth: u32, blocks: &mut Vec<(u32, BlockNr)>) {
        let entries = usize::from(short(node, 2).unwrap_or(0)).min(node.len().saturating_sub(12) / 12);
        for at in (0..entries).map(|i| 12 + 12 * i) {
            if blocks.len() >= BLOCKS_MAX {
                return;
            }
            let (Some(key), Some(middle), Some(last)) =
                (long(node, at), long(node, at + 4), long(node, at + 8))
            else {
                return;
            };
            if short(node, 6) == Some(0) {
                let start = u64::from(last) | u64::from(middle >> 16) << 32;
                let len = middle & 0x7fff;
                blocks.extend((0..len.min(64)).filter_map(|i| {
                    Some((key.checked_add(i)?, BlockNr::new(start).checked_add(blocks_of(i))?))
                }));
            } else if depth < 5 {
                let nr = BlockNr::new(u64::from(middle) | u64::from(last & 0xffff) << 32);
                let Some(block) = self.block_mut(nr) else { continue };
                extent::set_checksum(block, seed);
                let child = block.to_vec();
                // Counted, so that a tree that leads back to itself ends.
                blocks.push((u32::MAX, nr));
                self.seal_tree(&child, seed, depth + 1, blocks);
            }
        }
    }

    fn seal_directory(&mut self, blocks: &[(u32, BlockNr)], seed: Seed, indexed: bool) {
        let Ok(format) = Format::of(self.sb) else { return };
        for (logical, nr) in blocks.iter().filter(|(logical, _)| *logical != u32::MAX) {
            let at = LogicalBlock::new(*logical);
            if let Some(block) = self.block_mut(*nr) {
                // A block without a place for its checksum can't have one.
                let _ = dir::set_checksum(block, &format, Some(seed), at, indexed, Place::Block(*nr));
            }
        }
    }

    fn seal_mmp(&mut self) {
        let Some(seed) = self.sb.seed() else { return };
        if !self.sb.features().incompat.contains(Incompat::MMP) {
            return;
        }
        let nr = BlockNr::new(self.sb.raw().s_mmp_block.get());
        if let Some(block) = self.block_mut(nr) {
            let sum = seed.checksum(&block[..1020]);
            block[1020..1024].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn blocks_of(n: u32) -> hectare_units::Blocks {
    hectare_units::Blocks::new(u64::from(n))
}

fn put_halves(slot: &mut [u8], lo: usize, hi: usize, sum: [u8; 4]) {
    slot[lo..lo + 2].copy_from_slice(&sum[..2]);
    if slot.len() >= 64 {
        slot[hi..hi + 2].copy_from_slice(&sum[2..]);
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
