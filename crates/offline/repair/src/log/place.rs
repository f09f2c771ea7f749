//! The log: where it lies, in an inode of the volume or on a device of its own, and what it holds.
//!
//! A device of its own is changed in memory, too, and only its log's superblock: what the log held is in its
//! place by then, or given up.

use crate::error::Error;
use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::task::JOURNAL;
use crate::know::work::Work;
use crate::stage::overlay::Overlay;
use hectare_check::What;
use hectare_device::Device;
use hectare_ext4::checksum::crc32c;
use hectare_ext4::error::Place;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::Kind;
use hectare_journal::format::{JournalSuperblock, SUPERBLOCK_LEN};
use hectare_journal::recovery::{self, Damaged, LogMap, LogRun, Recovery, RecoveryError, uuid_text};
use hectare_units::{Blocks, Bytes, LogicalBlock, TxnId, low32};
use std::sync::Arc;

/// A log's device and its blocks there.
pub(crate) struct LogPlace {
    pub(crate) device: Arc<Overlay>,
    pub(crate) map: LogMap,
    pub(crate) is_external: bool,
}

impl Work<'_> {
    /// The log that the superblock names; an error inside says why it can't be read.
    pub(crate) fn log_place(&self) -> Result<Result<LogPlace, String>, Error> {
        let Some(nr) = self.sb.journal_inode() else { return self.external_log().map(Ok) };
        match self.slot(nr)?.filter(|slot| slot.kind() == Some(Kind::File)) {
            Some(slot) => self.log_in(&slot),
            None => Ok(Err(format!("inode {nr} is no file"))),
        }
    }

    /// The log in an inode.
    pub(crate) fn log_in(&self, slot: &Slot) -> Result<Result<LogPlace, String>, Error> {
        let map: Map = self.read_map(slot)?;
        if let Some(reason) = map.broken {
            return Ok(Err(reason));
        }
        let run = |extent: &Extent| LogRun {
            first: extent.logical,
            start: extent.physical,
            len: Blocks::new(u64::from(extent.len)),
        };
        let runs = map.extents.iter().filter(|extent| !extent.unwritten).map(run).collect();
        let map = LogMap::internal(self.geometry().block_size, runs, self.device.len());
        let device = Arc::clone(self.device);
        Ok(map.map(|map| LogPlace { device, map, is_external: false }).map_err(|corrupt| corrupt.to_string()))
    }

    /// The log on a device of its own; refused if that is not at hand, or another than the volume's.
    fn external_log(&self) -> Result<LogPlace, Error> {
        let uuid = &self.sb.raw().s_journal_uuid;
        let Some(device) = &self.journal else {
            let reason = format!(
                "its journal lies on another device, which has the UUID {}, and must be replayed first: name \
                 that device (--journal FILE)",
                uuid_text(uuid)
            );
            return Err(Error::Refused(reason));
        };
        match LogMap::external(&**device, self.geometry().block_size, uuid) {
            Ok(map) => Ok(LogPlace { device: Arc::clone(device), map, is_external: true }),
            Err(RecoveryError::Device(error)) => Err(error.into()),
            Err(error) => Err(Error::Refused(format!("{} is not its journal: {error}", device.name()))),
        }
    }

    /// Reads the log; of a damaged one what is left, and what is wrong with it.
    pub(crate) fn read_log(&self, place: &LogPlace) -> Result<(Recovery, Option<String>), String> {
        let blocks = self.geometry().blocks_count;
        let error = match recovery::read(&*place.device, &place.map, blocks) {
            Ok(recovery) => return Ok((recovery, None)),
            Err(error) => error,
        };
        let mut damaged = Damaged::default();
        loop {
            match recovery::read_damaged(&*place.device, &place.map, blocks, damaged) {
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

    /// Whether an inode is that of a journal that the volume no longer has, and nothing in it waits to be
    /// replayed: what a power cut leaves when the journal is taken away, or about to be added.
    pub(crate) fn is_left_journal(&self, slot: &Slot) -> Result<bool, Error> {
        if slot.nr != JOURNAL || slot.kind() != Some(Kind::File) {
            return Ok(false);
        }
        let place = self.log_in(slot)?;
        let read = place.and_then(|place| self.read_log(&place));
        Ok(read.is_ok_and(|(recovery, damage)| damage.is_none() && !recovery.needed()))
    }

    /// A number for a log's first transaction that old ones, which may lie in it, do not have: from the
    /// volume
    /// and the time, so that a repair that begins again makes the same.
    pub(crate) fn fresh_sequence(&self) -> TxnId {
        TxnId::new(crc32c(crc32c(!0, &self.sb.uuid()), &self.options.now.to_le_bytes()) >> 1)
    }

    /// A journal on another device that the volume does not need has an empty log.
    pub(crate) fn mend_external_journal(&mut self) -> Result<(), Error> {
        if !self.suspects.has(What::Journal) {
            return Ok(());
        }
        let place = self.external_log()?;
        if let Ok((recovery, _)) = self.read_log(&place)
            && recovery.needed()
            && recovery.holds_something()
        {
            let text = format!(
                "its log, on its own device, holds {}, but the superblock says that nothing is to be \
                 replayed: given up",
                held_by(&recovery)
            );
            self.lost(What::Journal, Place::Volume, text);
        }
        self.mended(What::Journal, Place::Volume, "the log on its own device is made empty");
        self.empty_external_journal()
    }

    /// Empties the log on its own device; a superblock that can't be read is made anew.
    pub(crate) fn empty_external_journal(&mut self) -> Result<(), Error> {
        let place = self.external_log()?;
        let (at, size) = (place.map.superblock_offset(), self.geometry().block_size);
        let mut bytes = [0; SUPERBLOCK_LEN];
        place.device.read_at(at, &mut bytes)?;
        let known = JournalSuperblock::parse(&bytes).ok().filter(|log| {
            log.block_size() == size && log.blocks() <= place.map.blocks() && log.raw().s_nr_users.get() <= 1
        });
        let mut log = known.unwrap_or_else(|| {
            let blocks = low32(place.map.blocks().get());
            let superblock = LogicalBlock::new(low32(size.block_at(at).get()));
            let mut fresh =
                JournalSuperblock::external(size, blocks, superblock, self.sb.raw().s_journal_uuid);
            fresh.set_user(self.sb.uuid());
            fresh
        });
        log.set_clean(self.fresh_sequence());
        log.set_errno(0);
        place.device.write_at(at, &log.render())?;
        // Nothing of the old log can be taken for new.
        let first = Bytes::new(u64::from(log.first().get()) << size.shift());
        place.device.zero(first, size.bytes())?;
        Ok(())
    }
}

/// What a log holds, for a message.
pub(crate) fn held_by(recovery: &Recovery) -> String {
    match (recovery.blocks().len(), recovery.fast_commits().len()) {
        (blocks, 0) => counted(blocks, "block"),
        (0, commits) => counted(commits, "fast commit"),
        (blocks, commits) => format!("{} and {}", counted(blocks, "block"), counted(commits, "fast commit")),
    }
}

/// A number of things, for a message.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
