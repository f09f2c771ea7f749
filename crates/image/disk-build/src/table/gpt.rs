//! The table of UEFI, by the crate `gpt`: header and entries, their copies at the end, a protective MBR.
//!
//! Facts: UEFI 2.10, chapters 5.2.3 (the protective MBR) and 5.3.

use super::{Entry, Head};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::spec::PartitionType;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition::Partition;
use gpt::partition_types::{OperatingSystem, Type};
use hectare_device::Device;
use hectare_units::Bytes;
use std::collections::BTreeMap;

/// Bytes of code before the number of the disk.
const CODE_LEN: usize = 440;

pub(super) fn write(device: &dyn Device, head: &Head<'_>, entries: &[Entry<'_>]) -> Result<()> {
    let failed =
        |error: &dyn std::fmt::Display| Error::part(device.name(), format!("the partition table: {error}"));
    let sector = u64::from(head.sector);
    let block = if head.sector == 4096 { LogicalBlockSize::Lb4096 } else { LogicalBlockSize::Lb512 };
    let sectors = (device.len().get() / sector).saturating_sub(1);
    let mbr = ProtectiveMBR::with_lb_size(u32::try_from(sectors).unwrap_or(u32::MAX));
    let mut first = mbr.to_bytes();
    // Of a table that covers all: the last sector as heads, tracks and sectors, where it can be said.
    first[446 + 5..446 + 8].copy_from_slice(&super::mbr::chs(sectors));
    if !head.boot_code.is_empty() {
        first[..CODE_LEN.min(head.boot_code.len())].copy_from_slice(head.boot_code);
    }
    device.write_at(Bytes::ZERO, &first)?;
    let config = gpt::GptConfig::new().writable(true).logical_block_size(block);
    let disk = config.create_from_device(Cursor::new(device), Some(head.uuid));
    let mut disk = disk.map_err(|error| failed(&error))?;
    let partition = |entry: &Entry<'_>| {
        let PartitionType::Gpt(guid) = entry.kind else { return Partition::zero() };
        Partition {
            part_type_guid: Type { guid, os: OperatingSystem::None },
            part_guid: entry.uuid,
            first_lba: entry.start / sector,
            last_lba: (entry.start + entry.len) / sector - 1,
            flags: entry.attributes,
            name: entry.name.to_owned(),
        }
    };
    let partitions: BTreeMap<u32, Partition> = (1..).zip(entries.iter().map(partition)).collect();
    disk.update_partitions(partitions).map_err(|error| failed(&error))?;
    disk.write().map_err(|error| failed(&error))?;
    Ok(())
}
