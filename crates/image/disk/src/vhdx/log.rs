//! The log of a VHDX: changes of its metadata that may not have reached their places.
//!
//! A log is a ring of entries of whole sectors of 4 KiB. An entry has a number, the place of the first entry that
//! has to be applied with it, and descriptors: a sector of data for a place, or a place to be zeroed. The sound
//! entry with the highest number ends what is applied. An entry that is not sound was being written when the
//! power was cut, and counts for nothing.

use super::{checksum, guid};
use hectare_device::Device;
use hectare_probe::record::{Record, record};
use hectare_units::{Bytes, index_of, u64_of};
use std::cell::Cell;

const SECTOR: u64 = 4096;
const HEAD_LEN: usize = 64;
const DESCRIPTOR_LEN: usize = 32;
/// Longer logs are made by nobody.
const LOG_MAX: u64 = 64 << 20;
/// How many times its length may be read while entries are looked for. Entries do not lie on each other but where an
/// old one is half overwritten.
const READS_MAX: u64 = 8;
/// The most bytes that a log zeroes: more than the table of the largest disk has.
const ZEROS_MAX: u64 = 1 << 30;

/// Where the log lies, and which of its entries count.
struct Log<'a> {
    file: &'a dyn Device,
    at: u64,
    len: u64,
    id: u128,
    /// How many bytes may still be read, and be zeroed.
    reads_left: Cell<u64>,
    zeros_left: Cell<u64>,
}

/// An entry that is sound.
struct Entry {
    bytes: Vec<u8>,
    sequence: u64,
    /// The place in the log of the first entry to be applied.
    tail: u64,
}

/// Applies the log to the file, an overlay.
pub(super) fn replay(file: &dyn Device, header: &Record) -> Result<(), String> {
    let id = guid(header, 48);
    if id == 0 {
        return Ok(());
    }
    let (len, at) = (u64::from(header.le32(68)), header.le64(72));
    let fits = at.checked_add(len).is_some_and(|end| end <= file.len().get());
    if !fits || len % SECTOR != 0 || len == 0 || len > LOG_MAX {
        return Err("its log lies beyond its end or has a length that can't be".to_owned());
    }
    let (reads_left, zeros_left) = (Cell::new(len * READS_MAX), Cell::new(ZEROS_MAX));
    let log = Log { file, at, len, id, reads_left, zeros_left };
    let mut last: Option<(u64, Entry)> = None;
    for place in (0..len).step_by(index_of(SECTOR)) {
        if let Some(entry) = log.entry(place)?
            && last.as_ref().is_none_or(|(_, last)| last.sequence < entry.sequence)
        {
            last = Some((place, entry));
        }
    }
    let Some((end, last)) = last else { return Ok(()) };
    let mut place = last.tail;
    let mut before = None;
    loop {
        let entry =
            log.entry(place)?.filter(|entry| before.is_none_or(|number: u64| entry.sequence == number + 1));
        let entry = entry.ok_or("an entry of its log is missing")?;
        log.apply(&entry)?;
        if place == end {
            return Ok(());
        }
        before = Some(entry.sequence);
        place = (place + u64_of(entry.bytes.len())) % len;
    }
}

/// Takes from what is left of an allowance.
fn take(left: &Cell<u64>, len: u64, otherwise: &str) -> Result<(), String> {
    left.set(left.get().checked_sub(len).ok_or(otherwise)?);
    Ok(())
}

impl Log<'_> {
    /// Reads from a place of the ring.
    fn read(&self, place: u64, len: u64) -> Result<Vec<u8>, String> {
        take(&self.reads_left, len, "the entries of its log lie on each other")?;
        let mut bytes = vec![0; index_of(len)];
        let first = index_of(len.min(self.len - place));
        let read = self.file.read_at(Bytes::new(self.at + place), &mut bytes[..first]);
        let read = read.and_then(|()| self.file.read_at(Bytes::new(self.at), &mut bytes[first..]));
        read.map(|()| bytes).map_err(|error| error.to_string())
    }

    /// The sound entry that begins there.
    fn entry(&self, place: u64) -> Result<Option<Entry>, String> {
        if place >= self.len || !place.is_multiple_of(SECTOR) {
            return Ok(None);
        }
        let head = record(self.file, self.at + place, HEAD_LEN).map_err(|error| error.to_string())?;
        let Some(head) = head.filter(|head| head.bytes(0, 4) == b"loge" && guid(head, 32) == self.id) else {
            return Ok(None);
        };
        let len = u64::from(head.le32(8));
        if len == 0 || len % SECTOR != 0 || len > self.len {
            return Ok(None);
        }
        let bytes = self.read(place, len)?;
        if checksum(&bytes, 4) != head.le32(4) {
            return Ok(None);
        }
        Ok(Some(Entry { bytes, sequence: head.le64(16), tail: head.le32(12).into() }))
    }

    fn apply(&self, entry: &Entry) -> Result<(), String> {
        let bytes = &entry.bytes;
        let word = |at: usize| bytes.get(at..at + 4).map(|word| [word[0], word[1], word[2], word[3]]);
        let count = index_of(u64::from(u32::from_le_bytes(word(24).unwrap_or_default())));
        let heads = HEAD_LEN.saturating_add(count.saturating_mul(DESCRIPTOR_LEN));
        let mut data = heads.checked_next_multiple_of(index_of(SECTOR)).unwrap_or(usize::MAX);
        if heads > bytes.len() {
            return Err("an entry of its log is too short".to_owned());
        }
        for descriptor in bytes[HEAD_LEN..heads].chunks_exact(DESCRIPTOR_LEN) {
            let long =
                |at: usize| descriptor[at..at + 8].iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b));
            let at = Bytes::new(long(16));
            let applied = match &descriptor[..4] {
                b"zero" => {
                    take(&self.zeros_left, long(8), "its log zeroes more than a log can")?;
                    self.file.zero(at, Bytes::new(long(8)))
                }
                b"desc" => {
                    let sector = data.checked_add(index_of(SECTOR)).and_then(|end| bytes.get(data..end));
                    let sector = sector.filter(|sector| sector.starts_with(b"data"));
                    let sector = sector.ok_or("an entry of its log has less data than it says")?;
                    data += sector.len();
                    // The first eight bytes and the last four are in the descriptor: in their place are marks.
                    let whole = [&descriptor[8..16], &sector[8..4092], &descriptor[4..8]].concat();
                    self.file.write_at(at, &whole)
                }
                _ => return Err("an entry of its log has an unknown descriptor".to_owned()),
            };
            applied.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
