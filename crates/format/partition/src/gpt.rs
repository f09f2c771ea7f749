//! The partition table of UEFI (GPT).
//!
//! A header in the second sector says where an array of entries lies, each naming first and last sector of a
//! partition; header and array have a CRC-32. A copy of the header lies in the last sector of the disk, with
//! an array of its own; it is used where the first is damaged. The sector size is the disk's: 512 bytes or
//! 4096, which an image does not say, so both places are tried.
//!
//! Facts: UEFI specification 2.10, chapter 5.3.

use crate::bytes::{le16, le32, le64};
use crate::error::{Result, damaged};
use crate::kind::Kind;
use crate::partition::Partition;
use hectare_device::Device;
use hectare_units::{Bytes, u64_of, usize_of};

const SIGNATURE: &[u8; 8] = b"EFI PART";
const SECTORS: [usize; 2] = [512, 4096];
const HEADER_MIN: usize = 92;
const ENTRY_MIN: usize = 128;
/// More bytes than any array of entries has: 128 times what is usual.
const ARRAY_MAX: usize = 2 << 20;
const HEADER_CRC_AT: usize = 16;

/// The fields of a header.
struct Header {
    array: Bytes,
    array_crc: u32,
    entries: usize,
    entry_len: usize,
}

/// The partitions of a disk.
pub(crate) fn read(disk: &dyn Device) -> Result<Vec<Partition>> {
    let mut first_error = None;
    for sector in SECTORS {
        let last = (disk.len().get() / u64_of(sector)).saturating_sub(1);
        for at in [1, last] {
            match read_at(disk, at, sector) {
                Ok(found) => return Ok(found),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
    }
    Err(first_error.unwrap_or_else(|| damaged(disk, Bytes::ZERO, "it is nowhere")))
}

/// The partitions of the header in a sector.
fn read_at(disk: &dyn Device, at: u64, sector: usize) -> Result<Vec<Partition>> {
    let place = Bytes::new(at * u64_of(sector));
    let header = header(disk, at, sector)?;
    let mut array = vec![0; header.entries * header.entry_len];
    disk.read_at(header.array, &mut array)?;
    if crc(&array) != header.array_crc {
        return Err(damaged(disk, header.array, "the checksum of its entries is wrong"));
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(array.chunks_exact(header.entry_len)) {
        if entry[..16].iter().all(|byte| *byte == 0) {
            continue;
        }
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        let bytes = |sectors: u64| sectors.checked_mul(u64_of(sector)).map(Bytes::new);
        let len = last.checked_sub(first).and_then(|more| more.checked_add(1)).and_then(bytes);
        let (Some(start), Some(len)) = (bytes(first), len) else {
            return Err(damaged(disk, place, "an entry ends before it begins, or beyond all disks"));
        };
        let kind = Kind::Gpt(std::array::from_fn(|at| entry[at]));
        found.push(Partition { number, start, len, kind, name: name(entry), uuid: uuid(entry) });
    }
    Ok(found)
}

/// The UUID of an entry. The first three of its five fields are stored lowest byte first.
fn uuid(entry: &[u8]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let digits = hectare_units::hex(&ORDER.map(|at| entry[16 + at]));
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits[part].to_owned()).join("-")
}

/// The name of an entry: 36 UTF-16 units, ended by a zero.
fn name(entry: &[u8]) -> String {
    let units = (0..36).map(|unit| le16(entry, 56 + 2 * unit)).take_while(|unit| *unit != 0);
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// The header in a sector, verified.
fn header(disk: &dyn Device, at: u64, sector: usize) -> Result<Header> {
    let place = Bytes::new(at * u64_of(sector));
    let bad = |reason| Err(damaged(disk, place, reason));
    let mut bytes = vec![0; sector];
    disk.read_at(place, &mut bytes)?;
    if !bytes.starts_with(SIGNATURE) {
        return bad("there should be the header of a GPT");
    }
    let len = usize_of(le32(&bytes, 12));
    if !(HEADER_MIN..=sector).contains(&len) {
        return bad("the length of its header is impossible");
    }
    let stored = le32(&bytes, HEADER_CRC_AT);
    bytes[HEADER_CRC_AT..HEADER_CRC_AT + 4].fill(0);
    if crc(&bytes[..len]) != stored {
        return bad("the checksum of its header is wrong");
    }
    if le64(&bytes, 24) != at {
        return bad("its header says that it lies elsewhere");
    }
    let (entries, entry_len) = (usize_of(le32(&bytes, 80)), usize_of(le32(&bytes, 84)));
    let fits = entries.checked_mul(entry_len).is_some_and(|len| len <= ARRAY_MAX);
    if entry_len < ENTRY_MIN || !entry_len.is_power_of_two() || !fits {
        return bad("the size of its entries is impossible");
    }
    let Some(array) = le64(&bytes, 72).checked_mul(u64_of(sector)) else {
        return bad("its entries lie beyond all disks");
    };
    Ok(Header { array: Bytes::new(array), array_crc: le32(&bytes, 88), entries, entry_len })
}

fn crc(bytes: &[u8]) -> u32 {
    hectare_units::low32(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes))
}
