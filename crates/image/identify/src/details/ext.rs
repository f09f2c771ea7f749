//! ext2, ext3, ext4 and their external journals.

use super::Details;
use crate::record::{record, uuid_text};
use hectare_device::{Device, Result};
use hectare_ext4::error::FormatError;
use hectare_ext4::feature::{Compat, Features, Incompat, RoCompat};
use hectare_ext4::raw;
use hectare_ext4::superblock::{SIZE, STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_units::{Bytes, join32};
use zerocopy::FromBytes;

/// The superblock's own words, also where it can't be used.
pub(super) fn volume(device: &dyn Device) -> Result<Option<Details>> {
    let Some(bytes) = record(device, 1024, SIZE)? else { return Ok(None) };
    let Ok(raw) = raw::SuperBlock::read_from_bytes(bytes.bytes(0, SIZE)) else { return Ok(None) };
    let features = features(&raw);
    let mut details = Details { label: bytes.text(0x78, 16), uuid: bytes.uuid(0x68), ..Details::default() };
    let block = 1024_u64.checked_shl(raw.s_log_block_size.get()).filter(|block| *block <= 65_536);
    let high = if features.incompat.contains(Incompat::BIT64) { raw.s_blocks_count_hi.get() } else { 0 };
    let blocks = join32(raw.s_blocks_count_lo.get(), high);
    details.size = block.and_then(|block| super::size(blocks, block));
    details.fact("state", state(&raw, &features));
    let faults = faults(bytes.bytes(0, SIZE), details.size, device.len());
    faults.into_iter().for_each(|fault| details.fact("fault", fault));
    block.iter().for_each(|block| details.fact("block size", block));
    bytes.text(0x88, 64).iter().for_each(|last| details.fact("last mounted on", last));
    if features.compat.contains(Compat::HAS_JOURNAL) && raw.s_journal_inum.get() == 0 {
        let uuid = uuid_text(raw.s_journal_uuid).unwrap_or_else(|| "no UUID".to_owned());
        details.fact("external journal", uuid);
    }
    details.fact("features", features.names().join(" "));
    Ok(Some(details))
}

/// What a copy of the superblock says; of what changes while a volume is used, nothing.
pub(super) fn lost_volume(superblock: &SuperBlock) -> Details {
    let raw = superblock.raw();
    let geometry = superblock.geometry();
    let label: Vec<u8> = raw.s_volume_name.iter().copied().take_while(|byte| *byte != 0).collect();
    let label = String::from_utf8_lossy(&label).replace(char::is_control, "");
    let mut details = Details {
        label: Some(label).filter(|label| !label.is_empty()),
        uuid: uuid_text(superblock.uuid()),
        size: Some(geometry.bytes()),
        ..Details::default()
    };
    details.fact("fault", "its first superblock is lost");
    details.fact("block size", geometry.block_size.bytes());
    details.fact("features", features(raw).names().join(" "));
    details
}

fn features(raw: &raw::SuperBlock) -> Features {
    if raw.s_rev_level.get() == 0 {
        return Features::default();
    }
    Features {
        compat: Compat::from_bits_retain(raw.s_feature_compat.get()),
        incompat: Incompat::from_bits_retain(raw.s_feature_incompat.get()),
        ro_compat: RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()),
    }
}

/// Whether it was left in order.
fn state(raw: &raw::SuperBlock, features: &Features) -> &'static str {
    let state = raw.s_state.get();
    if state & STATE_ERROR != 0 {
        "errors were found"
    } else if features.incompat.contains(Incompat::RECOVER) {
        "in use or not cleanly unmounted: the journal needs recovery"
    } else if state & STATE_VALID == 0 {
        "in use or not cleanly unmounted"
    } else {
        "clean"
    }
}

/// Why the volume can't be opened, if the superblock shows it.
fn faults(bytes: &[u8], size: Option<Bytes>, device: Bytes) -> Option<String> {
    if let Some(size) = size.filter(|size| *size > device) {
        return Some(format!("the volume is cut off: it has {size} bytes, and {device} are there"));
    }
    SuperBlock::parse(bytes, device).err().map(|error| match error {
        FormatError::Corrupt(corrupt) => corrupt.to_string(),
        FormatError::Unsupported(unsupported) => unsupported.to_string(),
    })
}

/// An external journal: the log's superblock follows that of the device, which is there for the tools.
pub(super) fn journal(device: &dyn Device) -> Result<Option<Details>> {
    const USERS_MAX: usize = 48;
    let Some(head) = record(device, 1024, SIZE)? else { return Ok(None) };
    let mut details = Details { label: head.text(0x78, 16), uuid: head.uuid(0x68), ..Details::default() };
    let Some(block) = 1024_u64.checked_shl(head.le32(0x18)).filter(|block| *block <= 65_536) else {
        return Ok(Some(details));
    };
    // In the block behind the one that holds byte 1024.
    let at = if block == 1024 { 2048 } else { block };
    let Some(log) = record(device, at, 1024)?.filter(|log| log.be32(0) == 0xc03b_3998) else {
        return Ok(Some(details));
    };
    details.size = super::size(log.be32(16).into(), block);
    details.fact("state", if log.be32(28) == 0 { "empty" } else { "holds changes of its volume" });
    let users = usize::try_from(log.be32(64)).unwrap_or(USERS_MAX).min(USERS_MAX);
    let users: Vec<String> = (0..users).filter_map(|user| log.uuid(256 + 16 * user)).collect();
    if !users.is_empty() {
        details.fact("of the volume", users.join(", "));
    }
    details.fact("block size", block);
    Ok(Some(details))
}
