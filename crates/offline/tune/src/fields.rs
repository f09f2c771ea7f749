//! What only the superblock has.

use crate::change::{Changes, Reserved};
use crate::error::{Error, Result};
use crate::volume::Volume;
use hectare_ext4::superblock::STATE_ERROR;
use hectare_units::{high32, low8, low32};

/// `s_flags`: unfinished code may work on the volume.
const FLAG_TEST: u32 = 0x4;

/// Sets the fields.
pub(crate) fn apply(volume: &mut Volume<'_>, changes: &Changes) -> Result<()> {
    let reserved = changes.reserved.map(|reserved| reserved_blocks(volume, reserved)).transpose()?;
    let label = changes.label.as_deref().map(|text| padded("-L: the label", text)).transpose()?;
    let mounted =
        changes.last_mounted.as_deref().map(|text| padded("-M: the directory", text)).transpose()?;
    let options = changes.mount_options.as_deref().map(|text| padded("-E mount_opts", text)).transpose()?;
    volume.edit(|raw| {
        label.into_iter().for_each(|label| raw.s_volume_name = label);
        mounted.into_iter().for_each(|mounted| raw.s_last_mounted = mounted);
        options.into_iter().for_each(|options| raw.s_mount_opts = options);
        if let Some(blocks) = reserved {
            raw.s_r_blocks_count_lo = low32(blocks).into();
            raw.s_r_blocks_count_hi = high32(blocks).into();
        }
        changes.reserved_uid.into_iter().for_each(|uid| raw.s_def_resuid = uid.into());
        changes.reserved_gid.into_iter().for_each(|gid| raw.s_def_resgid = gid.into());
        changes.on_error.into_iter().for_each(|behaviour| raw.s_errors = behaviour.code().into());
        changes.mounts_max.into_iter().for_each(|most| raw.s_max_mnt_count = most.cast_unsigned().into());
        changes.mounts.into_iter().for_each(|mounts| raw.s_mnt_count = mounts.into());
        changes.check_interval.into_iter().for_each(|seconds| raw.s_checkinterval = seconds.into());
        if let Some(seconds) = changes.last_checked {
            raw.s_lastcheck = low32(seconds).into();
            raw.s_lastcheck_hi = low8(seconds >> 32);
        }
        for (off, on) in &changes.mount_defaults {
            raw.s_default_mount_opts = (raw.s_default_mount_opts.get() & !off | on).into();
        }
        changes.hash.into_iter().for_each(|hash| raw.s_def_hash_version = hash.code());
        changes.stride.into_iter().for_each(|stride| raw.s_raid_stride = stride.into());
        changes.stripe_width.into_iter().for_each(|width| raw.s_raid_stripe_width = width.into());
        changes.mmp_interval.into_iter().for_each(|seconds| raw.s_mmp_update_interval = seconds.into());
        if changes.force_check {
            raw.s_state = (raw.s_state.get() | STATE_ERROR).into();
        }
        if let Some(test) = changes.test_volume {
            let flags = raw.s_flags.get();
            raw.s_flags = if test { flags | FLAG_TEST } else { flags & !FLAG_TEST }.into();
        }
    })
}

/// A text in its field, filled up with zeros.
fn padded<const N: usize>(what: &str, text: &[u8]) -> Result<[u8; N]> {
    let mut field = [0; N];
    let too_long = || Error::refused(format!("{what} has {} bytes, and there is room for {N}", text.len()));
    if text.contains(&0) {
        return Err(Error::refused(format!("{what} contains a NUL")));
    }
    field.get_mut(..text.len()).ok_or_else(too_long)?.copy_from_slice(text);
    Ok(field)
}

/// Blocks that only root may take: at most half of all.
fn reserved_blocks(volume: &Volume<'_>, reserved: Reserved) -> Result<u64> {
    const WHOLE: u128 = 100_000;
    let all = volume.geometry().blocks_count.get();
    let blocks = match reserved {
        Reserved::Share(share) => {
            u64::try_from(u128::from(all) * u128::from(share) / WHOLE).unwrap_or(u64::MAX)
        }
        Reserved::Blocks(blocks) => blocks.get(),
    };
    if blocks > all / 2 {
        return Err(Error::refused(format!("{blocks} reserved blocks are more than half of {all}")));
    }
    Ok(blocks)
}
