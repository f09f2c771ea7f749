//! The partition table in the first sector (MBR, "DOS"), and the chain of those for logical partitions.
//!
//! Four entries: a kind and where it lies in sectors of 512 bytes. An entry of an extended kind holds logical
//! partitions: its first sector is a table of the same form, whose first entry is a logical partition, placed
//! from that table on, and whose second leads to the next table, placed from the start of the extended
//! partition on. They are numbered from 5, in the order of the chain.
//!
//! Facts: the table's layout and the kernel's numbering, as sfdisk and loop devices show them (tested).

use crate::bytes::{le16, le32};
use crate::error::{Error, Result, damaged};
use crate::kind::Kind;
use crate::partition::Partition;
use hectare_device::Device;
use hectare_units::Bytes;

const SECTOR: usize = 512;
const DISK_ID_AT: u64 = 440;
const ENTRIES_AT: usize = 446;
const ENTRY: usize = 16;
const MAGIC: u16 = 0xaa55;
/// The kind of the entry that stands for a GPT.
const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The first number of a logical partition.
const FIRST_LOGICAL: u32 = 5;
/// More tables than any chain has: as many as the kernel numbers.
const CHAIN_MAX: usize = 256;

/// The content of the first sector.
pub(crate) enum Table {
    /// The disk has a GPT.
    Protective,
    /// Its partitions.
    Partitions(Vec<Partition>),
}

#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    /// In sectors.
    start: u64,
    len: u64,
}

impl Entry {
    fn is_extended(self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    fn partition(self, number: u32, base: u64) -> Partition {
        let (start, len) = (place(base + self.start), place(self.len));
        Partition { number, start, len, kind: Kind::Mbr(self.kind), name: String::new(), uuid: String::new() }
    }
}

/// Where a sector begins. Sectors are sums of few 32-bit numbers.
fn place(sector: u64) -> Bytes {
    Bytes::new(sector * hectare_units::u64_of(SECTOR))
}

/// The used entries of the table in a sector, with their numbers from 1; `None` if there is no table.
fn entries(disk: &dyn Device, sector: u64) -> Result<Option<Vec<(u32, Entry)>>> {
    let mut bytes = [0; SECTOR];
    disk.read_at(place(sector), &mut bytes)?;
    let slots = || bytes[ENTRIES_AT..ENTRIES_AT + 4 * ENTRY].chunks_exact(ENTRY);
    // A boot sector of another kind has the magic, too, but other bytes there.
    if le16(&bytes, SECTOR - 2) != MAGIC || slots().any(|slot| slot[0] & 0x7f != 0) {
        return Ok(None);
    }
    let entry =
        |slot: &[u8]| Entry { kind: slot[4], start: le32(slot, 8).into(), len: le32(slot, 12).into() };
    let used = (1..).zip(slots().map(entry)).filter(|(_, entry)| entry.kind != 0 && entry.len > 0);
    Ok(Some(used.collect()))
}

/// The table of a disk.
pub(crate) fn read(disk: &dyn Device) -> Result<Table> {
    let no_table = || Error::NoTable(disk.name().to_owned());
    if disk.len() < Bytes::of(SECTOR) {
        return Err(no_table());
    }
    let entries = entries(disk, 0)?.filter(|entries| !entries.is_empty()).ok_or_else(no_table)?;
    if entries.iter().any(|(_, entry)| entry.kind == PROTECTIVE) {
        return Ok(Table::Protective);
    }
    let primary = entries.iter().filter(|(_, entry)| !entry.is_extended());
    let mut found: Vec<Partition> = primary.map(|(number, entry)| entry.partition(*number, 0)).collect();
    let mut next = FIRST_LOGICAL;
    for (_, extended) in entries.iter().filter(|(_, entry)| entry.is_extended()) {
        for logical in logical(disk, extended.start)? {
            found.push(Partition { number: next, ..logical });
            next += 1;
        }
    }
    let disk_id = disk_id(disk)?;
    if disk_id != 0 {
        for partition in &mut found {
            partition.uuid = format!("{disk_id:08x}-{:02x}", partition.number);
        }
    }
    Ok(Table::Partitions(found))
}

/// The number that the table gives the disk.
fn disk_id(disk: &dyn Device) -> Result<u32> {
    let mut bytes = [0; 4];
    disk.read_at(Bytes::new(DISK_ID_AT), &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The logical partitions of the extended one that begins at a sector.
fn logical(disk: &dyn Device, first: u64) -> Result<Vec<Partition>> {
    let mut found = Vec::new();
    let (mut at, mut visited) = (first, Vec::new());
    loop {
        if visited.contains(&at) || visited.len() == CHAIN_MAX {
            return Err(damaged(
                disk,
                place(at),
                "the chain of logical partitions comes back to it, or is too long",
            ));
        }
        visited.push(at);
        let entries = entries(disk, at)?.ok_or_else(|| {
            damaged(disk, place(at), "the chain of logical partitions leads here, but there is no table")
        })?;
        let data = entries.iter().filter(|(number, entry)| *number <= 2 && !entry.is_extended());
        found.extend(data.map(|(_, entry)| entry.partition(0, at)));
        match entries.iter().find(|(_, entry)| entry.is_extended()) {
            Some((_, next)) => at = first + next.start,
            None => return Ok(found),
        }
    }
}
