//! One block of directory records: reads it, inserts a name, removes a name.
//!
//! This is a whole directory of one block, a block of an unindexed directory, or a leaf of an index; the
//! three look alike. Reading goes through [`Leaf`], which checks every record before it shows it. The editing
//! functions take the block's bytes and check what they rely on.
//!
//! Invariant: the records tile the block up to the checksum's tail, before and after every edit. Removed
//! names are wiped, so that they don't linger in the image.
//!
//! What this is not: it knows neither hashes nor other blocks, and leaves the checksum to
//! [`set_checksum`](super::set_checksum).

use super::record::{self, HEADER_LEN, Head, Record, Records, Scan, TAIL_LEN, TAIL_TYPE};
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
        self.records.find_name(name)
    }

    /// Looks for a name and for room for it, in one walk.
    ///
    /// # Errors
    /// [`Corrupt`] if a record before the name is, or any where the name is not.
    pub(super) fn scan(&self, name: Name<'_>) -> Result<Scan<'a>, Corrupt> {
        self.records.scan_for(name, record::space(name.bytes().len()))
    }
}

/// Whether the block ends in the record that holds a checksum.
pub(super) fn has_tail(block: &[u8]) -> bool {
    let at = block.len() - TAIL_LEN;
    record::get32(block, at) == 0
        && usize::from(record::get16(block, at + 4)) == TAIL_LEN
        && block[at + 6] == 0
        && block[at + 7] == TAIL_TYPE
}

/// Puts `entry` where it wastes the least slack. False, and nothing changed, if the block has no room for it,
/// or has the name already.
///
/// # Errors
/// [`Corrupt`] if any record is; nothing has changed then.
pub fn insert(block: &mut [u8], format: &Format, place: Place, entry: &Entry<'_>) -> Result<bool, Corrupt> {
    match Leaf::parse(block, format, place)?.scan(entry.name)? {
        Scan::Absent { room: Some(offset) } => put_at(block, format, place, entry, offset).map(|()| true),
        Scan::Absent { room: None } | Scan::Found(_) => Ok(false),
    }
}

/// Puts `entry` into the slack of the record at `offset`, which [`Leaf::scan`] chose: the block has not
/// changed since, so the records before it need not be walked again.
///
/// # Errors
/// [`Corrupt`] if no sound record with enough slack starts there; nothing has changed then.
pub(super) fn put_at(
    block: &mut [u8],
    format: &Format,
    place: Place,
    entry: &Entry<'_>,
    offset: usize,
) -> Result<(), Corrupt> {
    let end = format.leaf_end().min(block.len());
    let Some(Head { len, used, .. }) = record::head(block, offset, end) else {
        return Err(record::unsound(block, offset, end, place));
    };
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
    let at = usize_of(offset);
    let (before, Head { len, inode, .. }) = Leaf::parse(block, format, place)?.records.neighbours(at)?;
    if inode == 0 {
        return Err(Corrupt::new(STRUCTURE, place, format!("byte {at}: the record is not in use")));
    }
    block[at..at + len].fill(0);
    match before {
        Some((before, Head { len: before_len, .. })) => record::put_len(block, before, before_len + len),
        None => record::put_len(block, at, len),
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

/// The only block of a directory whose entries after `.` and `..` are these records, as they stand. `None` if
/// there is no room for them, or they are none.
#[must_use]
pub fn of_records(records: &[u8], format: &Format, own: InodeNr, parent: InodeNr) -> Option<Vec<u8>> {
    let mut block = vec![0; format.block_size.len()];
    let mut packer = Packer::new(&mut block, format);
    for entry in dots(own, parent) {
        packer.push(&entry);
    }
    packer.push_records(records)?;
    packer.finish();
    Some(block)
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
    /// If it doesn't fit; the caller has measured before.
    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        let len = record::space(entry.name.bytes().len());
        assert!(self.at + len <= self.format.leaf_end(), "entries that were measured to fit");
        record::put(self.block, self.at, len, entry, self.format);
        self.last = Some(self.at);
        self.at += len;
    }

    /// Adds records as they stand.
    fn push_records(&mut self, records: &[u8]) -> Option<()> {
        let end = self.at + records.len();
        self.block
            .get_mut(self.at..end.min(self.format.leaf_end()))?
            .get_mut(..records.len())?
            .copy_from_slice(records);
        while self.at < end {
            self.last = Some(self.at);
            self.at += record::head(self.block, self.at, end)?.len;
        }
        Some(())
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
