//! Microsoft's VHD: the bytes of a disk and a footer (fixed), or blocks that are allocated as they are written
//! (dynamic).
//!
//! Facts: Microsoft's "Virtual Hard Disk Image Format Specification" 1.0. Numbers are stored highest byte first.
//! A dynamic file is: a copy of the footer, a header, a table with the place of each block (in sectors of 512
//! bytes), the blocks, the footer. A block begins with a bitmap of its sectors that hold data; a sector that it
//! does not have reads as zeros.
//!
//! Invariants of writing: a new block goes where the footer was, and the footer behind it. The table names a
//! block only when it is durable: [`Device::flush`] makes blocks and footer durable before it writes the table.
//! A power cut leaves the old table and space that nothing uses; the copy of the footer at the start stands in
//! for one that was lost.
//!
//! What it is not: differencing images, which need their parent, are refused; sizes do not change.

mod dynamic;
mod footer;

pub(crate) use footer::{FOOTER_LEN, is_fixed};

use crate::error::{Error, Result};
use dynamic::DynamicDevice;
use footer::{Footer, Kind};
use hectare_device::{Device, FileDevice, SliceDevice};
use hectare_units::Bytes;

/// The unit of everything.
const SECTOR: u64 = 512;
/// The largest disk that the table of a dynamic image describes (2040 GiB).
const DYNAMIC_MAX: u64 = 2040 << 30;

pub(crate) fn open<'a>(file: impl Device + 'a) -> Result<Box<dyn Device + 'a>> {
    let footer = Footer::find(&file)?;
    Ok(match footer.kind {
        Kind::Fixed => Box::new(SliceDevice::new(file, Bytes::ZERO, footer.size)?),
        Kind::Dynamic => Box::new(DynamicDevice::open(file, footer)?),
    })
}

pub(crate) fn create_fixed(file: &FileDevice, size: Bytes, uuid: [u8; 16]) -> Result<()> {
    let footer = Footer::new(file.name(), Kind::Fixed, size, uuid)?;
    file.resize(size + Bytes::new(FOOTER_LEN))?;
    Ok(file.write_at(size, &footer.bytes)?)
}

pub(crate) fn create_dynamic(file: &FileDevice, size: Bytes, uuid: [u8; 16]) -> Result<()> {
    if size.get() > DYNAMIC_MAX {
        return Err(Error::new(file.name(), "a VHD that grows holds at most 2040 GiB"));
    }
    dynamic::create(file, &Footer::new(file.name(), Kind::Dynamic, size, uuid)?)
}
