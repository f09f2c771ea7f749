//! External journals: a device that holds nothing else (`-O journal_dev`), and volumes that use one (`-J
//! device=`).
//!
//! The device begins like a volume, with a superblock at byte 1024 that says what it is, how long and by
//! which UUID it is known; the log's own superblock is in the block after it, and lists the volumes that
//! use it. A volume names its journal by that UUID, and by a device number, which the kernel uses if the mount
//! options name no journal.
//!
//! Hazard: one volume at a time can use it. A second one would replay the first one's log.

use super::options::FormatOptions;
use crate::error::{Error, Result};
use crate::executor::refuse_read_only;
use hectare_device::Device;
use hectare_ext4::feature::{Features, Incompat, RoCompat};
use hectare_ext4::raw;
use hectare_ext4::superblock::{self, CRC32C, MAGIC, SIZE, STATE_VALID};
use hectare_journal::format::{JournalSuperblock, SUPERBLOCK_LEN};
use hectare_journal::recovery::{external_uuid, uuid_text};
use hectare_units::{BlockSize, Bytes, LogicalBlock, low32};
use std::mem::offset_of;
use zerocopy::{FromZeros, IntoBytes};

/// Where the ext4-like superblock lies.
const SUPERBLOCK_AT: Bytes = Bytes::new(1024);
/// Blocks of a log.
const BLOCKS: std::ops::RangeInclusive<u64> = 1024..=10_240_000;
/// The size of its blocks where none is asked for.
const BLOCK_SIZE: BlockSize = BlockSize::KIB4;

/// Makes a device an external journal that no volume uses yet; returns its UUID. Of the options only the
/// block size, the UUID, the label and the time count, and of the features `metadata_csum`.
///
/// # Errors
/// If the device is too small or too large for a log, or can't be written.
pub fn make_journal_device(device: &dyn Device, options: &FormatOptions) -> Result<[u8; 16]> {
    refuse_read_only(device)?;
    let size = options.block_size.unwrap_or(BLOCK_SIZE);
    let blocks = device.len().get() >> size.shift();
    if !BLOCKS.contains(&blocks) {
        let reason =
            format!("the device has {blocks} blocks; a journal has 1024 to 10240000, change its size or -b");
        return Err(Error::option("-O journal_dev", reason));
    }
    let blocks = low32(blocks);
    let uuid = options.uuid.unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes());
    let at = log_block(size);
    let log = JournalSuperblock::external(size, blocks, at, uuid);
    let mut block = log.render().to_vec();
    block.resize(size.len(), 0);
    // Old transactions would look like those of the new log.
    device.zero(Bytes::ZERO, device.len())?;
    device.write_at(offset(at, size), &block)?;
    device.write_at(SUPERBLOCK_AT, header(options, size, blocks, &uuid).as_bytes())?;
    device.flush()?;
    Ok(uuid)
}

/// An external journal that a new volume can use: the size of its blocks, and its UUID. One that a volume
/// uses already counts only if `force`.
///
/// # Errors
/// If it is none, is used, or can't be read.
pub fn external_journal(device: &dyn Device, force: bool) -> Result<(BlockSize, [u8; 16])> {
    let wrong = |reason: String| Error::option(option(device), reason);
    let mut shift = [0; 4];
    if device.len() >= SUPERBLOCK_AT + Bytes::of(SIZE) {
        device
            .read_at(SUPERBLOCK_AT + Bytes::of(offset_of!(raw::SuperBlock, s_log_block_size)), &mut shift)?;
    }
    let size = u32::from_le_bytes(shift).checked_add(10).and_then(BlockSize::from_shift);
    let size = size.unwrap_or(BLOCK_SIZE);
    let uuid = external_uuid(device, size).map_err(|error| wrong(error.to_string()))?;
    let log = log_of(device, size)?;
    match log.users().first().filter(|_| !force) {
        None => Ok((size, uuid)),
        Some(user) => Err(wrong(format!(
            "the volume {} uses that journal; make another with -O journal_dev, or take it with --force",
            uuid_text(user)
        ))),
    }
}

/// Records a volume with blocks of this size as the user of an external journal.
///
/// # Errors
/// If the log can't be read or written.
pub fn join_journal(device: &dyn Device, size: BlockSize, volume: [u8; 16]) -> Result<()> {
    let mut log = log_of(device, size)?;
    log.set_user(volume);
    device.write_at(offset(log_block(size), size), &log.render())?;
    Ok(device.flush()?)
}

/// Records that no volume uses an external journal with blocks of this size any more.
///
/// # Errors
/// If the log can't be read or written.
pub fn leave_journal(device: &dyn Device, size: BlockSize) -> Result<()> {
    let mut log = log_of(device, size)?;
    log.clear_users();
    device.write_at(offset(log_block(size), size), &log.render())?;
    Ok(device.flush()?)
}

fn log_of(device: &dyn Device, size: BlockSize) -> Result<JournalSuperblock> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.read_at(offset(log_block(size), size), &mut bytes)?;
    Ok(JournalSuperblock::parse(&bytes)?)
}

fn option(device: &dyn Device) -> String {
    format!("-J device={}", device.name())
}

/// The block of the log's superblock: the one after that of the device's.
fn log_block(size: BlockSize) -> LogicalBlock {
    LogicalBlock::new(low32(SUPERBLOCK_AT.get() >> size.shift()) + 1)
}

fn offset(block: LogicalBlock, size: BlockSize) -> Bytes {
    Bytes::new(u64::from(block.get()) << size.shift())
}

fn header(options: &FormatOptions, size: BlockSize, blocks: u32, uuid: &[u8; 16]) -> raw::SuperBlock {
    let mut raw = raw::SuperBlock::new_zeroed();
    let now = low32(options.now.seconds.max(0).cast_unsigned());
    raw.s_blocks_count_lo = blocks.into();
    raw.s_first_data_block = (log_block(size).get() - 1).into();
    raw.s_log_block_size = (size.shift() - 10).into();
    raw.s_log_cluster_size = (size.shift() - 10).into();
    raw.s_blocks_per_group = (size.get() * 8).min(65_528).into();
    raw.s_clusters_per_group = raw.s_blocks_per_group;
    raw.s_mkfs_time = now.into();
    raw.s_wtime = now.into();
    raw.s_lastcheck = now.into();
    raw.s_max_mnt_count = u16::MAX.into();
    raw.s_magic = MAGIC.into();
    raw.s_state = STATE_VALID.into();
    raw.s_errors = 1.into();
    raw.s_rev_level = 1.into();
    raw.s_first_ino = 11.into();
    raw.s_inode_size = 256.into();
    raw.s_feature_incompat = Incompat::JOURNAL_DEV.bits().into();
    raw.s_uuid = *uuid;
    let label = &options.label[..options.label.len().min(raw.s_volume_name.len())];
    raw.s_volume_name[..label.len()].copy_from_slice(label);
    let mut features = Features::default();
    options.features.iter().for_each(|edit| edit.apply(&mut features));
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        raw.s_feature_ro_compat = RoCompat::METADATA_CSUM.bits().into();
        raw.s_checksum_type = CRC32C;
        superblock::seal(&mut raw);
    }
    raw
}

const _: () = assert!(size_of::<raw::SuperBlock>() == SIZE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext4::option_parser::parse_features;
    use hectare_device::MemoryDevice;

    /// The superblock of a fresh external journal with these features.
    fn made(features: &str) -> raw::SuperBlock {
        let device = MemoryDevice::new(Bytes::mib(8));
        let options =
            FormatOptions { features: parse_features(features).unwrap(), ..FormatOptions::default() };
        make_journal_device(&device, &options).unwrap();
        let mut raw = raw::SuperBlock::new_zeroed();
        device.read_at(SUPERBLOCK_AT, raw.as_mut_bytes()).unwrap();
        raw
    }

    #[test]
    fn regression_checksums_that_are_asked_for_are_there() {
        let with = made("journal_dev,metadata_csum");
        assert_eq!(with.s_feature_ro_compat.get(), RoCompat::METADATA_CSUM.bits());
        let mut sealed = with;
        superblock::seal(&mut sealed);
        assert!(with.s_checksum.get() != 0 && with.s_checksum == sealed.s_checksum);
        for features in
            ["journal_dev", "journal_dev,metadata_csum,^metadata_csum", "metadata_csum,none,journal_dev"]
        {
            let without = made(features);
            assert_eq!((without.s_feature_ro_compat.get(), without.s_checksum.get()), (0, 0), "{features}");
        }
    }
}
