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
pub(crate) fn apply(copy: &Arc<dyn Device>, sb: &SuperBlock, goal: &Features, now: Timestamp) -> Result<bool> {
    let shared = |features: &Features| {
        (
            features.compat & CONVERTED.compat,
            features.incompat & CONVERTED.incompat,
            features.ro_compat & CONVERTED.ro_compat,
        )
    };
    if shared(sb.features()) == shared(goal) {
        return Ok(false);
    }
    convert(copy, goal, now)?;
    Ok(true)
}
