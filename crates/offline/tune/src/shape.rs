//! Features of the base metadata, the descriptors and backups at the start of groups, as [`hectare_resize`]
//! changes them: what lies in the way is moved.

use crate::error::Result;
use hectare_device::Device;
use hectare_ext4::feature::Features;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_resize::{CONVERTED, convert};
use std::sync::Arc;

/// Gives the volume on a copy those features of the goal. Returns whether that changed anything.
pub(crate) fn apply(
    copy: &Arc<dyn Device>,
    sb: &SuperBlock,
    goal: &Features,
    now: Timestamp,
) -> Result<bool> {
    let differs = differs(sb, goal);
    if differs {
        convert(copy, goal, now)?;
    }
    Ok(differs)
}

/// Whether those features of the goal are others than the volume has.
pub(crate) fn differs(sb: &SuperBlock, goal: &Features) -> bool {
    let shared = |features: &Features| {
        (
            features.compat & CONVERTED.compat,
            features.incompat & CONVERTED.incompat,
            features.ro_compat & CONVERTED.ro_compat,
        )
    };
    shared(sb.features()) != shared(goal)
}
