//! The journal: replayed before anything else is judged, and made anew where it is broken.
//!
//! The log is found through the volume's own structures, as they are before it is replayed; mkfs writes the
//! journal's inode and map once, and they are never logged. A log that can't be replayed is given up: what it
//! held is then lost, and the volume is mended as it lies.

use crate::report::Error;
use crate::reserved::Task;
use crate::slot::Slot;
use crate::work::Work;
use hectare_check::What;
use hectare_device::Device;
use hectare_engine::{OpenOptions, Volume};
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_journal::format::JournalSuperblock;
use hectare_journal::recovery::{self, Damaged, LogMap, LogRun, Recovery, RecoveryError};
use hectare_units::{Blocks, Bytes, InodeNr, index_of, low32};
use std::sync::Arc;
use zerocopy::little_endian::U32;

/// The fewest blocks of a journal.
pub(crate) const BLOCKS_MIN: u64 = 1024;

impl Work<'_> {
    /// Replays the journal if the superblock says that it is needed.
    pub(crate) fn replay_journal(&mut self) -> Result<(), Error> {
        if !self.sb.features().incompat.contains(Incompat::RECOVER) {
            return Ok(());
        }
        let Some(nr) = self.sb.journal_inode() else {
            if self.sb.features().compat.contains(Compat::HAS_JOURNAL) {
                let reason = "its journal lies on another device and must be replayed first: mount it once";
                return Err(Error::Refused(reason.to_owned()));
            }
            self.mended(What::Journal, Place::Volume, "it was to be replayed, but there is none");
            self.end_recovery();
            return Ok(());
        };
        let before = std::mem::take(&mut self.mends);
        self.read_groups()?;
        let replayed = self.replay(nr);
        self.groups.clear();
        self.mends = before;
        match replayed? {
            Ok((recovery, text)) => {
                self.finish_replay(&recovery)?;
                if let Some(text) = text {
                    self.lost(What::Journal, Place::Volume, format!("{text}: that is given up"));
                }
            }
            Err(reason) => {
                let text = format!("its journal can't be replayed and is given up: {reason}");
                self.lost(What::Journal, Place::Volume, text);
                self.suspects.subjects.push(What::Journal);
            }
        }
        self.end_recovery();
        Ok(())
    }

    fn replay(&self, nr: InodeNr) -> Result<Result<(Recovery, Option<String>), String>, Error> {
        let Some(slot) = self.slot(nr)?.filter(|slot| slot.kind() == Some(Kind::File)) else {
            return Ok(Err(format!("inode {nr} is no file")));
        };
        let map = self.read_map(&slot)?;
        if let Some(reason) = map.broken {
            return Ok(Err(reason));
        }
        let run = |extent: &hectare_ext4::extent::Extent| LogRun {
            first: extent.logical,
            start: extent.physical,
            len: Blocks::new(u64::from(extent.len)),
        };
        let runs = map.extents.iter().filter(|extent| !extent.unwritten).map(run).collect();
        let geometry = self.geometry();
        let recovery = LogMap::internal(geometry.block_size, runs, self.device.len())
            .map_err(|corrupt| corrupt.to_string())
            .and_then(|map| self.read_log(&map));
        Ok(recovery.and_then(|(recovery, text)| {
            if recovery.fast_commits().is_empty() || !self.replay_whole() {
                recovery.apply(&**self.device, &**self.device).map_err(|error| error.to_string())?;
                let clean = self.device.write_at(recovery.superblock_offset(), &recovery.clean_superblock());
                clean.map_err(|error| error.to_string())?;
            }
            Ok((recovery, text))
        }))
    }

    /// Reads the log; of a damaged one what is left, and what is wrong with it.
    fn read_log(&self, map: &LogMap) -> Result<(Recovery, Option<String>), String> {
        let blocks = self.geometry().blocks_count;
        let error = match recovery::read(&**self.device, map, blocks) {
            Ok(recovery) => return Ok((recovery, None)),
            Err(error) => error,
        };
        let mut damaged = Damaged::default();
        loop {
            match recovery::read_damaged(&**self.device, map, blocks, damaged) {
                Ok(recovery) => return Ok((recovery, Some(error.to_string()))),
                Err(RecoveryError::Damaged { txn, .. })
                    if damaged.end.is_none_or(|end| end.is_after(txn)) =>
                {
                    damaged.end = Some(txn);
                }
                Err(_) => return Err(error.to_string()),
            }
        }
    }

    /// Lets the engine replay everything, as fast commits need a volume in use; false if it can't, and then
    /// nothing that matters was changed.
    fn replay_whole(&self) -> bool {
        let device = Arc::clone(self.device) as Arc<dyn Device>;
        Volume::open(device, OpenOptions::default()).is_ok_and(|volume| volume.close().is_ok())
    }

    /// What the log held is in its place: the superblock is read again.
    fn finish_replay(&mut self, recovery: &Recovery) -> Result<(), Error> {
        self.order.note_journal(recovery.superblock_offset());
        self.mended(What::Journal, Place::Volume, format!("replayed: {} blocks", recovery.blocks().len()));
        let mut bytes = [0; SIZE];
        self.device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        if let Ok(sb) = SuperBlock::parse(&bytes, Bytes::new(u64::MAX))
            && sb.geometry().blocks_count == self.geometry().blocks_count
        {
            self.sb = sb;
        }
        Ok(())
    }

    fn end_recovery(&mut self) {
        let refresh = self.refresh_backups;
        self.edit_superblock(|raw| {
            let bits = raw.s_feature_incompat.get() & !Incompat::RECOVER.bits();
            raw.s_feature_incompat = bits.into();
        });
        self.refresh_backups = refresh;
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
            self.mend_plain_fields(&mut slot, &map);
            if slot.view().links() == 0 {
                self.mended(What::Journal, place, "it has one link, and counted none");
                slot.raw().i_links_count = 1.into();
            }
            if slot.view().size() != blocks << self.geometry().block_size.shift() {
                self.mended(What::Journal, place, format!("its size is made that of {blocks} blocks"));
                slot.set_size(blocks << self.geometry().block_size.shift());
            }
            if self.suspects.has(What::Journal) {
                self.mended(What::Journal, place, "its superblock is made anew");
                self.write_journal_superblock(&map, low32(blocks))?;
            }
            return self.finish_journal(slot);
        }
        if !sound {
            map = crate::maps::Map::default();
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

    /// A fresh superblock, and zeros after it: nothing of an old log can be taken for new.
    fn write_journal_superblock(&mut self, map: &crate::maps::Map, blocks: u32) -> Result<(), Error> {
        let size = self.geometry().block_size;
        let Some(first) = map.extents.first() else { return Ok(()) };
        let mut block = vec![0; size.len()];
        let fresh = JournalSuperblock::new(size, blocks, 0, [0; 16]).render();
        block[..fresh.len()].copy_from_slice(&fresh);
        self.put_block(first.physical, &block)?;
        let zeros = vec![0; size.len()];
        for at in 1..u64::from(first.len.min(2)) {
            self.put_block(hectare_units::BlockNr::new(first.physical.get() + at), &zeros)?;
        }
        Ok(())
    }

    fn finish_journal(&mut self, mut slot: Slot) -> Result<(), Error> {
        self.put_slot(&mut slot)?;
        let view = slot.view().raw;
        let words = crate::maps::numbers(&view.i_block).map(U32::new).collect::<Vec<_>>();
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
            raw.s_journal_inum = 0.into();
            raw.s_jnl_backup_type = 0;
            raw.s_jnl_blocks = [U32::new(0); 17];
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
