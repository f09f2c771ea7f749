//! The footer of a VHD, which says what the file is.

use super::SECTOR;
use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_probe::record::{Record, record};
use hectare_units::Bytes;

pub(crate) const FOOTER_LEN: u64 = 512;
const COOKIE: &[u8] = b"conectix";
const VERSION: u32 = 0x0001_0000;
/// Offsets of fields.
const VERSION_AT: usize = 12;
const DATA_AT: usize = 16;
const SIZE_AT: usize = 48;
const KIND_AT: usize = 60;
const CHECKSUM_AT: usize = 64;
/// "Wi2k" and "win ": programs take the size of others from the geometry, which is a rounded one.
const CREATOR: &[u8] = b"win ";
const CREATOR_VERSION: u32 = 0x000a_0000;
const CREATOR_OS: &[u8] = b"Wi2k";

/// What kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Fixed,
    Dynamic,
}

/// A footer that is sound.
pub(super) struct Footer {
    pub(super) kind: Kind,
    /// The length of the disk.
    pub(super) size: Bytes,
    /// Where the header of a dynamic image is.
    pub(super) header_at: u64,
    /// As it is stored.
    pub(super) bytes: Vec<u8>,
}

/// The ones' complement of the sum of all bytes but the sum's own four.
pub(super) fn checksum(bytes: &[u8], at: usize) -> u32 {
    let others = bytes.iter().enumerate().filter(|(index, _)| !(at..at + 4).contains(index));
    !others.fold(0, |sum: u32, (_, byte)| sum.wrapping_add(u32::from(*byte)))
}

/// Whether a sound footer of a fixed image lies there.
pub(crate) fn is_fixed(file: &dyn Device, at: u64) -> hectare_device::Result<bool> {
    let found = footer_at(file, at)?;
    Ok(found.is_some_and(|footer| footer.be32(KIND_AT) == 2 && footer.be64(SIZE_AT) <= at))
}

fn footer_at(file: &dyn Device, at: u64) -> hectare_device::Result<Option<Record>> {
    Ok(record(file, at, 512)?.filter(|footer| {
        let bytes = footer.bytes(0, 512);
        bytes.starts_with(COOKIE) && footer.be32(CHECKSUM_AT) == checksum(bytes, CHECKSUM_AT)
    }))
}

impl Footer {
    /// The footer of a file, or its copy at the start.
    pub(super) fn find(file: &dyn Device) -> Result<Self> {
        let wrong = |what: &str| Error::new(file.name(), format!("the VHD is damaged: {what}"));
        let places = [file.len().get().checked_sub(FOOTER_LEN), Some(0)];
        let mut found = None;
        for at in places.into_iter().flatten() {
            if let (None, Some(footer)) = (&found, footer_at(file, at)?) {
                found = Some((at, footer));
            }
        }
        let (at, footer) = found.ok_or_else(|| wrong("neither its footer nor the copy has its checksum"))?;
        let size = Bytes::new(footer.be64(SIZE_AT));
        let kind = match footer.be32(KIND_AT) {
            2 if size.get() > at => return Err(wrong("it is shorter than its footer says")),
            2 => Kind::Fixed,
            3 => Kind::Dynamic,
            4 => {
                let what =
                    "the VHD is a differencing one, which needs its parent: qemu-img convert joins them";
                return Err(Error::new(file.name(), what));
            }
            _ => return Err(wrong("it is of an unknown kind")),
        };
        if footer.be32(VERSION_AT) >> 16 != VERSION >> 16 {
            return Err(wrong("it has an unknown version"));
        }
        let header_at = footer.be64(DATA_AT);
        Ok(Self { kind, size, header_at, bytes: footer.bytes(0, 512).to_vec() })
    }

    /// A new one.
    pub(super) fn new(name: &str, kind: Kind, size: Bytes, uuid: [u8; 16]) -> Result<Self> {
        if size == Bytes::ZERO || !size.get().is_multiple_of(SECTOR) {
            let what = format!("a VHD holds whole sectors of {SECTOR} bytes, and {size} bytes are none");
            return Err(Error::new(name, what));
        }
        let mut bytes = vec![0; 512];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let (code, header_at) = match kind {
            Kind::Fixed => (2_u32, u64::MAX),
            Kind::Dynamic => (3, FOOTER_LEN),
        };
        put(0, COOKIE);
        put(8, &2_u32.to_be_bytes()); // a bit that is always set
        put(VERSION_AT, &VERSION.to_be_bytes());
        put(DATA_AT, &header_at.to_be_bytes());
        put(28, CREATOR);
        put(32, &CREATOR_VERSION.to_be_bytes());
        put(36, CREATOR_OS);
        put(40, &size.get().to_be_bytes());
        put(SIZE_AT, &size.get().to_be_bytes());
        put(56, &geometry(size.get() / SECTOR));
        put(KIND_AT, &code.to_be_bytes());
        put(68, &uuid);
        let sum = checksum(&bytes, CHECKSUM_AT);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        Ok(Self { kind, size, header_at, bytes })
    }
}

/// Cylinders, heads and sectors per track, as the appendix of the specification computes them.
fn geometry(sectors: u64) -> [u8; 4] {
    let total = sectors.min(65_535 * 16 * 255);
    let (per_track, heads) = if total >= 65_535 * 16 * 63 {
        (255, 16)
    } else {
        let tracks = total / 17;
        let heads = tracks.div_ceil(1024).max(4);
        if tracks < heads * 1024 && heads <= 16 {
            (17, heads)
        } else if total / 31 < 16 * 1024 {
            (31, 16)
        } else {
            (63, 16)
        }
    };
    let cylinders = u16::try_from(total / per_track / heads).unwrap_or(u16::MAX).to_be_bytes();
    let byte = |value: u64| u8::try_from(value).unwrap_or(u8::MAX);
    [cylinders[0], cylinders[1], byte(heads), byte(per_track)]
}
