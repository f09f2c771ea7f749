//! The face: sizes as people ask for them, and the device made longer or shorter.

use crate::error::{Error, Result};
use crate::minimum;
use crate::run::{self, Options, Outcome};
use crate::target;
use crate::volume::Volume;
use hectare_device::{Device, Reason};
use hectare_units::{BlockSize, Blocks, Bytes};
use std::cell::Cell;
use std::sync::Arc;

/// A size asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Of so many bytes, rounded down to whole blocks.
    Bytes(Bytes),
    /// So many bytes more than now.
    More(Bytes),
    /// So many bytes fewer than now.
    Less(Bytes),
    /// As small as moving everything can make it.
    Min,
    /// As large as the device.
    Device,
}

/// Resizes the volume on `disk`. A file is made longer where that is needed, and cut behind the volume when
/// it shrinks if `cuts` says so and it can be cut; what is longer already stays.
///
/// # Errors
/// [`Error::Refused`] and [`Error::Size`] say what to do; nothing was changed then. [`Error::PartWay`] is for what
/// failed later: the volume has a journal to be replayed or must be checked with e2fsck, and the device keeps
/// its new length. After any other error volume and device are as they were.
pub fn resize(disk: &Arc<dyn Device>, to: Target, cuts: bool, options: &Options) -> Result<Outcome> {
    let volume = look(disk)?;
    let (size, before) = (volume.geometry().block_size, volume.geometry().blocks_count);
    let blocks = match to {
        Target::Bytes(bytes) => Blocks::new(bytes.get() >> size.shift()),
        Target::More(bytes) => before + size.blocks_for(bytes),
        Target::Less(bytes) => before.saturating_sub(size.blocks_for(bytes)),
        Target::Min => before,
        Target::Device => Blocks::new(disk.len().get() >> size.shift()),
    };
    let most = target::most_blocks(&volume.sb);
    if blocks > most {
        let reason =
            format!("{blocks} blocks are more than the {most} that the volume's inodes and features allow");
        return Err(Error::Size(reason));
    }
    drop(volume);
    let (len, begun) = (disk.len(), Cell::new(false));
    if blocks.bytes(size) > len {
        disk.resize(blocks.bytes(size)).map_err(|error| {
            let wanted = blocks.bytes(size);
            let reason = "make the partition larger first, or choose a size that fits";
            Error::Size(format!("{wanted} bytes are more than the {len} bytes there are ({error}): {reason}"))
        })?;
    }
    let done = match to {
        Target::Min => minimum::minimize(disk, options, &begun),
        _ => run::to_blocks(disk, blocks, options, &begun),
    };
    match done {
        Ok(outcome) if cuts && outcome.after < outcome.before => cut(disk, size, outcome),
        Ok(outcome) => Ok(outcome),
        // The new volume may be there, or come out of the log, and reach beyond the old end.
        Err(error) if begun.get() => Err(Error::PartWay(Box::new(error))),
        Err(error) => {
            if disk.len() > len {
                disk.resize(len)?;
            }
            Err(error)
        }
    }
}

/// Cuts the device behind the volume, if it is of a kind that can be cut.
fn cut(disk: &Arc<dyn Device>, size: BlockSize, outcome: Outcome) -> Result<Outcome> {
    match disk.resize(outcome.after.bytes(size)) {
        Ok(()) => Ok(outcome),
        Err(error) if matches!(error.reason(), Reason::Unsupported(_)) => {
            Ok(Outcome { uncut: Some(error.to_string()), ..outcome })
        }
        Err(error) => Err(error.into()),
    }
}

/// The least and the most blocks that [`resize`] can give a volume, and the bytes of a block.
///
/// # Errors
/// As [`resize`]; nothing is changed.
pub fn estimate(disk: &Arc<dyn Device>, options: &Options) -> Result<(Blocks, Blocks, u32)> {
    let volume = look(disk)?;
    let least = minimum::minimum(disk, options)?;
    let size = volume.geometry().block_size;
    let most = target::superblock(&volume.sb, Blocks::new(disk.len().get() >> size.shift()), options.width)?;
    Ok((least, most.geometry().blocks_count, size.get()))
}

fn look(disk: &Arc<dyn Device>) -> Result<Volume> {
    Volume::open(Arc::clone(disk), false)
}
