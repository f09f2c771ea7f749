//! Volumes that may be broken: taking one to repair it, and looking whether one may be overwritten.
//!
//! What the superblock and the block say is not believed further than it has to be. An interval that can't be
//! counts as the longest there is; a block that can't be read as one is watched ([`crate::unmarked`]). A program
//! that repairs finds the block as it lies if it says *clean*, to the byte, so that what it takes back later is
//! exactly what was there.

use crate::block::{LEN, MmpBlock};
use crate::error::{Error, Result};
use crate::guard::{CHECK_MAX, Guard, Options, Wait, outwait, wait_for};
use crate::held::{Held, Hold};
use crate::unmarked::Unmarked;
use hectare_device::Device;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_units::Bytes;
use std::sync::Arc;

/// What the block says.
enum Look {
    Mark(Mmp, Box<[u8; LEN]>),
    Damaged(Unmarked),
}

/// Marks a volume as in use while it is repaired, and gives the device to do it on. `sb` is the superblock that
/// is known, which may be a backup. With `ignores` nothing is waited for: the mark of another is taken away.
///
/// A block that is damaged gets no mark ([`Hold::why_unmarked`]): it is watched for as long as a user of the
/// volume may take to write it anew, 11 seconds or more, and the caller asks once more before it writes
/// ([`Hold::check`]).
///
/// # Errors
/// [`Error::InUse`] if another host has the volume, or may have it and is not to be waited for; the others if
/// the block can't be written.
pub fn hold_to_repair(
    device: &Arc<dyn Device>,
    sb: &SuperBlock,
    options: &Options,
    ignores: bool,
) -> Result<(Arc<dyn Device>, Hold)> {
    let sb = possible(sb);
    let Some(place) = MmpBlock::of(&sb) else { return Ok((Arc::clone(device), Hold::NOTHING)) };
    let began = options.clock.now();
    let (found, bytes) = match look(&**device, &sb, place) {
        Look::Mark(found, bytes) => (found, *bytes),
        Look::Damaged(damaged) => {
            let damaged = if ignores { damaged } else { damaged.watched(&**device, &sb, options)? };
            return Ok((Arc::clone(device), Hold::unmarked(device, damaged)));
        }
    };
    let waited = if ignores { None } else { outwait(&**device, &sb, place, &found, options)? };
    let wait = match waited {
        None => Wait::Settle(began, options.settle, wait_for(&found, &sb, place.block)?),
        Some(wait) => Wait::Full(wait),
    };
    let guard = Guard::take(device, &sb, place, &wait, options)?;
    let is_clean = found.status == Status::Clean;
    let bytes = if is_clean { bytes } else { guard.clean().render(place.seed) };
    Ok(Held::over(guard, place, &bytes, !is_clean))
}

/// Refuses a device with a volume that another host has in use, for programs that overwrite it. One whose mark
/// stands still is not refused, after a wait of 11 seconds or more; nor is one without the protection.
///
/// # Errors
/// [`Error::InUse`], which names the host.
pub fn refuse_living(device: &dyn Device, options: &Options) -> Result<()> {
    let mut bytes = [0; SIZE];
    if device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_err() {
        return Ok(());
    }
    let Ok(sb) = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)) else { return Ok(()) };
    let sb = possible(&sb);
    let Some(place) = MmpBlock::of(&sb) else { return Ok(()) };
    match look(device, &sb, place) {
        Look::Mark(found, _) => match outwait(device, &sb, place, &found, options) {
            Err(error @ Error::InUse(_)) => Err(error),
            // What can't be read any more is to be overwritten.
            _ => Ok(()),
        },
        Look::Damaged(damaged) => damaged.watched(device, &sb, options).map(drop),
    }
}

/// The superblock with an interval that can be.
fn possible(sb: &SuperBlock) -> SuperBlock {
    let mut raw = *sb.raw();
    let interval = raw.s_mmp_update_interval.get().min(CHECK_MAX);
    raw.s_mmp_update_interval = interval.into();
    SuperBlock::from_raw(raw).unwrap_or_else(|_| sb.clone())
}

fn look(device: &dyn Device, sb: &SuperBlock, place: MmpBlock) -> Look {
    let blocks = sb.geometry().blocks_count.get();
    let is_inside =
        place.at.get().checked_add(Bytes::of(LEN).get()).is_some_and(|end| end <= device.len().get());
    if place.block.get() == 0 || place.block.get() >= blocks || !is_inside {
        return Look::Damaged(Unmarked::nowhere(place));
    }
    let damaged =
        |bytes, why: &dyn std::fmt::Display| Look::Damaged(Unmarked::at(place, bytes, why.to_string()));
    let bytes = match place.read_bytes(device) {
        Ok(bytes) => bytes,
        Err(error) => return damaged(None, &error),
    };
    match Mmp::parse(&bytes, place.block, place.seed) {
        Ok(found) if found.check_interval > CHECK_MAX => {
            let seconds = found.check_interval;
            damaged(
                Some(Box::new(bytes)),
                &format!("block {}: it asks to wait {seconds} seconds", place.block),
            )
        }
        Ok(found) => Look::Mark(found, Box::new(bytes)),
        Err(corrupt) => damaged(Some(Box::new(bytes)), &corrupt),
    }
}
