//! Partition tables, written.

mod gpt;
mod mbr;

use crate::error::Result;
use crate::spec::{PartitionType, TableKind};
use hectare_device::Device;
use uuid::Uuid;

/// Bytes of the entries of a GPT: 128 of 128 bytes.
const GPT_ARRAY: u64 = 16 << 10;

/// The first byte that a partition may have.
pub(crate) const fn first_usable(table: TableKind, sector: u64) -> u64 {
    match table {
        TableKind::Gpt => 2 * sector + GPT_ARRAY,
        TableKind::Mbr => sector,
    }
}

/// Bytes at the end of a disk that no partition may have.
pub(crate) const fn tail(table: TableKind, sector: u64) -> u64 {
    match table {
        TableKind::Gpt => sector + GPT_ARRAY,
        TableKind::Mbr => 0,
    }
}

/// An entry of a table.
pub(crate) struct Entry<'a> {
    pub(crate) kind: PartitionType,
    pub(crate) uuid: Uuid,
    pub(crate) name: &'a str,
    pub(crate) attributes: u64,
    pub(crate) active: bool,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// What a table says of the disk.
pub(crate) struct Head<'a> {
    pub(crate) sector: u32,
    pub(crate) uuid: Uuid,
    pub(crate) disk_id: u32,
    pub(crate) boot_code: &'a [u8],
}

/// Writes a table to a disk whose table is zeros.
pub(crate) fn write(
    device: &dyn Device,
    table: TableKind,
    head: &Head<'_>,
    entries: &[Entry<'_>],
) -> Result<()> {
    match table {
        TableKind::Gpt => gpt::write(device, head, entries),
        TableKind::Mbr => mbr::write(device, head, entries),
    }
}
