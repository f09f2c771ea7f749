//! Adds a journal to a volume, or takes it away.
//!
//! A new journal lies around the middle of the volume, in the size that a formatter would choose or in that
//! asked for. The superblock has a copy of its map, for repairs.

use crate::change::Changes;
use crate::error::{Error, Result};
use crate::file::{NewFile, remove};
use crate::tree::FileMap;
use crate::volume::Volume;
use hectare_ext4::feature::{Compat, Features};
use hectare_ext4::inode::Inode;
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
    if let Some(nr) = volume.sb().journal_inode() {
        let clusters = remove(volume, nr)?;
        volume.shift_overhead(|overhead| overhead.saturating_sub(clusters))?;
    }
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() & !Compat::HAS_JOURNAL.bits()).into();
        raw.s_journal_inum = 0.into();
        raw.s_journal_dev = 0.into();
        raw.s_jnl_blocks = [0.into(); 17];
        raw.s_jnl_backup_type = 0;
    })
}

/// Copies the map of the journal's inode to the superblock if it has changed.
pub(crate) fn renew_backup(volume: &mut Volume<'_>) -> Result<()> {
    match volume.sb().journal_inode() {
        Some(nr) => {
            let inode = volume.inode(nr)?;
            back_up(volume, &inode)
        }
        None => Ok(()),
    }
}

/// Blocks of a journal and of its fast-commit area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    blocks: u64,
    fast_commit: u64,
}

impl Size {
    /// One that holds so many blocks.
    pub(crate) fn holding(blocks: u64) -> Self {
        // Descriptors name some hundred blocks each.
        Self { blocks: (blocks + blocks / 32).clamp(*BLOCKS.start(), *BLOCKS.end()), fast_commit: 0 }
    }
}

/// Whether a journal inside the volume is asked for by its size or place.
pub(crate) fn is_asked_for(changes: &Changes) -> bool {
    changes.journal_mib.is_some() || changes.fast_commit_kib.is_some() || changes.journal_location.is_some()
}

/// The size of the journal that the volume has.
pub(crate) fn present(volume: &mut Volume<'_>) -> Result<Size> {
    let head = head(volume)?;
    let has_fast = volume.sb().features().compat.contains(Compat::FAST_COMMIT);
    let fast_commit = if has_fast { u64::from(head.fast_commit_blocks()) } else { 0 };
    Ok(Size { blocks: head.blocks().get().saturating_sub(fast_commit), fast_commit })
}

/// The journal that takes the place of the one that the volume has if that leaves no room for fast commits:
/// the kernel does not mount such a volume.
pub(crate) fn with_fast_commits(volume: &mut Volume<'_>) -> Result<Option<Size>> {
    let head = head(volume)?;
    let area = u64::from(head.fast_commit_blocks());
    if head.blocks().get().saturating_sub(area) >= *BLOCKS.start() {
        return Ok(None);
    }
    let present = present(volume)?;
    let usual = default_journal_blocks(volume.geometry().blocks_count).map_or(present.blocks, u64::from);
    Ok(Some(Size { fast_commit: usual / 64, ..present }))
}

/// The superblock of the journal that the volume has.
fn head(volume: &mut Volume<'_>) -> Result<JournalSuperblock> {
    let missing = || Error::refused("the volume has no journal inside");
    let nr = volume.sb().journal_inode().ok_or_else(missing)?;
    let inode = volume.inode(nr)?;
    let (_, first) = FileMap::of(volume, nr, &inode)?.blocks().next().ok_or_else(missing)?;
    Ok(JournalSuperblock::parse(&volume.read(first)?)?)
}

/// Adds a journal.
pub(crate) fn add(volume: &mut Volume<'_>, size: Size, changes: &Changes) -> Result<()> {
    if size.blocks + size.fast_commit > volume.free_blocks()? {
        return Err(Error::refused("the journal does not fit the free space: name a smaller -J size"));
    }
    let middle = volume.geometry().first_block(GroupNr::new(volume.geometry().groups() / 2));
    let file = NewFile {
        nr: JOURNAL,
        blocks: low32(size.blocks + size.fast_commit),
        goal: changes.journal_location.unwrap_or(middle),
        now: changes.now,
    };
    let fast_commit = size.fast_commit;
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
    volume.shift_overhead(|overhead| overhead.saturating_add(content))?;
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits()).into();
        raw.s_journal_inum = JOURNAL.get().into();
    })?;
    back_up(volume, &inode)
}

/// Copies the map of the journal's inode to the superblock.
fn back_up(volume: &mut Volume<'_>, inode: &Inode) -> Result<()> {
    volume.edit(|raw| {
        raw.s_jnl_backup_type = BACKUP_BLOCKS;
        for (field, bytes) in raw.s_jnl_blocks.iter_mut().zip(inode.block.chunks_exact(4)) {
            *field = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
        }
        raw.s_jnl_blocks[15] = high32(inode.size).into();
        raw.s_jnl_blocks[16] = low32(inode.size).into();
    })
}

/// The size of a new journal.
pub(crate) fn size(volume: &mut Volume<'_>, changes: &Changes, goal: &Features) -> Result<Size> {
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
    if let Some(at) = changes.journal_location.filter(|at| *at >= BlockNr::new(geometry.blocks_count.get())) {
        return Err(Error::refused(format!("-J location: block {at} is not on the volume")));
    }
    let fast_commit = match changes.fast_commit_kib {
        Some(kib) => u64::from(kib) << 10 >> shift,
        None if goal.compat.contains(Compat::FAST_COMMIT) => usual.unwrap_or(blocks) / 64,
        None => 0,
    };
    Ok(Size { blocks, fast_commit })
}
