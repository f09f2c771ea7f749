//! One block of directory records: read it, put a name in, take a name out.
//!
//! This is a whole directory of one block, a block of an unindexed directory, or a leaf of an index; the
//! three look alike. Reading goes through [`Leaf`], which checks every record before it shows it. The editing
//! functions take the block's bytes and re-check what they rely on.
//!
//! Invariant: the records tile the block up to the checksum's tail, before and after every edit. Removed
//! names are wiped, so that they don't linger in the image.
//!
//! What this is not: it knows neither hashes nor other blocks, and leaves the checksum to
//! [`set_checksum`](super::set_checksum).

use super::record::{self, HEADER_LEN, Record, Records, TAIL_LEN, TAIL_TYPE};
use super::{Entry, FileType, Format, Name};
use crate::{Corrupt, Place};
use hectare_units::{InodeNr, usize_of};

const STRUCTURE: &str = "directory block";

/// A block of records, to read.
#[derive(Clone, Debug)]
pub struct Leaf<'a> {
    records: Records<'a>,
}

impl<'a> Leaf<'a> {
    /// The records of `block`. Only the block's size and the form of its tail are checked here.
    ///
    /// # Errors
    /// [`Corrupt`] if the size is wrong, or the volume has checksums and the block has no room for one.
    pub fn parse(block: &'a [u8], format: &Format, place: Place) -> Result<Self, Corrupt> {
        let records = Records::new(block, format.leaf_end(), format, place)?;
        if format.checksums && !has_tail(block) {
            return Err(Corrupt::new(STRUCTURE, place, "it does not end in a checksum record"));
        }
        Ok(Self { records })
    }

    /// The block's records, used and unused, in the order of the disk. Ends after the first error.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'a>, Corrupt>> + use<'a> {
        self.records.clone()
    }

    /// The record of `name`.
    ///
    /// # Errors
    /// [`Corrupt`] if a record before it is.
    pub fn find(&self, name: Name<'_>) -> Result<Option<Record<'a>>, Corrupt> {
        find(self.records.clone(), name)
    }

    /// Where a record of `need` bytes fits with the least waste: the offset of the record whose slack it can
    /// have.
    ///
    /// # Errors
    /// [`Corrupt`] if any record is.
    pub(super) fn find_room(&self, need: usize) -> Result<Option<usize>, Corrupt> {
        let mut best: Option<Record<'_>> = None;
        for record in self.records.clone() {
            let record = record?;
            if record.slack() >= need && best.is_none_or(|best| record.slack() < best.slack()) {
                best = Some(record);
            }
        }
        Ok(best.map(|record| record.offset))
    }
}

/// The first used record called `name`.
pub(super) fn find<'a>(records: Records<'a>, name: Name<'_>) -> Result<Option<Record<'a>>, Corrupt> {
    for record in records {
        let record = record?;
        if record.name == name.bytes() {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// Whether the block ends in the record that holds a checksum.
pub(super) fn has_tail(block: &[u8]) -> bool {
    let at = block.len() - TAIL_LEN;
    record::get32(block, at) == 0
        && usize::from(record::get16(block, at + 4)) == TAIL_LEN
        && block[at + 6] == 0
        && block[at + 7] == TAIL_TYPE
}

/// Puts `entry` where it wastes the least slack. False, and nothing changed, if the block has no room for it.
/// Whether the name is there already is not looked at.
///
/// # Errors
/// [`Corrupt`] if any record is; nothing has changed then.
pub fn insert(block: &mut [u8], format: &Format, place: Place, entry: &Entry<'_>) -> Result<bool, Corrupt> {
    let need = record::space(entry.name.bytes().len());
    match Leaf::parse(block, format, place)?.find_room(need)? {
        Some(offset) => put_at(block, format, place, entry, offset).map(|()| true),
        None => Ok(false),
    }
}

/// Puts `entry` into the slack of the record at `offset`, which [`Leaf::find_room`] chose.
pub(super) fn put_at(
    block: &mut [u8],
    format: &Format,
    place: Place,
    entry: &Entry<'_>,
    offset: usize,
) -> Result<(), Corrupt> {
    let (_, host) = neighbours(block, format, place, offset)?;
    let (len, used) = (host.len, host.len - host.slack());
    if len - used < record::space(entry.name.bytes().len()) {
        return Err(Corrupt::new(STRUCTURE, place, format!("byte {offset}: the slack is gone")));
    }
    if used > 0 {
        record::put_len(block, offset, used);
    }
    record::put(block, offset + used, len - used, entry, format);
    Ok(())
}

/// Takes the record at `offset` out: its space goes to the record before it, or it becomes unused if it is
/// the first. Its name is wiped.
///
/// # Errors
/// [`Corrupt`] if a record up to there is, or none in use starts there; nothing has changed then.
pub fn remove(block: &mut [u8], format: &Format, place: Place, offset: u32) -> Result<(), Corrupt> {
    let (before, record) = neighbours(block, format, place, usize_of(offset))?;
    let (at, len) = (record.offset, record.len);
    if record.inode.is_none() {
        return Err(Corrupt::new(STRUCTURE, place, format!("byte {at}: the record is not in use")));
    }
    match before.map(|before| (before.offset, before.len)) {
        Some((before, before_len)) => {
            block[at..at + len].fill(0);
            record::put_len(block, before, before_len + len);
        }
        None => {
            block[at..at + len].fill(0);
            record::put_len(block, at, len);
        }
    }
    Ok(())
}

/// Points the record at `offset` to another inode.
///
/// # Errors
/// [`Corrupt`] if the block is too short for a record there.
pub fn set_target(
    block: &mut [u8],
    format: &Format,
    place: Place,
    offset: u32,
    inode: InodeNr,
    file_type: FileType,
) -> Result<(), Corrupt> {
    let at = usize_of(offset);
    let Some(header) = at.checked_add(HEADER_LEN).and_then(|end| block.get_mut(at..end)) else {
        return Err(Corrupt::new(STRUCTURE, place, format!("byte {at}: no record starts there")));
    };
    record::put32(header, 0, inode.get());
    header[7] = if format.filetype { file_type.code() } else { 0 };
    Ok(())
}

/// The record that starts at `offset`, and the one before it.
fn neighbours<'a>(
    block: &'a [u8],
    format: &Format,
    place: Place,
    offset: usize,
) -> Result<(Option<Record<'a>>, Record<'a>), Corrupt> {
    let mut before = None;
    for record in Leaf::parse(block, format, place)?.records {
        let record = record?;
        if record.offset == offset {
            return Ok((before, record));
        }
        before = Some(record);
    }
    Err(Corrupt::new(STRUCTURE, place, format!("byte {offset}: no record starts there")))
}

/// Makes `block` a leaf without entries.
///
/// # Panics
/// If the block hasn't the volume's block size (as every `init` function here).
pub fn init_empty(block: &mut [u8], format: &Format) {
    Packer::new(block, format).finish();
}

/// Makes `block` the only block of an empty directory, with `.` and `..`.
///
/// # Panics
/// If the block hasn't the volume's block size.
pub fn init_dots(block: &mut [u8], format: &Format, own: InodeNr, parent: InodeNr) {
    let mut packer = Packer::new(block, format);
    for entry in dots(own, parent) {
        packer.push(&entry);
    }
    packer.finish();
}

/// The two entries every directory starts with.
pub(super) const fn dots(own: InodeNr, parent: InodeNr) -> [Entry<'static>; 2] {
    [
        Entry { name: Name::DOT, inode: own, file_type: FileType::Directory },
        Entry { name: Name::DOT_DOT, inode: parent, file_type: FileType::Directory },
    ]
}

/// Writes a leaf from scratch, records packed one after another.
pub(super) struct Packer<'a> {
    block: &'a mut [u8],
    format: &'a Format,
    at: usize,
    last: Option<usize>,
}

impl<'a> Packer<'a> {
    /// Starts over: the block is zeroed, whatever it held.
    pub(super) fn new(block: &'a mut [u8], format: &'a Format) -> Self {
        assert_eq!(block.len(), format.block_size.len(), "a directory block of the volume's block size");
        block.fill(0);
        Self { block, format, at: 0, last: None }
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If it doesn't fit; whoever packs has measured before.
    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        let len = record::space(entry.name.bytes().len());
        assert!(self.at + len <= self.format.leaf_end(), "entries that were measured to fit");
        record::put(self.block, self.at, len, entry, self.format);
        self.last = Some(self.at);
        self.at += len;
    }

    /// Gives the rest of the block to the last record and appends the checksum's tail.
    pub(super) fn finish(self) {
        let end = self.format.leaf_end();
        let last = self.last.unwrap_or(0);
        record::put_len(self.block, last, end - last);
        if self.format.checksums {
            record::put_len(self.block, end, TAIL_LEN);
            self.block[end + 7] = TAIL_TYPE;
        }
    }
}
