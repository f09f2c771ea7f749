//! The journal of a fresh volume: how large it is, and its first block.
//!
//! An unused journal is a jbd2 superblock (version 2, all fields big-endian) and zeros. Its features are
//! left off: the kernel turns on what it uses at the first mount.

use super::options::FormatOptions;
use crate::error::{Error, Result};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::Geometry;
use hectare_journal::format::JournalSuperblock;
use hectare_units::{BlockSize, Blocks, GroupNr, low32};

/// Blocks of a journal and, at its end, of the fast-commit area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalSize {
    pub(crate) blocks: u32,
    pub(crate) fast_commit: u32,
}

impl JournalSize {
    pub(crate) fn total(self) -> u64 {
        u64::from(self.blocks) + u64::from(self.fast_commit)
    }
}

/// The fewest and most blocks of a journal.
const BLOCKS: std::ops::RangeInclusive<u64> = 1024..=10_240_000;

/// The journal mke2fs gives a volume of `volume` blocks; `None` if that is too small for one.
#[must_use]
pub fn default_blocks(volume: Blocks) -> Option<u32> {
    const KI: u64 = 1024;
    Some(match volume.get() {
        n if n < 2 * KI => return None,
        n if n < 32 * KI => 1024,
        n if n < 256 * KI => 4096,
        n if n < 512 * KI => 8192,
        n if n < 4096 * KI => 16384,
        n if n < 8192 * KI => 32768,
        n if n < 16384 * KI => 65536,
        n if n < 32768 * KI => 131_072,
        _ => 262_144,
    })
}

/// The size of the journal, `None` without one.
pub(crate) fn size(options: &FormatOptions, geometry: &Geometry) -> Result<Option<JournalSize>> {
    if !geometry.features.compat.contains(Compat::HAS_JOURNAL) || options.journal_device.is_some() {
        return Ok(None);
    }
    let usual = default_blocks(geometry.blocks_count).map_or(0, u64::from);
    let blocks = match options.journal_mib {
        None => usual,
        Some(mib) => mib.saturating_mul(1 << 20) >> geometry.block_size.shift(),
    };
    let option = format!("-J size={}", options.journal_mib.unwrap_or(0));
    if !BLOCKS.contains(&blocks) {
        return Err(Error::option(
            option,
            format!("that is {blocks} blocks; a journal has 1024 to 10240000, change its size or -b"),
        ));
    }
    // Of what the journal would usually have, whatever it gets.
    let fast_commit = if geometry.features.compat.contains(Compat::FAST_COMMIT) { usual / 64 } else { 0 };
    if options.journal_mib.is_some() && blocks + fast_commit > free_before_tables(geometry) / 2 {
        return Err(Error::option(option, "it takes more than half of the free space; make it smaller"));
    }
    Ok(Some(JournalSize { blocks: low32(blocks), fast_commit: low32(fast_commit) }))
}

/// What mke2fs takes for free when it judges a journal's size: all but base metadata and, without flex
/// groups, each group's own bitmaps and table.
fn free_before_tables(geometry: &Geometry) -> u64 {
    let own = if geometry.flex_shift > 0 { 0 } else { 2 + geometry.itable_blocks() };
    let taken = |group| u64::from(geometry.base_meta_blocks(GroupNr::new(group))) + u64::from(own);
    let taken: u64 = (0..geometry.groups()).map(taken).sum();
    let all = geometry.blocks_count.get() - u64::from(geometry.first_data_block);
    all.saturating_sub(taken) >> geometry.cluster_ratio_shift << geometry.cluster_ratio_shift
}

/// The first block of a fresh journal.
pub(crate) fn superblock(size: JournalSize, block_size: u32, uuid: &[u8; 16]) -> Vec<u8> {
    let block_size = BlockSize::from_bytes(block_size.into()).expect("a geometry's block size");
    let superblock = JournalSuperblock::new(block_size, low32(size.total()), size.fast_commit, *uuid);
    let mut block = superblock.render().to_vec();
    block.resize(block_size.len(), 0);
    block
}

/// Blocks of the orphan file: by the size of the volume, 32 to 512.
#[must_use]
pub fn orphan_blocks(volume: Blocks) -> u32 {
    low32((volume.get() / 4096).clamp(32, 512))
}

/// Blocks of lost+found: 16 KiB, but 2 to 12 blocks (those an inode maps directly); one less with inline
/// data, as in mke2fs.
pub(crate) fn lost_and_found_blocks(geometry: &Geometry) -> u32 {
    let blocks = (16384 / geometry.block_size.get()).clamp(2, 12);
    blocks - u32::from(geometry.features.incompat.contains(Incompat::INLINE_DATA))
}
