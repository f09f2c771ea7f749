//! Microsoft's VHDX, read.
//!
//! Facts: [MS-VHDX]. Two headers (the sound one with the higher number counts), a table of regions, in them the
//! metadata and the table with the place of each block, and a log whose entries have to be applied first ([`log`]):
//! that happens in memory.
//!
//! What it is not: nothing is written; differencing images, which need their parent, are refused.

mod log;

use crate::error::{Error, Result};
use crate::mapped::{Layout, MappedDevice, Source, extent};
use hectare_device::{Device, Extent, FileDevice, OverlayDevice, Span};
use hectare_probe::record::{Record, record};
use hectare_units::{Bytes, index_of, u64_of};

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;
const HEADERS_AT: [u64; 2] = [64 << 10, 128 << 10];
const HEADER_LEN: usize = 4 * KIB;
const REGIONS_AT: [u64; 2] = [192 << 10, 256 << 10];
const TABLE_LEN: usize = 64 * KIB;
/// Entries that a table of 64 KiB has room for.
const ENTRIES_MAX: usize = 2047;
/// How many sectors a bitmap block covers: its place in the table comes after those of their blocks.
const BITMAP_SECTORS: u64 = 1 << 23;
/// The largest disk.
const SIZE_MAX: u64 = 64 << 40;

// GUIDs as they are stored.
const BAT: u128 = 0x6677_c22d_23f6_0042_9d64_115e_9bfd_4a08;
const METADATA: u128 = 0x06a2_7c8b_9047_9a4b_b8fe_575f_050f_886e;
const FILE_PARAMETERS: u128 = 0x3767_a1ca_36fa_434d_b3b6_33f0_aa44_e76b;
const DISK_SIZE: u128 = 0x2442_a52f_1bcd_7648_b211_5dbe_d83b_f4b8;
const SECTOR_SIZE: u128 = 0x1dbf_4181_6fa9_0947_ba47_f233_a8fa_ab5f;

/// States of a block in the table.
const FULLY_PRESENT: u64 = 6;
const PARTIALLY_PRESENT: u64 = 7;

/// CRC-32C of bytes whose own sum, at `at`, counts as zero.
fn checksum(bytes: &[u8], at: usize) -> u32 {
    let mut copy = bytes.to_vec();
    copy[at..at + 4].fill(0);
    crc_fast::crc32_iscsi(&copy)
}

/// A structure of a signature whose checksum, at byte 4, is right.
fn sealed(
    file: &dyn Device,
    at: u64,
    len: usize,
    signature: &[u8],
) -> hectare_device::Result<Option<Record>> {
    Ok(record(file, at, len)?.filter(|found| {
        found.bytes(0, signature.len()) == signature && found.le32(4) == checksum(found.bytes(0, len), 4)
    }))
}

fn guid(found: &Record, at: usize) -> u128 {
    let bytes = found.bytes(at, 16).try_into().unwrap_or([0; 16]);
    u128::from_be_bytes(bytes)
}

struct Blocks {
    source: Source,
    /// Where the table is.
    table_at: u64,
    block: u64,
    /// How many blocks lie between two entries for bitmaps.
    ratio: u64,
}

impl Blocks {
    /// The entry of a block.
    fn entry(&self, block: u64) -> hectare_device::Result<u64> {
        let mut entry = [0; 8];
        self.source.read(self.table_at + (block + block / self.ratio) * 8, &mut entry)?;
        Ok(u64::from_le_bytes(entry))
    }
}

impl Layout for Blocks {
    fn extent(&self, at: u64, len: u64) -> hectare_device::Result<Extent> {
        let state = self.entry(at / self.block)? & 7;
        let is_zero = !matches!(state, FULLY_PRESENT | PARTIALLY_PRESENT);
        Ok(extent(is_zero, self.block - at % self.block, len))
    }

    fn read_some(&self, at: u64, buf: &mut [u8]) -> hectare_device::Result<usize> {
        let (block, within) = (at / self.block, at % self.block);
        let len = index_of(u64_of(buf.len()).min(self.block - within));
        let entry = self.entry(block)?;
        match entry & 7 {
            FULLY_PRESENT => self.source.read((entry / MIB * MIB).saturating_add(within), &mut buf[..len])?,
            PARTIALLY_PRESENT => {
                let span = Span::new(Bytes::new(at), Bytes::of(len));
                return Err(self.source.damaged(span, "a block is in its parent in part, and it has none"));
            }
            // Not there, undefined, zero, unmapped.
            _ => buf[..len].fill(0),
        }
        Ok(len)
    }
}

pub(crate) fn open(file: FileDevice) -> Result<impl Device + 'static> {
    let name = file.name().to_owned();
    let wrong = |what: &str| Error::new(&name, format!("the VHDX is damaged: {what}"));
    let mut headers = Vec::new();
    for at in HEADERS_AT {
        headers.extend(sealed(&file, at, HEADER_LEN, b"head")?);
    }
    let header = headers.into_iter().max_by_key(|header| header.le64(8));
    let header = header.ok_or_else(|| wrong("neither of its headers has its checksum"))?;
    let file = OverlayDevice::new(file);
    log::replay(&file, &header).map_err(|what| wrong(&what))?;
    let regions =
        regions(&file)?.ok_or_else(|| wrong("neither of its tables of regions has its checksum"))?;
    let region =
        |wanted| entry(&regions, 16, wanted).map(|at| (regions.le64(at + 16), regions.le32(at + 24)));
    let (table_at, table_len) = region(BAT).ok_or_else(|| wrong("no region has its blocks"))?;
    let (metadata_at, _) = region(METADATA).ok_or_else(|| wrong("no region has its metadata"))?;
    let items = record(&file, metadata_at, TABLE_LEN)?
        .filter(|items| items.bytes(0, 8) == b"metadata")
        .ok_or_else(|| wrong("its metadata are missing"))?;
    let item = |wanted, len| -> Result<Record> {
        let missing = || wrong("an item of its metadata is missing");
        let at = entry(&items, 32, wanted).ok_or_else(missing)?;
        let place = metadata_at.saturating_add(items.le32(at + 16).into());
        record(&file, place, len)?.ok_or_else(missing)
    };
    let parameters = item(FILE_PARAMETERS, 8)?;
    let (block, size) = (u64::from(parameters.le32(0)), item(DISK_SIZE, 8)?.le64(0));
    let sector = u64::from(item(SECTOR_SIZE, 4)?.le32(0));
    if parameters.le32(4) & 2 != 0 {
        let what = "the VHDX is a differencing one, which needs its parent: qemu-img convert joins them";
        return Err(Error::new(&name, what));
    }
    if !block.is_power_of_two() || !(MIB..=256 * MIB).contains(&block) || !matches!(sector, 512 | 4096) {
        return Err(wrong("its blocks or sectors have a size that can't be"));
    }
    let ratio = BITMAP_SECTORS * sector / block;
    let blocks = size.div_ceil(block);
    let entries = blocks + blocks.saturating_sub(1) / ratio;
    if size > SIZE_MAX || size % sector != 0 || entries * 8 > table_len.into() {
        return Err(wrong("its table is shorter than its disk"));
    }
    let source = Source::new(file);
    if table_at.checked_add(entries * 8).is_none_or(|end| end > source.len()) {
        return Err(wrong("its table lies beyond its end"));
    }
    Ok(MappedDevice::new(&name, Bytes::new(size), Blocks { source, table_at, block, ratio }))
}

fn regions(file: &dyn Device) -> hectare_device::Result<Option<Record>> {
    for at in REGIONS_AT {
        if let Some(found) = sealed(file, at, TABLE_LEN, b"regi")? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Where the entry of a GUID is in a table of entries of 32 bytes.
fn entry(table: &Record, first: usize, wanted: u128) -> Option<usize> {
    (0..ENTRIES_MAX).map(|index| first + 32 * index).find(|at| guid(table, *at) == wanted)
}
