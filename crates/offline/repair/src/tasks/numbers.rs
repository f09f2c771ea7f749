//! The numbers of inodes with a task, as the superblock says them. One that can't be gives way to that
//! which is
//! reserved for the task, to a file that looks like it, or to a new one.
//!
//! Hazard: what has a task is written over. A file that only a damaged number makes an orphan file or a
//! quota file
//! must not be: it has to look like one.

use crate::error::Error;
use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::task::{JOURNAL, Missing, Task, forget_journal};
use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::extent::raw::MAGIC;
use hectare_ext4::feature::{Compat, RoCompat};
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::orphan::OrphanBlock;
use hectare_ext4::quota::Kind as QuotaKind;
use hectare_units::{BlockNr, InodeNr, index_of, join32};

/// Inodes that are looked at for a file whose number is lost: mkfs makes them first.
const SEARCHED: u32 = 64;
/// Blocks of a file that are looked at.
const BLOCKS_MAX: u64 = 512;
/// With what a quota file begins: of users, of groups, of projects.
const QUOTA_MAGIC: [u32; 3] = [0xd9c0_1f11, 0xd9c0_1927, 0xd9c0_3f14];

impl Work<'_> {
    /// Makes the numbers of all inodes with a task right.
    pub(crate) fn mend_task_numbers(&mut self) -> Result<(), Error> {
        self.mend_journal_inode()?;
        for (kind, reserved) in [(QuotaKind::User, 3), (QuotaKind::Group, 4)] {
            let Some(nr) = self.sb.quota_inode(kind) else { continue };
            let home = InodeNr::new(reserved);
            if nr == home {
                continue;
            }
            if !self.is_file(home)? && self.is_quota_file(nr, kind)? {
                self.copy_quota_inode(nr, home)?;
            }
            let text = format!("its {kind} quota file was inode {nr}, which can't be: now {home}");
            self.mended(What::Superblock, Place::Volume, text);
            self.set_quota_inode(kind, home);
        }
        self.mend_stray_quotas();
        self.mend_left_journal();
        if let Some(nr) = self.sb.quota_inode(QuotaKind::Project)
            && !self.is_quota_file(nr, QuotaKind::Project)?
        {
            self.find_project_quota(nr)?;
        }
        let compat = self.sb.features().compat;
        if compat.contains(Compat::ORPHAN_FILE) {
            self.find_orphan_file()?;
            // One that is there ends when its orphans have ended.
            if self.missing.orphan_file && !compat.contains(Compat::HAS_JOURNAL) {
                self.missing.orphan_file = false;
                self.drop_orphan_file();
            }
        } else if self.sb.raw().s_orphan_file_inum.get() != 0 {
            let given = self.sb.raw().s_orphan_file_inum.get();
            let text = format!("it named inode {given} as the orphan file, without orphan_file: cleared");
            self.mended(What::Superblock, Place::Volume, text);
            self.edit_superblock(|raw| raw.s_orphan_file_inum = 0.into());
        }
        Ok(())
    }

    /// Gives the reserved inode what a quota file has that lies in another. That may have a name, and is a file
    /// from then on: it gets copies of its blocks, as they have two owners.
    fn copy_quota_inode(&mut self, from: InodeNr, home: InodeNr) -> Result<(), Error> {
        if let (Some(from), Some(mut slot)) = (self.slot(from)?, self.slot(home)?) {
            slot.bytes = from.bytes;
            slot.raw().i_links_count = 1.into();
            self.put_slot(&mut slot)?;
        }
        Ok(())
    }

    /// Without the feature quota no inode is a quota file.
    fn mend_stray_quotas(&mut self) {
        let raw = self.sb.raw();
        let named = [raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get(), raw.s_prj_quota_inum.get()];
        if self.sb.features().ro_compat.contains(RoCompat::QUOTA) || named == [0; 3] {
            return;
        }
        let text =
            format!("it named the inodes {named:?} as quota files, without the feature quota: cleared");
        self.mended(What::Superblock, Place::Volume, text);
        QuotaKind::ALL.into_iter().for_each(|kind| self.set_quota_inode(kind, InodeNr::new(0)));
    }

    /// Without the feature, the number of a journal is that of one that was taken away, if the check found
    /// nothing wrong with it.
    fn mend_left_journal(&mut self) {
        let nr = self.sb.raw().s_journal_inum.get();
        let has_journal = self.sb.features().compat.contains(Compat::HAS_JOURNAL);
        if nr == 0 || has_journal || !self.suspects.has(What::Journal) {
            return;
        }
        let text = format!("it named inode {nr} as its journal, without the feature has_journal: cleared");
        self.mended(What::Superblock, Place::Volume, text);
        self.edit_superblock(forget_journal);
    }

    fn set_quota_inode(&mut self, kind: QuotaKind, nr: InodeNr) {
        self.edit_superblock(|raw| match kind {
            QuotaKind::User => raw.s_usr_quota_inum = nr.get().into(),
            QuotaKind::Group => raw.s_grp_quota_inum = nr.get().into(),
            QuotaKind::Project => raw.s_prj_quota_inum = nr.get().into(),
        });
    }

    /// The journal is in the inode that is reserved for it, if that is a file; if it is none, the
    /// superblock's
    /// copy of its map may say where it lies.
    pub(crate) fn mend_journal_inode(&mut self) -> Result<(), Error> {
        let Some(nr) = self.sb.journal_inode() else { return Ok(()) };
        if nr != JOURNAL && self.is_file(JOURNAL)? {
            let text = format!("its journal was inode {nr}, and {JOURNAL} is one: now that");
            self.mended(What::Superblock, Place::Volume, text);
            self.edit_superblock(|raw| raw.s_journal_inum = JOURNAL.get().into());
            return Ok(());
        }
        let Some(slot) = self.slot(nr)?.filter(|_| nr == JOURNAL) else { return Ok(()) };
        if slot.kind() == Some(Kind::File) {
            return Ok(());
        }
        let Some(mut copy) = self.journal_by_copy(&slot) else { return Ok(()) };
        let log = self.log_in(&copy)?.and_then(|place| self.read_log(&place));
        if log.is_ok() {
            self.mended(What::Journal, Place::Inode(nr), "its inode is restored from the superblock's copy");
            self.put_slot(&mut copy)?;
        }
        Ok(())
    }

    /// The journal's inode as the superblock has it.
    fn journal_by_copy(&mut self, slot: &Slot) -> Option<Slot> {
        let raw = *self.sb.raw();
        if raw.s_jnl_backup_type != 1 || raw.s_jnl_blocks.iter().all(|word| word.get() == 0) {
            return None;
        }
        let mut copy = slot.clone();
        self.fresh_task(&mut copy, 0o600);
        let words: Vec<u8> =
            raw.s_jnl_blocks[..15].iter().flat_map(|word| word.get().to_le_bytes()).collect();
        copy.raw().i_block.copy_from_slice(&words);
        let mapped = words.first_chunk().map(|two| u16::from_le_bytes(*two)) == Some(MAGIC);
        copy.set_flag(InodeFlags::EXTENTS, mapped);
        copy.set_size(join32(raw.s_jnl_blocks[16].get(), raw.s_jnl_blocks[15].get()));
        Some(copy)
    }

    fn is_file(&self, nr: InodeNr) -> Result<bool, Error> {
        let slot = self.slot(nr)?;
        Ok(slot.is_some_and(|slot| slot.kind() == Some(Kind::File) && slot.view().links() > 0))
    }

    /// Whether an inode can have a task: a file with a number that is neither reserved nor another's.
    fn can_have_task(&self, nr: InodeNr) -> Result<bool, Error> {
        let raw = self.sb.raw();
        let all = [
            self.sb.journal_inode().map_or(0, InodeNr::get),
            raw.s_orphan_file_inum.get(),
            raw.s_usr_quota_inum.get(),
            raw.s_grp_quota_inum.get(),
            raw.s_prj_quota_inum.get(),
        ];
        let once = all.iter().filter(|other| **other == nr.get()).count() <= 1;
        Ok(once && nr >= self.sb.first_inode() && self.is_file(nr)?)
    }

    /// Whether an inode is a file that begins as a quota file does.
    fn is_quota_file(&self, nr: InodeNr, kind: QuotaKind) -> Result<bool, Error> {
        if !self.can_have_task(nr)? {
            return Ok(false);
        }
        let Some(block) = self.blocks_in(nr, 1)?.pop() else { return Ok(false) };
        let found = self.block(block)?.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        Ok(QUOTA_MAGIC.get(kind.index()) == Some(&found))
    }

    /// Whether an inode is a file with a block of an orphan file.
    fn is_orphan_file(&self, nr: InodeNr) -> Result<bool, Error> {
        if !self.can_have_task(nr)? {
            return Ok(false);
        }
        for at in self.blocks_in(nr, BLOCKS_MAX)? {
            if OrphanBlock::new(&self.block(at)?, at, None).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an inode is a file of nothing but zeros, in which nothing can be lost.
    fn holds_zeros(&self, nr: InodeNr) -> Result<bool, Error> {
        if !self.can_have_task(nr)? {
            return Ok(false);
        }
        let blocks = self.blocks_in(nr, BLOCKS_MAX + 1)?;
        if blocks.is_empty() || blocks.len() > index_of(BLOCKS_MAX) {
            return Ok(false);
        }
        for at in blocks {
            if self.block(at)?.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first blocks of a file.
    fn blocks_in(&self, nr: InodeNr, most: u64) -> Result<Vec<BlockNr>, Error> {
        let Some(slot) = self.slot(nr)? else { return Ok(Vec::new()) };
        let (mut blocks, mut left) = (Vec::new(), most);
        for extent in self.read_map(&slot)?.extents {
            let some = left.min(u64::from(extent.len));
            blocks.extend((0..some).map(|i| BlockNr::new(extent.physical.get() + i)));
            left -= some;
        }
        Ok(blocks)
    }

    /// The first inodes that are not reserved.
    fn searched(&self) -> impl Iterator<Item = InodeNr> + use<> {
        let first = self.sb.first_inode().get();
        let end = first.saturating_add(SEARCHED).min(self.geometry().inodes_count().saturating_add(1));
        (first..end).map(InodeNr::new)
    }

    fn find_project_quota(&mut self, given: InodeNr) -> Result<(), Error> {
        self.set_quota_inode(QuotaKind::Project, InodeNr::new(0));
        for nr in self.searched() {
            if self.is_quota_file(nr, QuotaKind::Project)? {
                let text = format!("its project quota file was inode {given}, which is none: now {nr}");
                self.mended(What::Superblock, Place::Volume, text);
                self.set_quota_inode(QuotaKind::Project, nr);
                return Ok(());
            }
        }
        let text = format!("its project quota file was inode {given}, which is none: it is made anew");
        self.mended(What::Superblock, Place::Volume, text);
        self.missing.project_quota = true;
        Ok(())
    }

    /// From now on the volume has no orphan file.
    pub(crate) fn drop_orphan_file(&mut self) {
        self.edit_superblock(|raw| {
            let compat = Compat::from_bits_retain(raw.s_feature_compat.get());
            raw.s_feature_compat = (compat - Compat::ORPHAN_FILE).bits().into();
            raw.s_orphan_file_inum = 0.into();
        });
    }

    fn find_orphan_file(&mut self) -> Result<(), Error> {
        let given = self.sb.raw().s_orphan_file_inum.get();
        if self.is_orphan_file(InodeNr::new(given))? || self.holds_zeros(InodeNr::new(given))? {
            return Ok(());
        }
        let set = |work: &mut Self, nr: u32| work.edit_superblock(|raw| raw.s_orphan_file_inum = nr.into());
        set(self, 0);
        for nr in self.searched() {
            if self.is_orphan_file(nr)? {
                let text = format!("its orphan file was inode {given}, which is none: now {nr}");
                self.mended(What::Superblock, Place::Volume, text);
                set(self, nr.get());
                return Ok(());
            }
        }
        let has_journal = self.sb.features().compat.contains(Compat::HAS_JOURNAL);
        let end = if has_journal { "it is made anew" } else { "without a journal it needs none" };
        let text = format!("its orphan file was inode {given}, which is none: {end}");
        self.mended(What::Superblock, Place::Volume, text);
        self.missing.orphan_file = true;
        Ok(())
    }

    /// Makes the files that the superblock does not lead to, in free inodes.
    pub(crate) fn make_missing_tasks(&mut self) -> Result<(), Error> {
        let Missing { orphan_file, project_quota } = self.missing;
        for (_, is_orphan_file) in
            [(orphan_file, true), (project_quota, false)].into_iter().filter(|(is, _)| *is)
        {
            let Some(slot) = self.take_inode()? else {
                self.lost(What::Superblock, Place::Volume, "no inode for that file: the volume goes without");
                if is_orphan_file {
                    self.drop_orphan_file();
                }
                continue;
            };
            let nr = slot.nr;
            if is_orphan_file {
                self.edit_superblock(|raw| raw.s_orphan_file_inum = nr.get().into());
            } else {
                self.set_quota_inode(QuotaKind::Project, nr);
            }
            self.tasks.insert(nr.get(), Task { slot, map: Map::default(), sound: false });
        }
        Ok(())
    }
}
