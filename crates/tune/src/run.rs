//! The whole change: what is refused, the change itself on a copy, the check, the writing.

use crate::change::Changes;
use crate::error::{Error, Result};
use crate::volume::Volume;
use crate::{commit, features, fields, hidden};
use hectare_check::{Options, check};
use hectare_device::{Device, OverlayDevice};
use hectare_ext4::error::Corrupt;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_units::Bytes;
use std::sync::Arc;

/// What a change has done.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The superblock as it was.
    pub before: SuperBlock,
    /// The superblock as it is.
    pub after: SuperBlock,
}

/// Makes changes to the volume on a device, which nobody else uses.
///
/// # Errors
/// [`Error`] says what is in the way and what to do. But for an error of the storage while the result is
/// written, nothing has changed then.
pub fn tune(device: &Arc<dyn Device>, changes: &Changes) -> Result<Outcome> {
    let before = superblock(&**device)?;
    refuse_state(&before)?;
    let overlay = OverlayDevice::new(Arc::clone(device));
    let mut volume = Volume::new(&overlay, before.clone());
    hidden::refuse_in_use(&volume, changes.clear_mmp)?;
    fields::apply(&mut volume, changes)?;
    let structural = features::apply(&mut volume, changes)?;
    volume.edit(|_| ())?;
    if structural {
        refuse_unsound(&**device, &before)?;
    }
    let mut after = volume.finish()?;
    if structural {
        judge(&overlay)?;
    }
    after.set_write_time(changes.now);
    let bytes = after.render(hectare_units::GroupNr::new(0));
    overlay.write_at(SUPERBLOCK_OFFSET, &bytes)?;
    commit::write(&overlay, &before, structural)?;
    Ok(Outcome { before, after })
}

fn superblock(device: &dyn Device) -> Result<SuperBlock> {
    if device.len() < SUPERBLOCK_OFFSET + Bytes::of(SIZE) {
        return Err(Corrupt::new("the volume", Place::Volume, "it is too short for a superblock").into());
    }
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(SuperBlock::parse(&bytes, device.len())?)
}

/// Refuses a volume that is in use or was not closed.
fn refuse_state(sb: &SuperBlock) -> Result<()> {
    if sb.features().incompat.contains(Incompat::RECOVER) {
        return Err(Error::refused(
            "the journal must be replayed first (needs_recovery): unmount the volume if it is mounted, else \
             run e2fsck -fy",
        ));
    }
    if sb.state() & STATE_VALID == 0 {
        return Err(Error::refused(
            "the volume was not cleanly closed: unmount it if it is mounted, else run e2fsck -fy",
        ));
    }
    Ok(())
}

/// Refuses a volume that the change could make worse.
fn refuse_unsound(device: &dyn Device, sb: &SuperBlock) -> Result<()> {
    let mut features = *sb.features();
    // The flag keeps writers away, not who takes it off.
    features.ro_compat.remove(RoCompat::READONLY);
    features.check_write()?;
    if sb.state() & STATE_ERROR != 0 {
        return Err(Error::refused("the volume is marked as having errors: run e2fsck -fy first"));
    }
    let report = check(device, &Options::default())?;
    if let Some(problem) = report.problems.first() {
        return Err(Error::refused(format!("the volume is not sound, run e2fsck -fy first: {problem}")));
    }
    Ok(())
}

/// The verdict on the result.
fn judge(overlay: &dyn Device) -> Result<()> {
    let report = check(overlay, &Options::default())?;
    match report.problems.first() {
        Some(problem) => Err(Error::Unsound(problem.to_string())),
        None => Ok(()),
    }
}
