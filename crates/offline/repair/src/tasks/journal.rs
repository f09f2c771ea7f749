//! The journal: replayed before anything else is judged, and made anew where it is broken.
//!
//! The log is found through the volume's own structures, as they are before it is replayed; mkfs writes the
//! journal's inode and map once, and they are never logged. Or it lies on another device
//! ([`crate::log::place`]),
//! which is named by its UUID. A log that can't be replayed is given up: what it held is then lost, and the
//! volume is mended as it lies.
//!
//! A backup of the superblock does not say whether the log is needed: the log itself does.

use crate::error::Error;
use crate::know::map::{Map, numbers};
use crate::know::slot::Slot;
use crate::know::task::{Task, forget_journal};
use crate::know::work::Work;
use crate::log::place::held_by;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_journal::format::JournalSuperblock;
use hectare_units::{index_of, low32};
use zerocopy::little_endian::U32;

/// The fewest blocks of a journal.
const BLOCKS_MIN: u64 = 1024;

impl Work<'_> {
    /// Replays the journal if the superblock says that it is needed, or if that is a backup and the log says
    /// so.
    pub(crate) fn replay_journal(&mut self) -> Result<(), Error> {
        let needed = self.sb.features().incompat.contains(Incompat::RECOVER);
        let has_journal = self.sb.features().compat.contains(Compat::HAS_JOURNAL);
        let elsewhere = self.sb.journal_inode().is_none();
        if !has_journal && needed {
            self.mended(What::Journal, Place::Volume, "it was to be replayed, but there is none");
            self.end_recovery();
        }
        if !has_journal || elsewhere && self.journal.is_none() && !needed {
            return Ok(());
        }
        if !needed && !self.from_backup {
            if self.replay_forgotten_log()? {
                return Ok(());
            }
            return if elsewhere { self.mend_external_journal() } else { Ok(()) };
        }
        self.preview_groups()?;
        self.mend_journal_inode()?;
        let place = self.log_place();
        let read = place.map(|place| place.and_then(|place| Ok((self.read_log(&place)?, place))));
        self.groups.clear();
        match read? {
            Ok(((recovery, _), _)) if !needed && !recovery.needed() => return Ok(()),
            Ok(((recovery, damage), place)) => self.replay(&recovery, damage, &place)?,
            Err(_) if !needed => return Ok(()),
            Err(reason) => self.give_up_log(&reason)?,
        }
        self.end_recovery();
        Ok(())
    }

    /// Makes the journal's inode and its superblock right.
    pub(crate) fn mend_journal(&mut self, task: Task) -> Result<(), Error> {
        let Task { mut slot, mut map, sound, .. } = task;
        let place = Place::Inode(slot.nr);
        let blocks = slot.view().size() >> self.geometry().block_size.shift();
        let whole = map.extents.first().is_some_and(|extent| extent.logical.get() == 0)
            && map.blocks() == map.end()
            && !map.extents.iter().any(|extent| extent.unwritten);
        let fits = blocks >= BLOCKS_MIN && map.end() >= blocks;
        if sound && whole && fits {
            // All of them are written, and none may lie behind its end.
            let blocks = map.end();
            self.mend_plain_fields(&mut slot, &map);
            if slot.view().size() != blocks << self.geometry().block_size.shift() {
                self.mended(What::Journal, place, format!("its size is made that of {blocks} blocks"));
                slot.set_size(blocks << self.geometry().block_size.shift());
            }
            if self.suspects.has(What::Journal) {
                self.note_log_lost(&slot)?;
                self.mended(What::Journal, place, "its superblock is made anew");
                self.write_journal_superblock(&map, low32(blocks))?;
            }
            self.clear_abort(&map, place)?;
            return self.finish_journal(slot);
        }
        if !sound {
            map = Map::default();
        }
        let size = if blocks >= BLOCKS_MIN && blocks <= self.geometry().blocks_count.get() / 4 {
            blocks
        } else {
            default_blocks(self.geometry().blocks_count.get())
        };
        if slot.kind() != Some(Kind::File) || slot.view().links() == 0 {
            self.fresh_task(&mut slot, 0o600);
        }
        slot.set_flag(InodeFlags::EXTENTS, self.sb.features().incompat.contains(Incompat::EXTENTS));
        if size < BLOCKS_MIN || !self.allot(&mut slot, &mut map, index_of(size))? {
            return self.give_up_journal(slot);
        }
        self.mended(What::Journal, place, format!("it is made anew, with {size} blocks"));
        self.write_journal_superblock(&map, low32(size))?;
        self.finish_journal(slot)
    }

    /// Clears the error by which a journal was aborted.
    fn clear_abort(&mut self, map: &Map, place: Place) -> Result<(), Error> {
        let Some(first) = map.extents.first() else { return Ok(()) };
        let mut block = self.block(first.physical)?;
        let Ok(mut superblock) = JournalSuperblock::parse(&block) else { return Ok(()) };
        let errno = superblock.errno();
        if errno == 0 {
            return Ok(());
        }
        superblock.set_errno(0);
        let bytes = superblock.render();
        block[..bytes.len()].copy_from_slice(&bytes);
        self.put_block(first.physical, &block)?;
        self.mended(What::Journal, place, format!("it was aborted by error {errno}: cleared"));
        Ok(())
    }

    /// Says what is lost with a log that the superblock does not say is needed.
    fn note_log_lost(&mut self, slot: &Slot) -> Result<(), Error> {
        let held = self.log_in(slot)?.and_then(|place| self.read_log(&place));
        if let Ok((recovery, _)) = held
            && recovery.needed()
            && recovery.holds_something()
        {
            let text = format!(
                "its log holds {}, but the superblock says that nothing is to be replayed: given up",
                held_by(&recovery)
            );
            self.lost(What::Journal, Place::Inode(slot.nr), text);
        }
        Ok(())
    }

    /// A fresh superblock, and zeros after it: nothing of an old log can be taken for new.
    fn write_journal_superblock(&mut self, map: &Map, blocks: u32) -> Result<(), Error> {
        let size = self.geometry().block_size;
        let Some(first) = map.extents.first() else { return Ok(()) };
        let mut block = vec![0; size.len()];
        let mut fresh = JournalSuperblock::new(size, blocks, 0, [0; 16]);
        fresh.set_clean(self.fresh_sequence());
        let fresh = fresh.render();
        block[..fresh.len()].copy_from_slice(&fresh);
        self.put_block(first.physical, &block)?;
        let zeros = vec![0; size.len()];
        for at in 1..u64::from(first.len.min(2)) {
            self.put_block(hectare_units::BlockNr::new(first.physical.get() + at), &zeros)?;
        }
        Ok(())
    }

    fn finish_journal(&mut self, mut slot: Slot) -> Result<(), Error> {
        self.note_large_file(&slot);
        self.put_slot(&mut slot)?;
        let view = slot.view().raw;
        let words = numbers(&view.i_block).map(U32::new).collect::<Vec<_>>();
        let (lo, hi) = (view.i_size_lo, view.i_size_high);
        let mut backup = [U32::new(0); 17];
        backup[..15].copy_from_slice(&words);
        (backup[15], backup[16]) = (hi, lo);
        if self.sb.raw().s_jnl_blocks != backup || self.sb.raw().s_jnl_backup_type != 1 {
            let refresh = self.refresh_backups;
            self.edit_superblock(|raw| {
                raw.s_jnl_blocks = backup;
                raw.s_jnl_backup_type = 1;
            });
            self.refresh_backups = refresh;
        }
        Ok(())
    }

    /// Without space for a journal the volume goes without.
    fn give_up_journal(&mut self, mut slot: Slot) -> Result<(), Error> {
        self.lost(What::Journal, Place::Inode(slot.nr), "no space for a journal: the volume goes without");
        slot.clear();
        self.put_slot(&mut slot)?;
        self.edit_superblock(|raw| {
            let compat = Compat::from_bits_retain(raw.s_feature_compat.get());
            raw.s_feature_compat = (compat - Compat::HAS_JOURNAL).bits().into();
            forget_journal(raw);
        });
        Ok(())
    }
}

/// The journal that a volume of so many blocks gets.
fn default_blocks(volume: u64) -> u64 {
    match volume {
        n if n < 2048 => 0,
        n if n < 32_768 => 1024,
        n if n < 262_144 => 4096,
        n if n < 524_288 => 8192,
        n if n < 4_194_304 => 16_384,
        _ => 32_768,
    }
}
