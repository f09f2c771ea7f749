//! A superblock for a volume that has none left, inferred from its root directory.
//!
//! A volume of one group (up to 128 MiB with blocks of 4 KiB) has no copy of its superblock. What it needs to
//! say can be found all the same: inode 2 is the second slot of the first inode table, it is a directory,
//! and its first block begins with the names `.` and `..`, both inode 2. A place where all that holds for a
//! size of blocks and of inodes is the table. It is searched for where the first group descriptor points,
//! then everywhere in the first GiB.
//!
//! The number of inodes in a group follows from the distance of two tables, or from the inode bitmaps, in
//! which the bits behind the last inode are set, or from how far the slots are inodes.
//!
//! Hazards: an image of another volume may lie in a file; the first table on the device is taken. Nothing is
//! inferred of `bigalloc`, encryption and checksums: what needs them is a doubt. The result is for reading, and
//! never written.

use crate::plausible;
use crate::source::Source;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::inode::{BASE_SIZE, InodeFlags};
use hectare_ext4::raw;
use hectare_ext4::superblock::{MAGIC, SuperBlock};
use hectare_units::{BlockNr, BlockSize, InodeNr, index_of, low16, low32, u64_of, usize_of};
use zerocopy::FromZeros;

/// Bytes from the beginning in which the root directory's inode is searched for.
const SCANNED: u64 = 1 << 30;
/// Bytes read at once by the search.
const STEP: u64 = 1 << 20;
/// Tables begin at multiples of this.
const UNIT: usize = 1024;
/// The bytes of an inode that the search looks at.
const SIZES: [usize; 4] = [256, 128, 512, 1024];
/// Groups whose inode bitmaps are looked at.
const BITMAPS_MAX: u32 = 64;
/// The number of the journal's inode.
const JOURNAL: u32 = 8;
/// What a block of a journal begins with (`JBD2_MAGIC_NUMBER`), big endian.
const JOURNAL_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
/// The first number of an inode that is a user's.
const FIRST_INODE: u32 = 11;
/// `bg_flags`: the inode bitmap was never written.
const INODE_UNINIT: u16 = 1;

/// What a volume without a superblock is taken for.
pub(crate) struct Inferred {
    pub(crate) sb: SuperBlock,
    /// Where the first inode table begins.
    pub(crate) table: BlockNr,
}

/// A place where the first inode table may lie.
#[derive(Clone, Copy)]
struct Table {
    size: BlockSize,
    /// Its first byte.
    at: u64,
    inode_size: usize,
}

/// Infers a superblock; `None` if no root directory is found.
pub(crate) fn infer(source: &Source) -> Option<Inferred> {
    let (table, has_types) = described(source).or_else(|| scanned(source))?;
    let mut raw = record(source, &table, has_types);
    // A provisional number of inodes, for what is needed to judge their slots.
    let per_block = low32(u64::from(table.size.get()) / u64_of(table.inode_size));
    let most = 8 * table.size.get() / per_block * per_block;
    set_inodes(&mut raw, most);
    let provisional = SuperBlock::from_raw(raw).ok()?;
    let least = spaced(source, &table, &raw).or_else(|| padded(source, &table, &raw));
    let inodes = reached(source, &table, &provisional, least.unwrap_or(0));
    set_inodes(&mut raw, inodes.next_multiple_of(per_block).next_multiple_of(8).clamp(per_block, most));
    let sb = SuperBlock::from_raw(raw).ok()?;
    Some(Inferred { sb, table: BlockNr::new(table.at >> table.size.shift()) })
}

fn sizes() -> impl Iterator<Item = BlockSize> {
    // The usual one first.
    [12, 10, 11, 13, 14, 15, 16].into_iter().filter_map(BlockSize::from_shift)
}

const fn first_data_block(size: BlockSize) -> u64 {
    if size.shift() == 10 { 1 } else { 0 }
}

/// Where a block begins.
fn offset(block: u64, size: BlockSize) -> Option<u64> {
    block.checked_mul(size.bytes().get())
}

/// A field of a record; 0 if the record is shorter.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u16::from_le_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u32::from_le_bytes(*field))
}

fn read(source: &Source, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    source.read(at, &mut bytes);
    bytes
}

/// The start of the group descriptors, as many bytes of it.
fn descriptors(source: &Source, size: BlockSize, len: usize) -> Vec<u8> {
    read(source, (first_data_block(size) + 1) << size.shift(), len)
}

/// The table that the first group descriptor names, and whether names have types.
fn described(source: &Source) -> Option<(Table, bool)> {
    sizes().find_map(|size| {
        let at = u64::from(u32_at(&descriptors(source, size, 32), 8)) << size.shift();
        let candidates = inode_sizes(size).map(|inode_size| Table { size, at, inode_size });
        candidates.filter(|_| at > 0).find_map(|table| root(source, &table, true))
    })
}

fn inode_sizes(size: BlockSize) -> impl Iterator<Item = usize> {
    SIZES.into_iter().filter(move |inode| *inode <= size.len())
}

/// The first table of the device.
fn scanned(source: &Source) -> Option<(Table, bool)> {
    let end = source.len().min(SCANNED);
    let mut at = 0;
    while at < end {
        // A slot may begin in the next step.
        let bytes = read(source, at, index_of(STEP) + 2 * UNIT);
        for place in (0..index_of(STEP)).step_by(UNIT) {
            let possible = SIZES.into_iter().filter(|size| may_be_root(&bytes[place + size..]));
            let tables = possible.flat_map(|inode_size| {
                let fits = move |size: &BlockSize| inode_size <= size.len();
                let table = move |size| Table { size, at: at + u64_of(place), inode_size };
                sizes().filter(fits).map(table)
            });
            let aligned = |table: &Table| table.at.is_multiple_of(table.size.bytes().get());
            if let Some(found) = tables.filter(aligned).find_map(|table| root(source, &table, false)) {
                return Some(found);
            }
        }
        at += STEP;
    }
    None
}

/// Whether a slot can be a directory in use.
fn may_be_root(slot: &[u8]) -> bool {
    u16_at(slot, 0) >> 12 == 4 && u16_at(slot, 0x1a) >= 2 && u32_at(slot, 0x14) == 0
}

/// The table, if its second slot is that of the root directory, and whether names have types.
///
/// A directory inside its inode shows no size of blocks: it counts if something else named the table.
fn root(source: &Source, table: &Table, is_named: bool) -> Option<(Table, bool)> {
    let slot = read(source, table.at.checked_add(u64_of(table.inode_size))?, BASE_SIZE);
    if !may_be_root(&slot) {
        return None;
    }
    let flags = InodeFlags::from_bits_retain(u32_at(&slot, 0x20));
    if flags.contains(InodeFlags::INLINE_DATA) {
        return (is_named && u32_at(&slot, 0x28) == InodeNr::ROOT.get()).then_some((*table, true));
    }
    let first = first_block(source, table.size, slot.get(0x28..0x64)?, flags)?;
    let block = read(source, offset(first, table.size)?, table.size.len());
    begins_root(&block).then(|| (*table, block[7] == 2))
}

/// The first block of a file, by its map.
fn first_block(source: &Source, size: BlockSize, map: &[u8], flags: InodeFlags) -> Option<u64> {
    if !flags.contains(InodeFlags::EXTENTS) {
        return Some(u64::from(u32_at(map, 0))).filter(|block| *block > 0);
    }
    let mut node = map.to_vec();
    for _ in 0..=hectare_ext4::extent::DEPTH_MAX {
        let is_node = u16_at(&node, 0) == hectare_ext4::extent::raw::MAGIC && u16_at(&node, 2) > 0;
        let is_first = u32_at(&node, 12) == 0;
        if !(is_node && is_first) {
            return None;
        }
        if u16_at(&node, 6) == 0 {
            return Some(u64::from(u16_at(&node, 18)) << 32 | u64::from(u32_at(&node, 20)));
        }
        let below = u64::from(u16_at(&node, 20)) << 32 | u64::from(u32_at(&node, 16));
        node = read(source, offset(below, size)?, size.len());
    }
    None
}

/// Whether a block begins with the names `.` and `..` of the root directory, and its records end with it.
fn begins_root(block: &[u8]) -> bool {
    let root = InodeNr::ROOT.get();
    let dots = u32_at(block, 0) == root
        && u16_at(block, 4) == 12
        && block.get(6) == Some(&1)
        && block.get(8) == Some(&b'.')
        && u32_at(block, 12) == root
        && block.get(18) == Some(&2)
        && block.get(20..22) == Some(b"..");
    let mut at = 12;
    while dots && at < block.len() {
        let len = usize::from(u16_at(block, at + 4));
        // 64 KiB and a little less are written as 65,535 or 0.
        let len = if len == 0 || len == 65_535 { block.len() - at } else { len };
        if len < 12 || len % 4 != 0 {
            return false;
        }
        at += len;
    }
    dots && at == block.len()
}

/// A superblock with all but the number of inodes.
fn record(source: &Source, table: &Table, has_types: bool) -> raw::SuperBlock {
    let Table { size, inode_size, .. } = *table;
    let mut raw = raw::SuperBlock::new_zeroed();
    let per_group = 8 * size.get();
    let blocks = source.len() >> size.shift();
    raw.s_blocks_count_lo = low32(blocks).into();
    raw.s_blocks_count_hi = low32(blocks >> 32).into();
    raw.s_first_data_block = low32(first_data_block(size)).into();
    raw.s_log_block_size = (size.shift() - 10).into();
    raw.s_log_cluster_size = raw.s_log_block_size;
    (raw.s_blocks_per_group, raw.s_clusters_per_group) = (per_group.into(), per_group.into());
    raw.s_magic = MAGIC.into();
    raw.s_state = 1.into();
    raw.s_errors = 1.into();
    raw.s_rev_level = 1.into();
    raw.s_first_ino = FIRST_INODE.into();
    raw.s_inode_size = low16(u64_of(inode_size)).into();
    raw.s_def_hash_version = 1;
    let has_journal = is_journal(source, table);
    let mut compat = Compat::EXT_ATTR | Compat::DIR_INDEX;
    if has_journal {
        compat |= Compat::HAS_JOURNAL;
        raw.s_journal_inum = JOURNAL.into();
    }
    let mut incompat = Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::INLINE_DATA | Incompat::EA_INODE;
    incompat.set(Incompat::FILETYPE, has_types);
    // The upper halves of the places of the first group are zeros; a narrow descriptor is followed by the next.
    let first = descriptors(source, size, 64);
    if first[32..44].iter().all(|byte| *byte == 0) {
        incompat |= Incompat::BIT64;
        raw.s_desc_size = 64.into();
    }
    let mut ro_compat =
        RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::HUGE_FILE | RoCompat::DIR_NLINK;
    if inode_size > BASE_SIZE {
        ro_compat |= RoCompat::EXTRA_ISIZE;
    }
    raw.s_feature_compat = compat.bits().into();
    raw.s_feature_incompat = incompat.bits().into();
    raw.s_feature_ro_compat = ro_compat.bits().into();
    raw
}

/// Whether inode 8 leads to a journal.
fn is_journal(source: &Source, table: &Table) -> bool {
    let slot = read(source, table.at + u64::from(JOURNAL - 1) * u64_of(table.inode_size), BASE_SIZE);
    let flags = InodeFlags::from_bits_retain(u32_at(&slot, 0x20));
    let first = first_block(source, table.size, &slot[0x28..0x64], flags);
    let at = first.and_then(|first| offset(first, table.size));
    at.is_some_and(|at| read(source, at, 4) == JOURNAL_MAGIC)
}

fn groups(raw: &raw::SuperBlock) -> u32 {
    let blocks = u64::from(raw.s_blocks_count_hi.get()) << 32 | u64::from(raw.s_blocks_count_lo.get());
    let blocks = blocks.saturating_sub(raw.s_first_data_block.get().into());
    low32(blocks.div_ceil(raw.s_blocks_per_group.get().into()))
}

fn set_inodes(raw: &mut raw::SuperBlock, per_group: u32) {
    raw.s_inodes_per_group = per_group.into();
    raw.s_inodes_count = per_group.saturating_mul(groups(raw)).into();
}

fn desc_size(raw: &raw::SuperBlock) -> usize {
    usize::from(raw.s_desc_size.get()).max(32)
}

/// Inodes of a group by the distance of the first two tables, which lie together in a flex group.
fn spaced(source: &Source, table: &Table, raw: &raw::SuperBlock) -> Option<u32> {
    if groups(raw) < 2 {
        return None;
    }
    let second = u32_at(&descriptors(source, table.size, 128), desc_size(raw) + 8);
    // Both in the first group: otherwise each lies in its own.
    let end = first_data_block(table.size) + u64::from(raw.s_blocks_per_group.get());
    let blocks = u64::from(second).checked_sub(table.at >> table.size.shift())?;
    if u64::from(second) >= end {
        return None;
    }
    let inodes = blocks.checked_mul(table.size.bytes().get())? / u64_of(table.inode_size);
    let fits = inodes > 0 && inodes <= 8 * u64::from(table.size.get());
    fits.then(|| low32(inodes))
}

/// Inodes of a group by the last bit that is clear in any inode bitmap.
fn padded(source: &Source, table: &Table, raw: &raw::SuperBlock) -> Option<u32> {
    let looked_at = groups(raw).min(BITMAPS_MAX);
    let size = desc_size(raw);
    let table_of = descriptors(source, table.size, usize_of(looked_at) * size);
    let last_clear = |desc: &[u8]| {
        let at = u64::from(u32_at(desc, 4));
        if at == 0 || u16_at(desc, 18) & INODE_UNINIT != 0 {
            return None;
        }
        let bitmap = read(source, at << table.size.shift(), table.size.len());
        let byte = bitmap.iter().rposition(|byte| *byte != 0xff)?;
        Some(low32(8 * u64_of(byte)) + 8 - bitmap[byte].leading_ones())
    };
    // Only set bits behind the last inode are evidence: a bitmap of zeros says nothing.
    let all = table_of.chunks_exact(size).filter_map(last_clear);
    let (padded, bare): (Vec<u32>, Vec<u32>) = all.partition(|last| *last < 8 * table.size.get());
    padded.into_iter().max().or_else(|| bare.into_iter().max())
}

/// How far the slots from the start of the table are inodes or empty, at least `least`.
fn reached(source: &Source, table: &Table, sb: &SuperBlock, least: u32) -> u32 {
    let per_block = table.size.len() / table.inode_size;
    let mut slots = 0_u32;
    let mut used = 0_u32;
    for block in 0.. {
        let bytes = read(source, table.at + block * table.size.bytes().get(), table.size.len());
        let is_inode =
            |(index, slot): (u32, &[u8])| plausible::judge(slot, InodeNr::new(index), sb).is_some();
        let is_table = (slots + 1..).zip(bytes.chunks_exact(table.inode_size)).any(is_inode);
        let is_past =
            slots >= 8 * table.size.get() || table.at + block * table.size.bytes().get() >= source.len();
        if is_past || (slots >= least && !is_table && bytes.iter().any(|byte| *byte != 0)) {
            break;
        }
        slots += low32(u64_of(per_block));
        if is_table {
            used = slots;
        }
    }
    // Of what is empty nothing is lost.
    used.max(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::{Device, MemoryDevice};
    use hectare_units::Bytes;
    use std::sync::Arc;

    #[test]
    fn nothing_is_inferred_of_nothing() {
        for len in [0, 100, 1 << 20] {
            assert!(infer(&Source::new(Arc::new(MemoryDevice::new(Bytes::new(len))))).is_none());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_understood_or_not(
            bytes in proptest::collection::vec(0_u8.., 0..9000),
            at in 0_u64..40,
        ) {
            let device = MemoryDevice::new(Bytes::kib(64));
            let at = (at << 10).min(65536 - u64_of(bytes.len()));
            device.write_at(Bytes::new(at), &bytes).unwrap();
            let _ = infer(&Source::new(Arc::new(device)));
        }
    }
}
