//! Multiple-mount protection of an open volume ([`hectare_mmp`]). Opening for reading takes no part in it.

use crate::error::Result;
use crate::options::OpenOptions;
use hectare_device::Device;
use hectare_ext4::superblock::SuperBlock;
pub(crate) use hectare_mmp::{Guard, taken};
use std::sync::Arc;

/// Takes the volume for writing. Returns `None` where it has no such protection or is opened for reading only.
pub(crate) fn enter(
    device: &Arc<dyn Device>,
    sb: &SuperBlock,
    options: &OpenOptions,
) -> Result<Option<Guard>> {
    if options.read_only {
        return Ok(None);
    }
    Ok(hectare_mmp::enter(device, sb, &how(options))?)
}

/// Refuses a device that holds a volume which another host has in use, before it is overwritten.
#[cfg(feature = "format")]
pub(crate) fn refuse_living(device: &dyn Device, options: &OpenOptions) -> Result<()> {
    Ok(hectare_mmp::refuse_living(device, &how(options))?)
}

fn how(options: &OpenOptions) -> hectare_mmp::Options {
    hectare_mmp::Options {
        waits: options.mmp_wait,
        settle: options.mmp_settle,
        fixed_time: options.fixed_time,
        clock: options.clock,
    }
}
