//! Inline data: a small file or directory that lives in its inode and has no blocks (feature `inline_data`).
//!
//! The first 60 bytes take the place of the block map (`i_block`); what is longer continues in the value of
//! the attribute `system.data`, which exists even if it is empty. A directory keeps the number of its parent
//! in the first four bytes and has no `.` and `..`; entries follow up to byte 60, and again, as a second row
//! of its own, in the attribute's value. Both rows are covered by record lengths without gap, like directory
//! blocks.
//!
//! Hazards: the value may be longer than the file needs; bytes behind the file's size mean nothing. A
//! directory's two rows are separate: no entry crosses from one into the other.
//!
//! Here it is read; [`store()`] writes it, and [`Rows`] changes a directory. Growing out of the inode is not
//! done here.

mod rows;
mod store;

pub use rows::Rows;
pub use store::{clear, room, room_max, store};

use crate::error::{Corrupt, Place};
use hectare_units::{Bytes, InodeNr, u64_of};

/// Bytes of content in the inode's block map field.
pub const HEAD: usize = 60;

/// Bytes that hold the parent's number in front of a directory's entries.
const PARENT: usize = 4;

/// The fixed part of a directory entry: inode, record length, name length, type.
const ENTRY_HEADER: usize = 8;

/// The content of an inline file.
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a> {
    head: &'a [u8; HEAD],
    tail: &'a [u8],
    place: Place,
}

/// An entry of an inline directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Where the entry starts, in bytes: below 60 in the inode, from 60 on in the attribute.
    pub at: usize,
    /// What it names.
    pub inode: InodeNr,
    /// The file type as stored (`feature filetype`): 1 file, 2 directory, 3 and 4 character and block device,
    /// 5 fifo, 6 socket, 7 symbolic link; anything else is unknown.
    pub file_type: u8,
    /// The name, 1 to 255 bytes, free of `/` and zero bytes.
    pub name: &'a [u8],
}

impl<'a> Inline<'a> {
    /// The content from its two parts: the inode's `i_block` field and the value of `system.data`.
    ///
    /// # Errors
    /// `Corrupt` if there is no such attribute, or the file is larger than both parts.
    pub fn new(
        i_block: &'a [u8; HEAD],
        system_data: Option<&'a [u8]>,
        size: Bytes,
        place: Place,
    ) -> Result<Self, Corrupt> {
        let missing = || Corrupt::new("inline data", place, "its attribute system.data is missing");
        let tail = system_data.ok_or_else(missing)?;
        let room = u64_of(HEAD + tail.len());
        if size.get() > room {
            let reason = format!("its size is {size} bytes, there is room for {room}");
            return Err(Corrupt::new("inline data", place, reason));
        }
        Ok(Self { head: i_block, tail, place })
    }

    /// Copies content from byte `at` of a file of `size` bytes and says how much; 0 at its end.
    pub fn read_at(&self, size: Bytes, at: Bytes, out: &mut [u8]) -> usize {
        let index = |n: Bytes| usize::try_from(n.get()).unwrap_or(usize::MAX);
        let content = self.head.iter().chain(self.tail).take(index(size)).skip(index(at));
        let mut copied = 0;
        for (to, from) in out.iter_mut().zip(content) {
            *to = *from;
            copied += 1;
        }
        copied
    }

    /// The whole content of a file of `size` bytes.
    #[must_use]
    pub fn content(&self, size: Bytes) -> Vec<u8> {
        let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
        self.head.iter().chain(self.tail).take(size).copied().collect()
    }

    /// The parent of an inline directory.
    ///
    /// # Errors
    /// `Corrupt` if it is 0.
    pub fn parent(&self) -> Result<InodeNr, Corrupt> {
        let [a, b, c, d, ..] = *self.head;
        InodeNr::from_disk(u32::from_le_bytes([a, b, c, d]))
            .ok_or_else(|| self.corrupt("its parent is inode 0"))
    }

    /// The entries of an inline directory, without `.` and `..`, in stored order. An error is the last item.
    pub fn dir_entries(&self) -> impl Iterator<Item = Result<DirEntry<'a>, Corrupt>> + use<'a> {
        let dir = *self;
        let mut at = PARENT;
        std::iter::from_fn(move || {
            let step = dir.next_entry(&mut at).transpose();
            if matches!(step, None | Some(Err(_))) {
                at = usize::MAX;
            }
            step
        })
    }

    /// The next used entry at or after `*at`, which is moved behind it.
    fn next_entry(&self, at: &mut usize) -> Result<Option<DirEntry<'a>>, Corrupt> {
        while let Some(row) = self.row_from(*at) {
            let start = *at;
            let (entry, len) = self.entry(start, row)?;
            *at = start + len;
            if entry.is_some() {
                return Ok(entry);
            }
        }
        Ok(None)
    }

    /// What is left of the row that byte `at` lies in.
    fn row_from(&self, at: usize) -> Option<&'a [u8]> {
        match at.checked_sub(HEAD) {
            None => self.head.get(at..),
            Some(at) => self.tail.get(at..).filter(|row| !row.is_empty()),
        }
    }

    /// The entry at the start of `row`, if it is used, and its record length.
    fn entry(&self, at: usize, row: &'a [u8]) -> Result<(Option<DirEntry<'a>>, usize), Corrupt> {
        let cut = || self.corrupt(format!("the directory entry at byte {at} is cut off"));
        let [i0, i1, i2, i3, l0, l1, name_len, file_type] = *row.first_chunk().ok_or_else(cut)?;
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        let name_len = usize::from(name_len);
        if len % 4 != 0 || len < ENTRY_HEADER || len > row.len() {
            let left = row.len();
            return Err(self.corrupt(format!("the directory entry at byte {at} takes {len} of {left} bytes")));
        }
        let Some(inode) = InodeNr::from_disk(u32::from_le_bytes([i0, i1, i2, i3])) else {
            return Ok((None, len));
        };
        let name = row.get(ENTRY_HEADER..len).and_then(|record| record.get(..name_len));
        let name = name.filter(|name| !name.is_empty() && !name.contains(&0) && !name.contains(&b'/'));
        let name =
            name.ok_or_else(|| self.corrupt(format!("the directory entry at byte {at} has a bad name")))?;
        Ok((Some(DirEntry { at, inode, file_type, name }), len))
    }

    fn corrupt(&self, reason: impl Into<std::borrow::Cow<'static, str>>) -> Corrupt {
        Corrupt::new("inline directory", self.place, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(inode: u32, len: u16, name: &[u8]) -> Vec<u8> {
        let name_len = u8::try_from(name.len()).unwrap();
        let mut bytes = [&inode.to_le_bytes()[..], &len.to_le_bytes(), &[name_len, 1], name].concat();
        bytes.resize(usize::from(len), 0);
        bytes
    }

    fn dir() -> ([u8; HEAD], Vec<u8>) {
        let head = [2u32.to_le_bytes().to_vec(), entry(12, 16, b"abc"), entry(0, 40, b"")].concat();
        (head.try_into().unwrap(), [entry(13, 12, b"x"), entry(14, 24, b"long-name")].concat())
    }

    fn list(head: &[u8; HEAD], tail: &[u8]) -> Result<Vec<(usize, u32, Vec<u8>)>, Corrupt> {
        let inline = Inline::new(head, Some(tail), Bytes::ZERO, Place::Inode(InodeNr::new(11)))?;
        let row = |entry: DirEntry<'_>| (entry.at, entry.inode.get(), entry.name.to_vec());
        inline.dir_entries().map(|entry| entry.map(row)).collect()
    }

    #[test]
    fn content_continues_in_the_attribute() {
        let (head, tail) = ([b'a'; HEAD], vec![b'b'; 20]);
        let size = Bytes::new(70);
        let inline = Inline::new(&head, Some(&tail), size, Place::Volume).unwrap();
        assert_eq!(inline.content(size), [&[b'a'; 60][..], &[b'b'; 10]].concat());
        let mut out = [0; 8];
        assert_eq!((inline.read_at(size, Bytes::new(58), &mut out), &out), (8, b"aabbbbbb"));
        assert_eq!(inline.read_at(size, Bytes::new(66), &mut out), 4);
        assert_eq!(inline.read_at(size, Bytes::new(1 << 40), &mut out), 0);
        assert!(Inline::new(&head, Some(&tail), Bytes::new(81), Place::Volume).is_err());
        assert!(Inline::new(&head, None, Bytes::new(1), Place::Volume).is_err());
    }

    #[test]
    fn a_directory_has_two_rows() {
        let (head, tail) = dir();
        let inline = Inline::new(&head, Some(&tail), Bytes::new(96), Place::Volume).unwrap();
        assert_eq!(inline.parent(), Ok(InodeNr::ROOT));
        let names = vec![(4, 12, b"abc".to_vec()), (60, 13, b"x".to_vec()), (72, 14, b"long-name".to_vec())];
        assert_eq!(list(&head, &tail), Ok(names));
        assert_eq!(list(&head, &[]).unwrap().len(), 1);
    }

    #[test]
    fn bad_entries_are_named() {
        let (head, tail) = dir();
        for (at, byte) in [(8, 0), (8, 7), (8, 255), (10, 9), (10, 0), (12, 0), (12, b'/')] {
            let mut head = head;
            head[at] = byte;
            let error = list(&head, &tail).unwrap_err().to_string();
            assert!(
                error.starts_with("inline directory of inode 11 is corrupt: the directory entry at byte 4")
            );
        }
        assert!(list(&head, &tail[..30]).is_err());
        assert!(list(&head, &tail[..15]).is_err());
    }

    proptest! {
        #![proptest_config(crate::testing::cases("inline", 256))]

        #[test]
        fn random_bytes_never_panic(
            head in prop::array::uniform(0u8..24),
            tail in prop::collection::vec(0u8..24, 0..100),
        ) {
            let inline = Inline::new(&head, Some(&tail), Bytes::new(60), Place::Volume).unwrap();
            prop_assert!(inline.dir_entries().count() <= 20);
        }
    }
}
