//! Uses a journal on another device, or no longer.
//!
//! The volume names the journal by its UUID, and the journal the volume by its. The journal's side is written
//! before the volume starts to use it and after it has stopped, so that a journal that a volume uses always
//! says so.

use crate::change::{Changes, ExternalJournal};
use crate::error::{Error, Result};
use crate::volume::Volume;
use hectare_ext4::feature::Compat;
use hectare_ext4::superblock::SuperBlock;
use hectare_mkfs::{external_journal, join_journal, leave_journal};

/// Has the volume use the journal that is named.
pub(crate) fn attach(volume: &mut Volume<'_>, changes: &Changes) -> Result<()> {
    let journal = changes.journal_device.as_ref();
    let journal = journal.ok_or_else(|| Error::refused("no external journal was named (-J device=)"))?;
    // Whether another volume uses it was asked before: by now this one is recorded in it.
    let (_, uuid) = external_journal(&*journal.device, true)?;
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits()).into();
        raw.s_journal_uuid = uuid;
        raw.s_journal_dev = journal.number.into();
        raw.s_journal_inum = 0.into();
        raw.s_jnl_blocks = [0.into(); 17];
        raw.s_jnl_backup_type = 0;
    })
}

/// Refuses a journal that the volume can't use.
fn inspect(sb: &SuperBlock, journal: &ExternalJournal, force: bool) -> Result<()> {
    // Its own journal may be taken again.
    let is_own = sb.raw().s_journal_uuid != [0; 16];
    let (size, uuid) = external_journal(&*journal.device, force || is_own)?;
    let own = sb.geometry().block_size;
    if size != own {
        let reason = format!("-J device: the journal has blocks of {size}, and the volume of {own}");
        return Err(Error::refused(reason));
    }
    if is_own && uuid != sb.raw().s_journal_uuid && !force {
        return Err(Error::refused("-J device: that is not the journal that the volume uses"));
    }
    Ok(())
}

/// Has the volume use no journal.
pub(crate) fn detach(volume: &mut Volume<'_>) -> Result<()> {
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() & !Compat::HAS_JOURNAL.bits()).into();
        raw.s_journal_uuid = [0; 16];
        raw.s_journal_dev = 0.into();
    })
}

/// What the superblock says of a journal on another device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parked {
    uuid: [u8; 16],
    number: u32,
}

impl Parked {
    /// That of a volume.
    pub(crate) fn of(sb: &SuperBlock) -> Self {
        Self { uuid: sb.raw().s_journal_uuid, number: sb.raw().s_journal_dev.get() }
    }

    /// Has the volume use it.
    pub(crate) fn put_back(self, volume: &mut Volume<'_>) -> Result<()> {
        volume.edit(|raw| {
            raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits()).into();
            raw.s_journal_uuid = self.uuid;
            raw.s_journal_dev = self.number.into();
            raw.s_journal_inum = 0.into();
        })
    }
}

/// Before anything is written: the journal can be used, or left.
pub(crate) fn admit(sb: &SuperBlock, changes: &Changes, leaves: bool) -> Result<()> {
    match &changes.journal_device {
        Some(journal) => inspect(sb, journal, changes.force),
        None if leaves && !changes.force => Err(Error::refused(
            "its journal lies on another device: name it (-J device=PATH), or leave it as it is (-f)",
        )),
        None => Ok(()),
    }
}

/// Records the volume in the journal that it is going to use.
pub(crate) fn join(sb: &SuperBlock, changes: &Changes) -> Result<()> {
    match &changes.journal_device {
        Some(journal) => Ok(join_journal(&*journal.device, sb.geometry().block_size, sb.uuid())?),
        None => Ok(()),
    }
}

/// Records that the volume has left the journal that it used.
pub(crate) fn leave(sb: &SuperBlock, changes: &Changes) -> Result<()> {
    match &changes.journal_device {
        Some(journal) => Ok(leave_journal(&*journal.device, sb.geometry().block_size)?),
        None => Ok(()),
    }
}
