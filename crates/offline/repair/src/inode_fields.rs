//! The fields of an inode: what means the same in every kind of inode, and its size and count of blocks.

use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::work::Work;
use crate::superblock::features::Feature;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::inode::InodeFlags;
use hectare_units::{high32, low16, low32};

impl Work<'_> {
    /// Says that a checksum was wrong, where nothing else was.
    pub(crate) fn note_checksum(&mut self, slot: &Slot) {
        let silent = self.mends.last_place() != Some(Place::Inode(slot.nr));
        if let Some(seed) = self.sb.seed().filter(|_| silent)
            && slot.view().wrong_checksum(slot.nr, seed).is_some()
        {
            self.mended(What::Inode, Place::Inode(slot.nr), "its checksum is wrong: made right");
        }
    }

    /// Fields that mean the same in every kind of inode.
    pub(crate) fn mend_fields(&mut self, slot: &mut Slot) {
        let features = *self.sb.features();
        let place = Place::Inode(slot.nr);
        if slot.raw().i_obso_faddr.get() != 0 {
            self.mended(What::Inode, place, "its obsolete fragment address is cleared");
            slot.raw().i_obso_faddr = 0.into();
        }
        if slot.raw().i_blocks_high.get() != 0 && !features.ro_compat.contains(RoCompat::HUGE_FILE) {
            self.mended(What::Inode, place, "the high half of its block count is cleared");
            slot.raw().i_blocks_high = 0.into();
        }
        if slot.raw().i_file_acl_high.get() != 0 && !features.incompat.contains(Incompat::BIT64) {
            self.mended(What::Inode, place, "the high half of its attribute block is cleared");
            slot.raw().i_file_acl_high = 0.into();
        }
        let room = self.geometry().inode_size - 128;
        let extra = slot.view().extra_isize();
        // Content inside the inode needs room for its attribute.
        let none = extra == 0 && !slot.has(InodeFlags::INLINE_DATA);
        if room > 0 && !none && (extra < 4 || u32::from(extra) > room || !extra.is_multiple_of(4)) {
            let want = self.sb.want_extra_isize();
            self.mended(What::Inode, place, format!("its extra size was {extra}, now {want}"));
            slot.set_extra_isize(want);
        }
    }

    /// A size that the map can't hold: its upper half is wrong. Where the lower one can't be either, the
    /// map says
    /// how long the file is.
    pub(crate) fn mend_too_large(&mut self, slot: &mut Slot, map: &Map) {
        let (size, block_size) = (slot.view().size(), self.geometry().block_size);
        if size <= slot.view().size_max(block_size) {
            return;
        }
        let (low, bits) = (size & u64::from(u32::MAX), block_size.shift());
        let reached = map.written_end().saturating_sub(1) << bits;
        let len = if low >= reached && low <= map.end() << bits { low } else { map.end() << bits };
        let text = format!("its size was {size}, more than its map can hold: now {len}");
        self.mended(What::Inode, Place::Inode(slot.nr), text);
        slot.set_size(len);
    }

    /// A file of 2 GiB or more needs a feature, also one with a task.
    pub(crate) fn note_large_file(&mut self, slot: &Slot) {
        let large = slot.view().size() > i64::from(i32::MAX).cast_unsigned();
        if large && !self.sb.features().ro_compat.contains(RoCompat::LARGE_FILE) {
            let why = "a file is larger than 2 GiB: large_file is set";
            self.set_feature(Feature::RoCompat(RoCompat::LARGE_FILE), why);
        }
    }

    /// Says what is wrong with a map.
    pub(crate) fn tell_map(&mut self, slot: &Slot, map: &Map) {
        let place = Place::Inode(slot.nr);
        match &map.broken {
            Some(reason) if map.loses => {
                self.lost(What::Map, place, format!("{reason}: its map is made anew from what is sound"));
            }
            Some(reason) => self.mended(What::Map, place, format!("{reason}: its map is made anew")),
            None => {}
        }
    }

    /// So many clusters in the unit of an inode's count.
    pub(crate) fn stored_count(&self, slot: &Slot, clusters: u64) -> u64 {
        let blocks = clusters << self.geometry().cluster_ratio_shift;
        let huge =
            self.sb.features().ro_compat.contains(RoCompat::HUGE_FILE) && slot.has(InodeFlags::HUGE_FILE);
        if huge { blocks } else { blocks << (self.geometry().block_size.shift() - 9) }
    }

    /// Sets the count of blocks to what was found.
    pub(crate) fn set_block_count(&mut self, slot: &mut Slot, clusters: u64) {
        let huge_file = self.sb.features().ro_compat.contains(RoCompat::HUGE_FILE);
        let count = self.stored_count(slot, clusters);
        let stored = slot.view().stored_blocks(&self.sb);
        if stored == count {
            return;
        }
        let text = format!("its block count was {stored}, it holds {count}");
        self.mended(What::Inode, Place::Inode(slot.nr), text);
        slot.raw().i_blocks_lo = low32(count).into();
        if huge_file {
            slot.raw().i_blocks_high = low16(u64::from(high32(count))).into();
        }
    }
}
