//! Executes the plan of an XFS volume: ranges of groups in any order, the primary superblock last.

use super::plan::Plan;
use crate::error::Result;
use crate::executor::{discard, each_chunk, seal, wipe};
use crate::progress::Run;
use crate::write::Payload;
use hectare_device::Device;
use hectare_units::Bytes;

/// Groups that a thread takes at a time.
const CHUNK: u32 = 64;

/// Writes the planned volume to a device, after discarding its content if the options say so. `run` may be a
/// number of threads.
///
/// # Errors
/// If the device fails; what it holds then is not a volume.
pub fn execute<'r>(plan: &Plan, device: &dyn Device, run: impl Into<Run<'r>>) -> Result<()> {
    let run = run.into();
    wipe(device, plan.is_zeroed(), Bytes::ZERO)?;
    let end = plan.volume().blocks.bytes(plan.volume().block_size);
    if plan.discards() && discard(device, end, run) {
        return write(&plan.on_zeros(), device, run);
    }
    write(plan, device, run)
}

fn write(plan: &Plan, device: &dyn Device, run: Run<'_>) -> Result<()> {
    let groups = plan.volume().groups;
    each_chunk(device, plan.is_zeroed(), (groups.div_ceil(CHUNK), run), &|chunk, writer| {
        let first = chunk * CHUNK;
        plan.writes(first..first.saturating_add(CHUNK).min(groups)).try_for_each(|write| writer.put(write))
    })?;
    let last = plan.primary_superblock();
    match last.payload {
        Payload::Bytes(bytes) => seal(device, last.at, &bytes),
        Payload::Zeros(_) => Ok(()),
    }
}
