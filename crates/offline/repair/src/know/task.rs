//! The inodes that have a task: their numbers, and what is known of one.

use crate::know::map::Map;
use crate::know::slot::Slot;
use hectare_ext4::feature::Compat;
use hectare_ext4::quota::Kind as QuotaKind;
use hectare_ext4::raw;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::InodeNr;
use std::collections::BTreeSet;
use zerocopy::little_endian::U32;

/// The inode of the bad blocks, and of the blocks kept for growing.
pub(crate) const BAD_BLOCKS: InodeNr = InodeNr::new(1);
pub(crate) const RESIZE: InodeNr = InodeNr::new(7);
/// The number that is reserved for a journal.
pub(crate) const JOURNAL: InodeNr = InodeNr::new(8);

/// An inode with a task, as it was found.
pub(crate) struct Task {
    pub(crate) slot: Slot,
    pub(crate) map: Map,
    /// Whether its map was sound, and its blocks were claimed.
    pub(crate) sound: bool,
}

/// Files with a task that the superblock does not lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Missing {
    pub(crate) orphan_file: bool,
    pub(crate) project_quota: bool,
}

/// The numbers of the inodes that have a task.
pub(crate) fn numbers(sb: &SuperBlock) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::from([BAD_BLOCKS.get()]);
    numbers.extend(sb.journal_inode().map(InodeNr::get));
    if sb.features().compat.contains(Compat::RESIZE_INODE) {
        numbers.insert(RESIZE.get());
    }
    numbers.extend(sb.orphan_file_inode().map(InodeNr::get));
    numbers.extend(QuotaKind::ALL.into_iter().filter_map(|kind| sb.quota_inode(kind)).map(InodeNr::get));
    numbers
}

/// Removes what leads to a journal inside.
pub(crate) fn forget_journal(raw: &mut raw::SuperBlock) {
    raw.s_journal_inum = 0.into();
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = [U32::new(0); 17];
}
