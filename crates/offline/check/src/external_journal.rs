//! The journal on another device: that it is the one the volume names, and its superblock.
//!
//! Without the device it is left out, by name. What the log holds is not read: a volume that needs it is
//! judged as it lies, as with a journal inside.

use crate::context::Scan;
use crate::report::{Error, What};
use hectare_ext4::error::Place;
use hectare_ext4::feature::Compat;
use hectare_journal::recovery::{LogMap, RecoveryError};

impl Scan<'_> {
    /// Checks the journal that lies on another device, if the volume has one.
    pub(crate) fn check_external_journal(&mut self) -> Result<(), Error> {
        let sb = &self.volume.sb;
        if !sb.features().compat.contains(Compat::HAS_JOURNAL) || sb.journal_inode().is_some() {
            return Ok(());
        }
        let Some(journal) = self.volume.journal else {
            self.report.leave("the external journal");
            return Ok(());
        };
        let map = match LogMap::external(journal, sb.geometry().block_size, &sb.raw().s_journal_uuid) {
            Ok(map) => map,
            Err(RecoveryError::Device(error)) => return Err(error.into()),
            Err(error) => {
                self.tell(What::Journal, Place::Volume, format!("its device is no journal for it: {error}"));
                return Ok(());
            }
        };
        let mut block = self.buffer();
        journal.read_at(map.superblock_offset(), &mut block)?;
        if let Some(reason) = self.wrong_journal(&block, map.blocks().get()) {
            self.tell(What::Journal, Place::Volume, format!("on its own device, {reason}"));
        }
        self.give_back(block);
        Ok(())
    }
}
