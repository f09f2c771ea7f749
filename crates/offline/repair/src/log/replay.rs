//! Puts what a log holds in its place, or gives it up.

use crate::error::Error;
use crate::know::work::Work;
use crate::log::place::{LogPlace, counted, held_by};
use hectare_check::What;
use hectare_device::{Device, OverlayDevice};
use hectare_engine::{JournalDevice, OpenOptions, Volume};
use hectare_ext4::error::Place;
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_journal::recovery::Recovery;
use hectare_units::Bytes;
use std::sync::Arc;

impl Work<'_> {
    /// Puts what the log holds in its place.
    pub(crate) fn replay(
        &mut self,
        recovery: &Recovery,
        damage: Option<String>,
        place: &LogPlace,
    ) -> Result<(), Error> {
        let mut damage = damage;
        let has_fast = !recovery.fast_commits().is_empty();
        if has_fast && damage.is_some() && recovery.apply(&*place.device, &**self.device).is_ok() {
            // The engine takes no damaged log, but one without transactions.
            place.device.write_at(recovery.superblock_offset(), &recovery.replayed_superblock())?;
        }
        let whole = has_fast && self.replay_whole(place);
        if has_fast && !whole {
            let text = damage.map_or_else(String::new, |damage| format!("{damage}; "));
            damage = Some(format!("{text}its fast commits can't be replayed"));
        }
        if !whole && let Err(error) = recovery.apply(&*place.device, &**self.device) {
            return self.give_up_log(&error.to_string());
        }
        if !whole || place.is_external {
            place.device.write_at(recovery.superblock_offset(), &recovery.clean_superblock())?;
        }
        if !place.is_external {
            self.order.note_journal(recovery.superblock_offset());
        }
        let replayed = if whole { held_by(recovery) } else { counted(recovery.blocks().len(), "block") };
        self.finish_replay(&replayed)?;
        if let Some(damage) = damage {
            self.lost(What::Journal, Place::Volume, format!("{damage}: that is given up"));
        }
        Ok(())
    }

    /// Lets the engine replay everything, as fast commits need a volume in use; false if it can't, and then
    /// nothing that matters was changed.
    fn replay_whole(&self, place: &LogPlace) -> bool {
        let device = Arc::clone(self.device) as Arc<dyn Device>;
        // What the engine logs meanwhile is of no use later.
        let journal =
            place.is_external.then(|| JournalDevice(Arc::new(OverlayDevice::new(Arc::clone(&place.device)))));
        // A repair that begins again makes the same.
        let fixed_time = Some(Timestamp::from_seconds(self.options.now.into()));
        let seed = Some(self.options.now.into());
        // Errors that the superblock records are found and mended afterwards.
        let options = OpenOptions { journal, fixed_time, seed, with_errors: true, ..OpenOptions::default() };
        Volume::open(device, options).is_ok_and(|volume| volume.close().is_ok())
    }

    /// What the log held is in its place: the superblock is read again.
    fn finish_replay(&mut self, replayed: &str) -> Result<(), Error> {
        self.mended(What::Journal, Place::Volume, format!("replayed: {replayed}"));
        let mut bytes = [0; SIZE];
        self.device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        if let Ok(sb) = SuperBlock::parse(&bytes, Bytes::new(u64::MAX))
            && sb.geometry().blocks_count == self.geometry().blocks_count
        {
            self.sb = sb;
        }
        Ok(())
    }

    pub(crate) fn end_recovery(&mut self) {
        let refresh = self.refresh_backups;
        self.edit_superblock(|raw| {
            let bits = raw.s_feature_incompat.get() & !Incompat::RECOVER.bits();
            raw.s_feature_incompat = bits.into();
        });
        self.refresh_backups = refresh;
    }

    /// What the log held is lost.
    pub(crate) fn give_up_log(&mut self, reason: &str) -> Result<(), Error> {
        let text = format!("its journal can't be replayed and is given up: {reason}");
        self.lost(What::Journal, Place::Volume, text);
        if self.sb.journal_inode().is_none() {
            return self.empty_external_journal();
        }
        self.suspects.subjects.push(What::Journal);
        Ok(())
    }
}
