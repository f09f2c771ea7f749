//! Carrying out the plan of an XFS volume: ranges of groups in any order, the primary superblock last.

use super::plan::Plan;
use crate::error::Result;
use crate::plan::Payload;
use crate::write::{each_chunk, seal, wipe};
use hectare_device::Device;

/// Groups that a thread takes at a time.
const CHUNK: u32 = 64;

/// Writes the planned volume to a device, with up to `threads` threads.
///
/// # Errors
/// If the device fails; what it holds then is not a volume.
pub fn execute(plan: &Plan, device: &dyn Device, threads: usize) -> Result<()> {
    wipe(device, plan.is_zeroed())?;
    let groups = plan.volume().groups;
    each_chunk(device, plan.is_zeroed(), (groups.div_ceil(CHUNK), threads), &|chunk, writer| {
        let first = chunk * CHUNK;
        plan.writes(first..first.saturating_add(CHUNK).min(groups)).try_for_each(|write| writer.put(write))
    })?;
    let last = plan.superblock();
    match last.payload {
        Payload::Bytes(bytes) => seal(device, last.at, &bytes),
        Payload::Zeros(_) => Ok(()),
    }
}
