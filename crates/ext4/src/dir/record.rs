//! One record of a directory block, and the walk over a block's records.
//!
//! A record is an 8-byte header (inode, record length, name length, file type), the name, and whatever slack
//! its length includes. Lengths are multiples of 4 and the records tile the block exactly. A record with
//! inode 0 is unused space. On a volume with checksums the last 12 bytes are a record made to look unused,
//! with file type 0xDE, that holds the checksum; it is not part of the walk.
//!
//! Hazard: the 16-bit length field can't hold 65536, so blocks of 64 KiB store the length of a record that
//! fills them as 65535 or 0.

use super::{FileType, Format, Name};
use crate::{Corrupt, Place};
use hectare_units::{InodeNr, low16, u64_of};

/// The header before a record's name, in bytes.
pub(super) const HEADER_LEN: usize = 8;
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
    block[at + 6] = hectare_units::low8(u64_of(name.len()));
    block[at + 7] = if format.filetype { entry.file_type.code() } else { 0 };
    block[at + HEADER_LEN..at + HEADER_LEN + name.len()].copy_from_slice(name);
}

/// A checked record of a directory block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Where in the block it starts, in bytes.
    pub(super) offset: usize,
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
    /// The bytes a new record could have of this one.
    pub(super) const fn slack(&self) -> usize {
        match self.inode {
            Some(_) => self.len - space(self.name.len()),
            None => self.len,
        }
    }

    /// The entry it holds, if it is in use.
    pub(super) fn entry(&self) -> Option<super::Entry<'a>> {
        self.inode.map(|inode| super::Entry { name: Name(self.name), inode, file_type: self.file_type })
    }
}

/// The walk over the records of one block. Ends after the first corrupt one.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    block: &'a [u8],
    at: usize,
    end: usize,
    filetype: bool,
    opaque_names: bool,
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
        let Format { filetype, opaque_names, .. } = *format;
        Ok(Self { block, at: 0, end, filetype, opaque_names, place })
    }

    fn check(&self) -> Result<Record<'a>, Corrupt> {
        let (at, left) = (self.at, self.end - self.at);
        let corrupt = |what: String| Corrupt::new(STRUCTURE, self.place, format!("byte {at}: {what}"));
        if left < RECORD_MIN {
            return Err(corrupt(format!("{left} bytes are left over after the last record")));
        }
        let len = get_len(self.block, at);
        if len < RECORD_MIN || !len.is_multiple_of(4) || len > left {
            return Err(corrupt(format!("a record length of {len} with {left} bytes left")));
        }
        let Some(inode) = InodeNr::from_disk(get32(self.block, at)) else {
            return Ok(Record { offset: at, len, inode: None, file_type: FileType::Unknown, name: &[] });
        };
        let name_len = usize::from(self.block[at + 6]);
        if space(name_len) > len {
            return Err(corrupt(format!("a name of {name_len} bytes in a record of {len}")));
        }
        let name = &self.block[at + HEADER_LEN..at + HEADER_LEN + name_len];
        let valid = if self.opaque_names { Name::opaque(name) } else { Name::new(name) };
        if valid.is_none() {
            let reason = if name.is_empty() { "an empty name" } else { "a name that contains / or NUL" };
            return Err(corrupt(reason.into()));
        }
        let code = if self.filetype { self.block[at + 7] } else { 0 };
        Ok(Record { offset: at, len, inode: Some(inode), file_type: FileType::from_code(code), name })
    }
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
