//! A metadata area: a header in its first sector, and behind it a ring in which texts follow one another.
//!
//! | at | of the header |
//! |---|---|
//! | 0 | the checksum of the rest of the header's 512 bytes |
//! | 4 | ` LVM2 x[5A%r0N*>` |
//! | 20 | the version, 1 |
//! | 24, 32 | where the area begins, and its length, in bytes |
//! | 40 | places of texts: offset in the area, length, checksum (32 bits), flags (32 bits) |
//!
//! The first place is that of the text in force; the second one, of a change that is being made, is not. A text
//! that reaches the end of the area goes on behind the header.
//!
//! Hazard: a text is used only with the right checksum, and none longer than [`TEXT_MAX`].

use crate::error::{Error, Result};
use crate::sector::{SECTOR, SECTOR_LEN, crc, le32, le64};
use hectare_device::{Device, Span};
use hectare_units::{Bytes, index_of, u64_of};

const MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
const VERSION: u32 = 1;
/// The flag of an area that is not kept up to date.
const IGNORED: u32 = 1;
/// The longest text that is read. That of a group of ten thousand logical volumes has 5 MB.
pub(crate) const TEXT_MAX: u64 = 8 << 20;

/// The text in force; `None` if there is none, or the area is not in use.
pub(crate) fn read(device: &dyn Device, area: Span) -> Result<Option<Vec<u8>>> {
    let damaged = |reason: &str| Error::damaged(device, area.at, reason);
    if !area.fits(device.len()) || area.len.get() < 2 * SECTOR {
        return Err(damaged("the metadata area lies outside of the device"));
    }
    let mut head = [0; SECTOR_LEN];
    device.read_at(area.at, &mut head)?;
    if &head[4..20] != MAGIC {
        return Err(damaged("there should be the header of a metadata area"));
    }
    if crc(&head[4..]) != le32(&head, 0) {
        return Err(damaged("the checksum of the header of the metadata area is wrong"));
    }
    if le32(&head, 20) != VERSION {
        return Err(damaged("the metadata area has an unknown version"));
    }
    if (le64(&head, 24), le64(&head, 32)) != (area.at.get(), area.len.get()) {
        return Err(damaged("the metadata area says that it lies elsewhere"));
    }
    let (at, len, sum, flags) = (le64(&head, 40), le64(&head, 48), le32(&head, 56), le32(&head, 60));
    if at == 0 || len == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    if at < SECTOR || at >= area.len.get() || len > area.len.get() - SECTOR {
        return Err(damaged("its text lies outside of the metadata area"));
    }
    if len > TEXT_MAX {
        return Err(damaged("its text is longer than 8 MiB"));
    }
    let mut text = vec![0; index_of(len)];
    let first = len.min(area.len.get() - at);
    let (head, rest) = text.split_at_mut(index_of(first));
    device.read_at(area.at + Bytes::new(at), head)?;
    // Behind the end of the area it goes on behind its header.
    device.read_at(area.at + Bytes::new(SECTOR), rest)?;
    debug_assert_eq!(u64_of(text.len()), len);
    if crc(&text) != sum {
        return Err(damaged("the checksum of its text is wrong"));
    }
    Ok(Some(text))
}
