//! Adds a journal to a volume, or takes it away.
//!
//! A new journal lies around the middle of the volume, in the size that a formatter would choose or in that
//! asked for. The superblock has a copy of its map, for repairs.

use crate::change::Changes;
use crate::error::{Error, Result};
use crate::file::{NewFile, remove};
use crate::volume::Volume;
use hectare_ext4::feature::Compat;
use hectare_journal::format::JournalSuperblock;
use hectare_mkfs::default_journal_blocks;
use hectare_units::{BlockNr, GroupNr, InodeNr, high32, low32};

const JOURNAL: InodeNr = InodeNr::new(8);
/// The fewest and most blocks of a journal.
const BLOCKS: std::ops::RangeInclusive<u64> = 1024..=10_240_000;
/// `s_jnl_backup_type`: the superblock has a copy of the journal's map.
const BACKUP_BLOCKS: u8 = 1;

/// Takes the journal away. It is empty: a volume that needs recovery is refused.
pub(crate) fn take_away(volume: &mut Volume<'_>) -> Result<()> {
    let external = volume.sb().journal_inode().is_none();
    if let Some(nr) = volume.sb().journal_inode() {
        let clusters = remove(volume, nr)?;
        shift_overhead(volume, |overhead| overhead.saturating_sub(clusters))?;
    } else if external && volume.sb().raw().s_journal_uuid != [0; 16] {
        let what = "its journal lies on another device: tune2fs -O ^has_journal knows how to leave it";
        return Err(Error::refused(what));
    }
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() & !Compat::HAS_JOURNAL.bits()).into();
        raw.s_journal_inum = 0.into();
        raw.s_journal_dev = 0.into();
        raw.s_jnl_blocks = [0.into(); 17];
        raw.s_jnl_backup_type = 0;
    })
}

/// Adds a journal.
pub(crate) fn add(volume: &mut Volume<'_>, changes: &Changes) -> Result<()> {
    let (blocks, fast_commit) = size(volume, changes)?;
    let groups = volume.geometry().groups();
    let file = NewFile {
        nr: JOURNAL,
        blocks: low32(blocks + fast_commit),
        goal: GroupNr::new(groups / 2),
        now: changes.now,
    };
    let before = volume.free_blocks()?;
    let (inode, runs) = file.make(volume)?;
    let block_size = volume.geometry().block_size;
    let head = JournalSuperblock::new(block_size, file.blocks, low32(fast_commit), volume.sb().uuid());
    let mut block = head.render().to_vec();
    block.resize(block_size.len(), 0);
    let first = runs.first().map_or(0, |run| run.start);
    volume.write(BlockNr::new(first), &block)?;
    volume.set_inode(JOURNAL, &inode)?;
    let shift = volume.geometry().cluster_ratio_shift;
    let content: u64 = runs.iter().map(|run| (run.end - run.start).div_ceil(1 << shift)).sum();
    debug_assert!(volume.free_blocks()? < before, "a journal takes space");
    shift_overhead(volume, |overhead| overhead.saturating_add(content))?;
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits()).into();
        raw.s_journal_inum = JOURNAL.get().into();
        raw.s_jnl_backup_type = BACKUP_BLOCKS;
        for (field, bytes) in raw.s_jnl_blocks.iter_mut().zip(inode.block.chunks_exact(4)) {
            *field = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
        }
        raw.s_jnl_blocks[15] = high32(inode.size).into();
        raw.s_jnl_blocks[16] = low32(inode.size).into();
    })
}

/// Blocks of the journal and of its fast-commit area.
fn size(volume: &mut Volume<'_>, changes: &Changes) -> Result<(u64, u64)> {
    let geometry = volume.geometry();
    let shift = geometry.block_size.shift();
    let usual = default_journal_blocks(geometry.blocks_count).map(u64::from);
    let blocks = match (changes.journal_mib, usual) {
        (Some(mib), _) => u64::from(mib) << 20 >> shift,
        (None, Some(usual)) => usual,
        (None, None) => {
            return Err(Error::refused(
                "the volume is too small for a journal: one has at least 1024 blocks",
            ));
        }
    };
    if !BLOCKS.contains(&blocks) {
        let reason = format!("-J size: that is {blocks} blocks; a journal has 1024 to 10240000");
        return Err(Error::refused(reason));
    }
    let has_fast = volume.sb().features().compat.contains(Compat::FAST_COMMIT);
    let fast_commit = match changes.fast_commit_kib {
        Some(kib) => u64::from(kib) << 10 >> shift,
        None if has_fast => usual.unwrap_or(blocks) / 64,
        None => 0,
    };
    if blocks + fast_commit > volume.free_blocks()? {
        return Err(Error::refused("the journal does not fit the free space: name a smaller -J size"));
    }
    Ok((blocks, fast_commit))
}

/// Changes the count of clusters that no file can have, where it is known.
fn shift_overhead(volume: &mut Volume<'_>, change: impl FnOnce(u64) -> u64) -> Result<()> {
    let known = u64::from(volume.sb().raw().s_overhead_clusters.get());
    if known == 0 {
        return Ok(());
    }
    volume.edit(|raw| raw.s_overhead_clusters = u32::try_from(change(known)).unwrap_or(0).into())
}
