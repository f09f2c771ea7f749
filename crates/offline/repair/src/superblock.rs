//! The superblock, made to agree with itself, and its backups.

pub(crate) mod features;

use crate::error::Error;
use crate::know::task::JOURNAL;
use crate::know::work::Work;
use hectare_check::What;
use hectare_device::Device;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::raw;
use hectare_ext4::superblock::{STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_units::{GroupNr, InodeNr, high32, low32};
use zerocopy::IntoBytes;

impl Work<'_> {
    /// Changes the superblock; backups follow.
    pub(crate) fn edit_superblock(&mut self, edit: impl FnOnce(&mut raw::SuperBlock)) {
        let mut raw = *self.sb.raw();
        edit(&mut raw);
        if let Ok(sb) = SuperBlock::from_raw(raw) {
            self.sb = sb;
            self.refresh_backups = true;
        }
    }

    /// Fields that contradict each other.
    pub(crate) fn mend_superblock(&mut self) -> Result<(), Error> {
        self.mend_journal_number();
        self.mend_state();
        self.mend_kept_blocks();
        self.mend_desc_size();
        self.mend_high_reserve();
        self.mend_journal_device();
        self.mend_extra_isize();
        let faults = self.sb.faults();
        if faults.is_empty() {
            return Ok(());
        }
        for fault in faults {
            self.mended(What::Superblock, Place::Volume, format!("{fault}: made right"));
        }
        let (blocks, reserved) = (self.geometry().blocks_count.get(), self.sb.reserved_blocks().get());
        let (finds, descs) = (self.sb.finds_descriptors(), self.geometry().desc_blocks());
        let features = *self.sb.features();
        self.edit_superblock(|raw| {
            if reserved > blocks / 2 {
                raw.s_r_blocks_count_lo = low32(blocks / 20).into();
                raw.s_r_blocks_count_hi = high32(blocks / 20).into();
            }
            if !features.ro_compat.contains(RoCompat::BIGALLOC) {
                raw.s_clusters_per_group = raw.s_blocks_per_group;
                raw.s_log_cluster_size = raw.s_log_block_size;
            }
            if raw.s_log_groups_per_flex > 31 {
                raw.s_log_groups_per_flex = 4;
            }
            if !finds {
                raw.s_first_meta_bg = descs.into();
            }
            let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
            if !has_journal {
                raw.s_journal_inum = 0.into();
            }
            if raw.s_journal_inum.get() != 0 || !has_journal {
                raw.s_journal_uuid = [0; 16];
                raw.s_journal_dev = 0.into();
            } else if raw.s_journal_uuid == [0; 16] {
                raw.s_journal_inum = 8.into();
            }
        });
        Ok(())
    }

    /// Descriptors of 32 bytes need no size; one that is there must be a power of two.
    fn mend_desc_size(&mut self) {
        let size = self.sb.raw().s_desc_size.get();
        if size != 0 && !size.is_power_of_two() && !self.sb.features().incompat.contains(Incompat::BIT64) {
            let text = format!("its descriptors had a size of {size}, without 64bit: now none");
            self.mended(What::Superblock, Place::Volume, text);
            self.edit_superblock(|raw| raw.s_desc_size = 0.into());
        }
    }

    /// Without 64bit the reserve has no upper half. The kernel reads it, and keeps everything for root.
    fn mend_high_reserve(&mut self) {
        let high = self.sb.raw().s_r_blocks_count_hi.get();
        if high != 0 && !self.sb.features().incompat.contains(Incompat::BIT64) {
            let text = format!("s_r_blocks_count_hi was {high}, without the feature 64bit: cleared");
            self.mended(What::Superblock, Place::Volume, text);
            self.edit_superblock(|raw| raw.s_r_blocks_count_hi = 0.into());
        }
    }

    /// Inodes can't have more extra fields than their slots have room for. The kernel does not mount such a volume.
    fn mend_extra_isize(&mut self) {
        if let Some(fault) = self.sb.extra_isize_fault() {
            self.mended(What::Superblock, Place::Volume, format!("{fault}: made right"));
            // What mke2fs asks for; slots of more than 128 bytes have room for it.
            let usual = 32;
            self.edit_superblock(|raw| {
                raw.s_want_extra_isize = usual.into();
                raw.s_min_extra_isize = usual.into();
            });
        }
    }

    /// With a journal inside no device is that of one. The kernel does not mount a volume with both.
    fn mend_journal_device(&mut self) {
        let device = self.sb.raw().s_journal_dev.get();
        if self.sb.journal_inode().is_some() && device != 0 && self.sb.raw().s_journal_uuid == [0; 16] {
            let text = format!("it has an internal journal, but s_journal_dev was {device:#x}: cleared");
            self.mended(What::Superblock, Place::Volume, text);
            self.edit_superblock(|raw| raw.s_journal_dev = 0.into());
        }
    }

    /// Without an inode for them no blocks are kept for growing: the metadata that lies there would be moved.
    fn mend_kept_blocks(&mut self) {
        let kept = self.geometry().reserved_gdt_blocks;
        if kept > 0 && !self.sb.features().compat.contains(Compat::RESIZE_INODE) {
            let text = format!("s_reserved_gdt_blocks was {kept}, but there is no resize inode: cleared");
            self.mended(What::Superblock, Place::Volume, text);
            self.edit_superblock(|raw| raw.s_reserved_gdt_blocks = 0.into());
        }
    }

    /// The journal inside has the number that is reserved for it, or one of the volume's.
    fn mend_journal_number(&mut self) {
        let (first, last) = (self.sb.first_inode(), self.geometry().inodes_count());
        let can_be = |nr: InodeNr| nr == JOURNAL || nr >= first && nr.get() <= last;
        if let Some(nr) = self.sb.journal_inode().filter(|nr| !can_be(*nr)) {
            let text = format!("its journal was inode {nr}, which can't be: now {JOURNAL}");
            self.mended(What::Superblock, Place::Volume, text);
            self.edit_superblock(|raw| raw.s_journal_inum = JOURNAL.get().into());
        }
    }

    /// Takes off the marks that keep writers away; [`Work::write_superblock`] does, whatever else was wrong.
    fn mend_state(&mut self) {
        let (state, has_journal) = (self.sb.state(), self.sb.features().compat.contains(Compat::HAS_JOURNAL));
        let was = match () {
            () if state & STATE_ERROR != 0 => "it was marked as having errors",
            () if state & STATE_VALID == 0 && !has_journal => "it was not cleanly closed",
            () => return,
        };
        self.mended(What::Superblock, Place::Volume, format!("{was}: marked as clean"));
    }

    /// Writes the superblock with the counts, and the backups of it and of the descriptors if they are to
    /// follow.
    pub(crate) fn write_superblocks(&mut self) -> Result<(), Error> {
        self.write_superblock()?;
        if std::mem::take(&mut self.refresh_backups) {
            self.write_backups()?;
        }
        Ok(())
    }

    /// Writes the superblock, and no backups: those may be needed yet to mend descriptors.
    pub(crate) fn write_superblock(&mut self) -> Result<(), Error> {
        self.sb.set_state(STATE_VALID | self.sb.state() & !STATE_ERROR & !STATE_VALID);
        let mut raw = *self.sb.raw();
        let bytes = raw.as_mut_bytes();
        // What is known of errors is out of date: 0x194 to 0x1ff, and their codes and times.
        bytes[0x194..0x200].fill(0);
        bytes[0x278..0x27c].fill(0);
        if let Ok(sb) = SuperBlock::from_raw(raw) {
            self.sb = sb;
        }
        Ok(self.device.write_at(SUPERBLOCK_OFFSET, &self.sb.render(GroupNr::new(0)))?)
    }

    fn write_backups(&mut self) -> Result<(), Error> {
        let geometry = self.geometry().clone();
        let old = geometry.old_desc_blocks();
        for group in (1..geometry.groups()).map(GroupNr::new).filter(|group| geometry.has_super(*group)) {
            let at = geometry.super_block(group);
            self.device.write_at(at.offset(geometry.block_size), &self.sb.render(group))?;
            for index in 0..old {
                let bytes = self.block(geometry.desc_block(index))?;
                self.put_block(hectare_units::BlockNr::new(at.get() + 1 + u64::from(index)), &bytes)?;
            }
        }
        for index in old..geometry.desc_blocks() {
            let bytes = self.block(geometry.desc_block(index))?;
            for at in geometry.desc_block_backups(index) {
                self.put_block(at, &bytes)?;
            }
        }
        Ok(())
    }
}
