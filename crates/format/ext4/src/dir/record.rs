//! One record of a directory block, and the walk over a block's records.
//!
//! A record is an 8-byte header (inode, record length, name length, file type), the name, and whatever slack
//! its length includes. Lengths are multiples of 4 and the records tile the block exactly. A record with
//! inode 0 is unused space. On a volume with checksums the last 12 bytes are a record made to look unused,
//! with file type 0xDE, that holds the checksum; it is not part of the walk.
//!
//! There are two ways to walk. [`head`] reads what the walk itself needs, a record's lengths, with one load
//! and a few comparisons; searches for a name and for room use it, for they pass hundreds of records to find
//! one. [`Records`] shows whole records, names checked too, for listing.
//!
//! Hazard: the 16-bit length field can't hold 65536, so blocks of 64 KiB store the length of a record that
//! fills them as 65535 or 0.

use super::{FileType, Format, Name};
use crate::{Corrupt, Place, casefold};
use hectare_units::{InodeNr, low8, low16, low32, u64_of, usize_of};

/// The header before a record's name, in bytes.
pub(super) const HEADER_LEN: usize = 8;
/// Where in a record the file type is; without `filetype` the high byte of the name's length, always 0.
pub(super) const TYPE_AT: usize = 7;
/// The shortest record: a header and a name of one byte, rounded up.
pub(super) const RECORD_MIN: usize = 12;
/// The record that holds a leaf's checksum.
pub(super) const TAIL_LEN: usize = 12;
/// The file type that marks the checksum's record.
pub(super) const TAIL_TYPE: u8 = 0xde;

const STRUCTURE: &str = "directory block";

/// Bytes a record with a name of `name_len` bytes takes without slack.
pub(super) const fn space(name_len: usize) -> usize {
    (HEADER_LEN + name_len).next_multiple_of(4)
}

/// The two bytes at `at`, little-endian; the caller has bounded `at`.
pub(super) fn get16(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// The four bytes at `at`, little-endian; the caller has bounded `at`.
pub(super) fn get32(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Stores two bytes, little-endian.
pub(super) fn put16(block: &mut [u8], at: usize, value: u16) {
    block[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Stores four bytes, little-endian.
pub(super) fn put32(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The length stored in the record at `at`. May be anything at all.
pub(super) fn get_len(block: &[u8], at: usize) -> usize {
    match (get16(block, at + 4), block.len()) {
        (0 | 65535, 65536) => 65536,
        (len, _) => usize::from(len),
    }
}

/// Stores a record's length.
pub(super) fn put_len(block: &mut [u8], at: usize, len: usize) {
    let stored = if len == 65536 { 65535 } else { low16(u64_of(len)) };
    put16(block, at + 4, stored);
}

/// Writes the record of `len` bytes at `at`; the bytes after its name are left as they are.
pub(super) fn put(block: &mut [u8], at: usize, len: usize, entry: &super::Entry<'_>, format: &Format) {
    let name = entry.name.bytes();
    put32(block, at, entry.inode.get());
    put_len(block, at, len);
    block[at + 6] = low8(u64_of(name.len()));
    block[at + 7] = if format.filetype { entry.file_type.code() } else { 0 };
    block[at + HEADER_LEN..at + HEADER_LEN + name.len()].copy_from_slice(name);
}

/// What a walk must know of a record. Its lengths are sound, its name may hold any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Its length with slack, in bytes: a multiple of 4, at least [`RECORD_MIN`], not beyond the end.
    pub(super) len: usize,
    /// The inode it leads to; 0 if it is unused.
    pub(super) inode: u32,
    /// Bytes of the name; of an unused record 0, else at least 1.
    pub(super) name_len: usize,
    /// Bytes in use, of an unused record 0; no more than `len`.
    pub(super) used: usize,
}

/// The head of the record at `at`, or `None` if no sound one starts there: then [`unsound`] says why.
///
/// `at` and `end` may be any; that records follow one another up to `end` is for the caller to see to.
#[inline]
pub(super) fn head(block: &[u8], at: usize, end: usize) -> Option<Head> {
    let header = block.get(at..end)?.first_chunk::<HEADER_LEN>()?;
    let word = u64::from_le_bytes(*header);
    let len = match (low16(word >> 32), block.len()) {
        (0 | 65535, 65536) => 65536,
        (len, _) => usize::from(len),
    };
    let inode = low32(word);
    let in_use = inode != 0;
    let name_len = if in_use { usize::from(low8(word >> 48)) } else { 0 };
    let used = if in_use { space(name_len) } else { 0 };
    // Without branches but one: what is tested is hardly ever wrong.
    let sound =
        (len >= RECORD_MIN) & (len & 3 == 0) & (len <= end - at) & (used <= len) & (!in_use | (name_len > 0));
    sound.then_some(Head { len, inode, name_len, used })
}

/// What is wrong where [`head`] found no sound record.
#[cold]
pub(super) fn unsound(block: &[u8], at: usize, end: usize, place: Place) -> Corrupt {
    let corrupt = |what: String| Corrupt::new(STRUCTURE, place, format!("byte {at}: {what}"));
    let left = end.min(block.len()).saturating_sub(at);
    if left < RECORD_MIN {
        return corrupt(format!("{left} bytes are left over after the last record"));
    }
    let len = get_len(block, at);
    if len < RECORD_MIN || !len.is_multiple_of(4) || len > left {
        return corrupt(format!("a record length of {len} with {left} bytes left"));
    }
    match usize::from(block[at + 6]) {
        0 => corrupt("an empty name".into()),
        name_len => corrupt(format!("a name of {name_len} bytes in a record of {len}")),
    }
}

/// A name to be compared with those of many records: the length and the last bytes tell nearly all apart, and
/// the last bytes of names made by a program differ more than the first.
pub(super) struct Needle<'a> {
    name: &'a [u8],
    tail: u64,
    shift: u32,
}

impl<'a> Needle<'a> {
    /// Makes a name ready to be compared.
    pub(super) fn new(name: Name<'a>) -> Self {
        let name = name.bytes();
        let short = name.len().min(8);
        let mut tail = [0; 8];
        tail[8 - short..].copy_from_slice(&name[name.len() - short..]);
        // The bytes before a short name, which are the record's header, don't count.
        let shift = 8 * low32(u64_of(8 - short));
        Self { name, tail: u64::from_le_bytes(tail) >> shift, shift }
    }

    /// Whether the record at `at`, whose head this is, has that name. No unused one has.
    #[inline]
    pub(super) fn is_at(&self, block: &[u8], at: usize, head: &Head) -> bool {
        if head.name_len != self.name.len() {
            return false;
        }
        // The eight bytes that end where the name ends: at most all of the header are before it.
        let Some(name) = block.get(at..).and_then(|record| record.get(..HEADER_LEN + head.name_len)) else {
            return false;
        };
        let same_tail =
            name.last_chunk().is_some_and(|tail| u64::from_le_bytes(*tail) >> self.shift == self.tail);
        same_tail && name[HEADER_LEN..] == *self.name
    }
}

/// A checked record of a directory block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Where in the block it starts, in bytes.
    pub(crate) offset: usize,
    /// Its length with slack, in bytes.
    pub(super) len: usize,
    /// The inode it leads to; `None` if it is unused.
    pub inode: Option<InodeNr>,
    /// The type of that inode.
    pub file_type: FileType,
    /// The name; of an unused record, empty.
    pub name: &'a [u8],
}

impl<'a> Record<'a> {
    /// The entry it holds, if it is in use.
    pub(super) fn entry(&self) -> Option<super::Entry<'a>> {
        self.inode.map(|inode| super::Entry { name: Name(self.name), inode, file_type: self.file_type })
    }
}

/// The record at `at`, whose head this is. Its name has not been looked at.
fn shown<'a>(block: &'a [u8], at: usize, head: &Head, filetype: bool) -> Record<'a> {
    let name = &block[at + HEADER_LEN..at + HEADER_LEN + head.name_len];
    let code = if filetype && head.inode != 0 { block[at + 7] } else { 0 };
    let (inode, file_type) = (InodeNr::from_disk(head.inode), FileType::from_code(code));
    Record { offset: at, len: head.len, inode, file_type, name }
}

/// The walk over the records of one block. Ends after the first corrupt one.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    block: &'a [u8],
    at: usize,
    end: usize,
    filetype: bool,
    opaque_names: bool,
    folds: bool,
    place: Place,
}

impl<'a> Records<'a> {
    /// The records of `block` up to byte `end`.
    ///
    /// # Errors
    /// [`Corrupt`] if the block hasn't the volume's block size.
    pub(super) fn new(block: &'a [u8], end: usize, format: &Format, place: Place) -> Result<Self, Corrupt> {
        if block.len() != format.block_size.len() {
            let len = block.len();
            return Err(Corrupt::new(STRUCTURE, place, format!("it has {len} bytes")));
        }
        let Format { filetype, opaque_names, folding, .. } = *format;
        Ok(Self { block, at: 0, end, filetype, opaque_names, folds: folding.is_some(), place })
    }

    fn check(&self) -> Result<Record<'a>, Corrupt> {
        let at = self.at;
        let Some(head) = head(self.block, at, self.end) else {
            return Err(unsound(self.block, at, self.end, self.place));
        };
        let record = shown(self.block, at, &head, self.filetype);
        let valid = record.inode.is_none() || self.opaque_names || Name::new(record.name).is_some();
        if !valid {
            let reason = format!("byte {at}: a name that contains / or NUL");
            return Err(Corrupt::new(STRUCTURE, self.place, reason));
        }
        Ok(record)
    }

    /// Looks for a name and, on the way, for room for a record of `need` bytes: in one walk to the end, or to
    /// the name. Names that are only passed are not checked for bytes that no name has.
    ///
    /// # Errors
    /// [`Corrupt`] if any record up to there is.
    pub(super) fn scan_for(&self, name: Name<'_>, need: usize) -> Result<Scan<'a>, Corrupt> {
        let needle = Needle::new(name);
        // The dots are found by their exact names only.
        let folded = if self.folds && !name.is_dot() { casefold::fold(name.bytes()) } else { None };
        let (mut at, mut room, mut least) = (self.at, None, usize::MAX);
        while at < self.end {
            let Some(head) = head(self.block, at, self.end) else {
                return Err(unsound(self.block, at, self.end, self.place));
            };
            let is_there = needle.is_at(self.block, at, &head)
                || folded.as_deref().is_some_and(|folded| is_folded_to(folded, self.block, at, &head));
            if is_there {
                return Ok(Scan::Found(shown(self.block, at, &head, self.filetype)));
            }
            let slack = head.len - head.used;
            if slack >= need && slack < least {
                (room, least) = (Some(at), slack);
            }
            at += head.len;
        }
        Ok(Scan::Absent { room })
    }

    /// The used record called `name`.
    ///
    /// # Errors
    /// [`Corrupt`] if a record before it is.
    pub(super) fn find_name(&self, name: Name<'_>) -> Result<Option<Record<'a>>, Corrupt> {
        match self.scan_for(name, usize::MAX)? {
            Scan::Found(record) => Ok(Some(record)),
            Scan::Absent { .. } => Ok(None),
        }
    }

    /// The heads of the record that starts at `offset` and of the one before it, with where that starts.
    ///
    /// # Errors
    /// [`Corrupt`] if a record up to there is, or none starts there.
    pub(super) fn neighbours(&self, offset: usize) -> Result<(Option<(usize, Head)>, Head), Corrupt> {
        let (mut at, mut before) = (self.at, None);
        while at < self.end {
            let Some(head) = head(self.block, at, self.end) else {
                return Err(unsound(self.block, at, self.end, self.place));
            };
            if at == offset {
                return Ok((before, head));
            }
            before = Some((at, head));
            at += head.len;
        }
        Err(Corrupt::new(STRUCTURE, self.place, format!("byte {offset}: no record starts there")))
    }
}

/// The name of the record at a byte of a block of records, where an operation has found it; `None` if none
/// in use is there.
#[must_use]
pub fn stored_name(block: &[u8], offset: u32) -> Option<&[u8]> {
    let at = usize_of(offset);
    let head = head(block, at, block.len()).filter(|head| head.inode != 0)?;
    block.get(at + HEADER_LEN..at + HEADER_LEN + head.name_len)
}

/// Whether the record at `at`, whose head this is, has a name of that folded form.
fn is_folded_to(folded: &[u8], block: &[u8], at: usize, head: &Head) -> bool {
    let start = at + HEADER_LEN;
    let name = block.get(start..start + head.name_len).and_then(Name::opaque).filter(|name| !name.is_dot());
    head.inode != 0 && name.is_some_and(|name| casefold::fold(name.bytes()).as_deref() == Some(folded))
}

/// What a walk for a name and for room came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scan<'a> {
    /// The record that has the name.
    Found(Record<'a>),
    /// No record has the name.
    Absent {
        /// Where the record starts whose slack it could have: the least that is enough, of equals the first.
        room: Option<usize>,
    },
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let checked = self.check();
        self.at = checked.as_ref().map_or(self.end, |record| record.offset + record.len);
        Some(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::{Entry, HashVersion, Signedness};
    use hectare_units::BlockSize;

    fn format(opaque_names: bool) -> Format {
        Format {
            block_size: BlockSize::from_bytes(1024).unwrap(),
            filetype: true,
            checksums: false,
            index: true,
            large_dir: false,
            hash_version: HashVersion::HalfMd4,
            hash_signedness: Signedness::Signed,
            hash_seed: [0; 4],
            opaque_names,
            folding: None,
        }
    }

    /// The first name of a block that holds `name` alone.
    fn parsed(name: &[u8], opaque_names: bool) -> Result<Vec<u8>, Corrupt> {
        let mut block = vec![0; 1024];
        let (name, file_type) = (Name::opaque(name).unwrap(), FileType::Regular);
        let entry = Entry { name, inode: InodeNr::new(12), file_type };
        put(&mut block, 0, 1024, &entry, &format(opaque_names));
        let mut records = Records::new(&block, 1024, &format(opaque_names), Place::Volume)?;
        records.next().unwrap().map(|record| record.name.to_vec())
    }

    #[test]
    fn ciphertext_is_a_name_only_where_names_are_opaque() {
        let every_byte: Vec<u8> = (0..255).collect();
        for name in [&b"a/b"[..], b"a\0b", b"/", b"\0", &every_byte, &[0; 255]] {
            assert_eq!(parsed(name, true), Ok(name.to_vec()));
            assert!(parsed(name, false).unwrap_err().to_string().contains("contains / or NUL"));
        }
        assert_eq!(parsed(b"plain", true), parsed(b"plain", false));
    }

    #[test]
    fn an_empty_name_is_never_one() {
        let mut block = vec![0; 1024];
        put32(&mut block, 0, 12);
        put_len(&mut block, 0, 1024);
        for opaque in [false, true] {
            let mut records = Records::new(&block, 1024, &format(opaque), Place::Volume).unwrap();
            assert!(records.next().unwrap().unwrap_err().to_string().contains("an empty name"));
        }
        assert_eq!((Name::opaque(b""), Name::opaque(&[1; 256])), (None, None));
    }
}
