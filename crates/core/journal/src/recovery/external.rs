//! External journals: a device of their own, named by UUID.
//!
//! Such a device starts like an ext4 volume, with a superblock at byte 1024 that has the feature
//! `journal_dev` and nothing of a volume but UUID, block size and length. The journal's own superblock is in
//! the block after it, and log blocks count from the device's start.

use super::{LogMap, RecoveryError};
use hectare_device::Device;
use hectare_ext4::checksum::crc32c;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::superblock::{MAGIC, SIZE};
use hectare_ext4::{Corrupt, FormatError, Place, raw};
use hectare_units::{BlockSize, Bytes, LogicalBlock, hex, join32};
use std::mem::offset_of;
use zerocopy::FromBytes;

/// Where the ext4-like superblock lies.
const SUPERBLOCK_AT: Bytes = Bytes::new(1024);

impl LogMap {
    /// The map of an external journal. `block_size` is the volume's, and `uuid` is what the volume says its
    /// journal's device has (`s_journal_uuid`).
    ///
    /// # Errors
    /// If the device can't be read, is no external journal, has another block size or UUID, or is shorter
    /// than it says.
    pub fn external(
        device: &dyn Device,
        block_size: BlockSize,
        uuid: &[u8; 16],
    ) -> Result<Self, RecoveryError> {
        let found = external_uuid(device, block_size)?;
        if found != *uuid {
            let (found, wanted) = (uuid_text(&found), uuid_text(uuid));
            let reason = format!("its UUID is {found}, and that of the volume's journal is {wanted}");
            return Err(corrupt(reason).into());
        }
        let blocks = check(&header(device)?, device.len(), block_size)?;
        let superblock = block_size.block_at(SUPERBLOCK_AT).get() + 1;
        let superblock = u32::try_from(superblock).map_err(|_| corrupt("it has no superblock".into()))?;
        Ok(Self::device(block_size, blocks, LogicalBlock::new(superblock)))
    }
}

/// The UUID of an external journal for volumes with blocks of this size.
///
/// # Errors
/// As [`LogMap::external`].
pub fn external_uuid(device: &dyn Device, block_size: BlockSize) -> Result<[u8; 16], RecoveryError> {
    let bytes = header(device)?;
    check(&bytes, device.len(), block_size)?;
    let (raw, _) = raw::SuperBlock::ref_from_prefix(&bytes).map_err(|_| corrupt("it is too short".into()))?;
    Ok(raw.s_uuid)
}

/// A UUID as text.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits = hex(uuid);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

fn header(device: &dyn Device) -> Result<[u8; SIZE], RecoveryError> {
    if device.len() < SUPERBLOCK_AT + Bytes::of(SIZE) {
        return Err(corrupt(format!("the device has only {} bytes", device.len())).into());
    }
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_AT, &mut bytes)?;
    Ok(bytes)
}

/// Checks the ext4-like superblock and says how many blocks the device has.
fn check(bytes: &[u8; SIZE], device: Bytes, block_size: BlockSize) -> Result<u32, FormatError> {
    let (raw, _) = raw::SuperBlock::ref_from_prefix(bytes).map_err(|_| corrupt("it is too short".into()))?;
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    if raw.s_magic.get() != MAGIC || !incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(corrupt("it is none: make one with `mkfs -O journal_dev`".into()));
    }
    let ro_compat = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
    if ro_compat.contains(RoCompat::METADATA_CSUM) {
        let expected = crc32c(!0, &bytes[..offset_of!(raw::SuperBlock, s_checksum)]);
        let found = raw.s_checksum.get();
        if found != expected {
            return Err(Corrupt::checksum("external journal", Place::Volume, found, expected).into());
        }
    }
    let shift = raw.s_log_block_size.get().checked_add(10);
    if shift.and_then(BlockSize::from_shift) != Some(block_size) {
        return Err(corrupt(format!("its block size is not {block_size}, as the volume's is")));
    }
    let wide = incompat.contains(Incompat::BIT64);
    let high = if wide { raw.s_blocks_count_hi.get() } else { 0 };
    let blocks = join32(raw.s_blocks_count_lo.get(), high);
    if blocks > device.get() >> block_size.shift() {
        return Err(corrupt(format!("it claims {blocks} blocks, but the device has only {device} bytes")));
    }
    u32::try_from(blocks).map_err(|_| corrupt(format!("it has {blocks} blocks")))
}

fn corrupt(reason: String) -> FormatError {
    Corrupt::new("external journal", Place::Byte(SUPERBLOCK_AT), reason).into()
}
