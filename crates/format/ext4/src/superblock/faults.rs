//! Faults of a superblock that can be parsed: fields that contradict each other, which do not mislead a
//! reader, or not at once, but which a writer must not rely on.
//!
//! A check reports all of them; opening for writing fails with the first. Without
//! descriptors ([`SuperBlock::finds_descriptors`]) nothing can be read either.
//!
//! What it is not: features that can't be written, or a state of the volume, which are no faults.

use super::SuperBlock;
use crate::feature::{Compat, Incompat, RoCompat};

/// Flex groups have at most as many groups as a volume can have.
const FLEX_SHIFT_MAX: u8 = 31;

/// The number that is reserved for a journal.
const JOURNAL: u32 = 8;

impl SuperBlock {
    /// The faults, each as what is to be said of the superblock.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let (features, blocks) = (self.features(), self.geometry().blocks_count);
        if self.reserved_blocks().get() > blocks.get() / 2 {
            faults.push(format!("it reserves {} of {blocks} blocks", self.reserved_blocks()));
        }
        if !features.ro_compat.contains(RoCompat::BIGALLOC) && !self.has_equal_clusters() {
            faults.push("its clusters differ from blocks without bigalloc".to_owned());
        }
        let named_outside = self.raw().s_journal_uuid != [0; 16];
        let outside = named_outside || self.raw().s_journal_dev.get() != 0;
        // A device number alone leads nobody outside.
        if self.journal_inode().is_some() && named_outside {
            faults.push("it names a journal inside and one outside".to_owned());
        }
        let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
        let inside = self.raw().s_journal_inum.get();
        // The reserved number stays where a journal was switched off.
        if !has_journal && (outside || !matches!(inside, 0 | JOURNAL)) {
            faults.push("it names a journal, which it does not have".to_owned());
        }
        if has_journal && self.journal_inode().is_none() && !named_outside {
            faults.push("it names no journal, neither inside nor outside".to_owned());
        }
        let flex_shift = self.raw().s_log_groups_per_flex;
        // Without flex_bg as well: e2fsprogs opens no such volume.
        if flex_shift > FLEX_SHIFT_MAX {
            faults.push(format!("its flex groups have 2^{flex_shift} groups"));
        }
        if !self.finds_descriptors() {
            faults.push(format!("its first meta group is {}", self.geometry().first_meta_bg));
        }
        faults
    }

    /// Whether it names a journal inside, and the device of one outside. The kernel does not mount such a volume;
    /// e2fsck takes no notice, so it is no fault.
    #[must_use]
    pub fn has_stray_journal_device(&self) -> bool {
        self.journal_inode().is_some() && self.raw().s_journal_dev.get() != 0
    }

    /// What is wrong if inodes are to have more extra fields (`s_want_extra_isize`, `s_min_extra_isize`) than their
    /// slots have room for. The kernel does not mount such a volume; e2fsck takes no notice, so it is none of
    /// the faults.
    #[must_use]
    pub fn extra_isize_fault(&self) -> Option<String> {
        let room = self.geometry().inode_size.saturating_sub(super::BASE_SIZE_U32);
        let counts = self.features().ro_compat.contains(RoCompat::EXTRA_ISIZE) && room > 0;
        let raw = self.raw();
        let asked = raw.s_want_extra_isize.get().max(raw.s_min_extra_isize.get());
        (counts && u32::from(asked) > room)
            .then(|| format!("it wants {asked} bytes of extra fields where inodes have room for {room}"))
    }

    /// Whether it says where the group descriptors lie.
    #[must_use]
    pub fn finds_descriptors(&self) -> bool {
        let geometry = self.geometry();
        !self.features().incompat.contains(Incompat::META_BG)
            || geometry.first_meta_bg <= geometry.desc_blocks()
    }

    /// Whether clusters are blocks.
    fn has_equal_clusters(&self) -> bool {
        let raw = self.raw();
        raw.s_clusters_per_group.get() == raw.s_blocks_per_group.get()
            && raw.s_log_cluster_size.get() == raw.s_log_block_size.get()
    }
}
