//! Writes an archive in pax form, entry by entry, to anything that takes bytes in order.
//!
//! An entry is a ustar header; what that has no room for (nanoseconds, long names, large numbers, attributes,
//! ACLs) precedes it as pax records. A file with holes is in GNU tar's sparse form 1.0 (GNU tar manual,
//! "Sparse Formats"): its data is preceded by a list of the ranges that follow.
//!
//! Invariants: the same entries give the same bytes; no user names, no access times, no number of a process.
//! After an entry with content the caller gives exactly the bytes that it announced ([`Archive::data`]).
//!
//! What this is not: it knows no volume, and no rules about which entries make a tree.

mod acl;
mod header;
mod pax;

use header::{BLOCK_LEN, Header, LONG_MAX, NAME_MAX, SHORT_MAX};
use hectare_engine::{DeviceNumber, Timestamp};
use hectare_units::u64_of;
use pax::Records;
use std::io::{self, Write};

/// Extended attributes: full names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// An entry of an archive.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The path; empty for the root, and without a slash at its end for directories, too.
    pub path: &'a [u8],
    /// What it is.
    pub content: Content<'a>,
    /// Permissions and set-id bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group of owners.
    pub gid: u32,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Extended attributes.
    pub xattrs: Xattrs,
}

/// The kind of an entry, with what belongs to it.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A directory.
    Directory,
    /// A file of this many bytes, all of them data.
    File(u64),
    /// A file of this many bytes, of which these ranges (offset and length, in order) are data.
    Sparse(u64, &'a [(u64, u64)]),
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// Another name of the file at this path, which comes before.
    HardLink(&'a [u8]),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
}

/// An archive that is being written.
#[derive(Debug)]
pub struct Archive<W> {
    out: W,
    /// Bytes of data that the last entry still needs.
    missing: u64,
    /// Bytes that fill up the last block of its data.
    padding: usize,
}

impl<W: Write> Archive<W> {
    /// An archive without entries.
    pub fn new(out: W) -> Self {
        Self { out, missing: 0, padding: 0 }
    }

    /// Begins an entry. The data that it announces follows.
    ///
    /// # Errors
    /// If writing fails.
    pub fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        debug_assert_eq!(self.missing, 0, "the data of the entry before is missing");
        let map = match entry.content {
            Content::Sparse(size, ranges) => sparse_map(size, ranges),
            _ => Vec::new(),
        };
        let data = match entry.content {
            Content::File(size) => size,
            Content::Sparse(_, ranges) => ranges.iter().map(|(_, len)| len).sum(),
            _ => 0,
        };
        let stored = u64_of(map.len()) + data;
        let name = name(entry);
        let link = match entry.content {
            Content::Symlink(target) | Content::HardLink(target) => target,
            _ => b"",
        };
        let records = records(entry, &name, link, stored);
        self.extension(&name, &records)?;
        let device = match entry.content {
            Content::CharDevice(device) | Content::BlockDevice(device) => Some(device),
            _ => None,
        };
        let (mode, uid, gid) = (entry.mode, entry.uid, entry.gid);
        let (seconds, flag) = (entry.mtime.seconds, flag(&entry.content));
        let header = Header { name: &name, mode, uid, gid, size: stored, seconds, flag, link, device };
        self.out.write_all(&header.block())?;
        self.out.write_all(&map)?;
        (self.missing, self.padding) = (data, padding(data));
        self.pad()
    }

    /// Adds data of the last entry.
    ///
    /// # Errors
    /// If writing fails.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(u64_of(bytes.len()) <= self.missing, "more data than the entry announced");
        self.out.write_all(bytes)?;
        self.missing = self.missing.saturating_sub(u64_of(bytes.len()));
        self.pad()
    }

    /// Ends the archive, and returns what it was written to.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK_LEN])?;
        Ok(self.out)
    }

    /// Fills the last block up once its data is complete.
    fn pad(&mut self) -> io::Result<()> {
        if self.missing > 0 {
            return Ok(());
        }
        let padding = std::mem::take(&mut self.padding);
        self.out.write_all(&[0; BLOCK_LEN][..padding])
    }

    /// Writes the pax records of the entry that follows, if it has any.
    fn extension(&mut self, name: &[u8], records: &Records) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let name = [b"PaxHeaders.0/", last_name(name)].concat();
        let size = u64_of(records.bytes().len());
        let header = Header { name: &name, mode: 0o644, size, flag: b'x', ..Header::default() };
        self.out.write_all(&header.block())?;
        self.out.write_all(records.bytes())?;
        self.out.write_all(&[0; BLOCK_LEN][..padding(size)])
    }
}

/// Bytes that fill up the last block of data.
fn padding(len: u64) -> usize {
    hectare_units::index_of(len.next_multiple_of(u64_of(BLOCK_LEN)) - len)
}

fn flag(content: &Content<'_>) -> u8 {
    match content {
        Content::File(_) | Content::Sparse(..) => b'0',
        Content::HardLink(_) => b'1',
        Content::Symlink(_) => b'2',
        Content::CharDevice(_) => b'3',
        Content::BlockDevice(_) => b'4',
        Content::Directory => b'5',
        Content::Fifo => b'6',
    }
}

/// The name in the header, in full. That of a sparse file is for readers that don't know the form.
fn name(entry: &Entry<'_>) -> Vec<u8> {
    match entry.content {
        Content::Directory if entry.path.is_empty() => b"./".to_vec(),
        Content::Directory => [entry.path, b"/"].concat(),
        Content::Sparse(..) => {
            let last = last_name(entry.path);
            let dir = &entry.path[..entry.path.len() - last.len()];
            [dir, b"GNUSparseFile.0/", last].concat()
        }
        _ => entry.path.to_vec(),
    }
}

/// The last name of a path, with the slash that may end it.
fn last_name(path: &[u8]) -> &[u8] {
    let end = path.len().saturating_sub(1);
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    &path[start..]
}

fn records(entry: &Entry<'_>, name: &[u8], link: &[u8], stored: u64) -> Records {
    let mut records = Records::default();
    if let Content::Sparse(size, _) = entry.content {
        records.number("GNU.sparse.major", 1);
        records.number("GNU.sparse.minor", 0);
        records.add(b"GNU.sparse.name", entry.path);
        records.number("GNU.sparse.realsize", size);
    } else if name.len() > NAME_MAX {
        records.add(b"path", name);
    }
    if link.len() > NAME_MAX {
        records.add(b"linkpath", link);
    }
    for (key, id) in [("uid", entry.uid), ("gid", entry.gid)] {
        if u64::from(id) > SHORT_MAX {
            records.number(key, id.into());
        }
    }
    if stored > LONG_MAX {
        records.number("size", stored);
    }
    let whole = u64::try_from(entry.mtime.seconds).is_ok_and(|seconds| seconds <= LONG_MAX);
    if !whole || entry.mtime.nanoseconds > 0 {
        records.time("mtime", entry.mtime);
    }
    for (name, value) in &entry.xattrs {
        records.xattr(name, value);
        if let Some((key, text)) = acl::record(name, value) {
            records.add(key.as_bytes(), text.as_bytes());
        }
    }
    records
}

/// The list of ranges that precedes their data: how many, then offset and length of each, a number a line,
/// filled up to whole blocks. As in GNU tar an empty range marks the end of a file that ends in a hole.
fn sparse_map(size: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let ends_in_hole = ranges.last().is_none_or(|(at, len)| at + len < size);
    let end = ends_in_hole.then_some((size, 0));
    let mut map = format!("{}\n", ranges.len() + usize::from(ends_in_hole));
    for (at, len) in ranges.iter().copied().chain(end) {
        map += &format!("{at}\n{len}\n");
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_LEN), 0);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(path: &'a [u8], content: Content<'a>) -> Entry<'a> {
        let mtime = Timestamp::from_seconds(7);
        Entry { path, content, mode: 0o644, uid: 1, gid: 2, mtime, xattrs: Vec::new() }
    }

    #[test]
    fn an_entry_that_fits_its_header_has_no_records() {
        let mut archive = Archive::new(Vec::new());
        archive.entry(&entry(b"a", Content::File(513))).unwrap();
        archive.data(&[b'x'; 512]).unwrap();
        archive.data(b"y").unwrap();
        archive.entry(&entry(b"", Content::Directory)).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len(), 512 * (1 + 2 + 1 + 2));
        assert_eq!(&bytes[1024..1026], b"y\0");
        assert_eq!(&bytes[1536..1539], b"./\0");
    }

    #[test]
    fn a_map_says_where_a_file_ends() {
        let map = |size, ranges: &[(u64, u64)]| {
            let map = sparse_map(size, ranges);
            assert_eq!(map.len(), 512);
            String::from_utf8(map).unwrap().trim_end_matches('\0').to_owned()
        };
        assert_eq!(map(10, &[(4, 6)]), "1\n4\n6\n");
        assert_eq!(map(10, &[(4, 2)]), "2\n4\n2\n10\n0\n");
        assert_eq!(map(10, &[]), "1\n10\n0\n");
    }

    #[test]
    fn what_no_header_has_room_for_is_in_records() {
        let path = vec![b'n'; 101];
        let mut large = entry(&path, Content::File(1 << 33));
        (large.uid, large.mtime) = (1 << 21, Timestamp { seconds: -1, nanoseconds: 1 });
        let records = records(&large, &path, b"", 1 << 33);
        let text = String::from_utf8(records.bytes().to_vec()).unwrap();
        let keys: Vec<&str> =
            text.lines().map(|line| line.split_once(' ').unwrap().1.split_once('=').unwrap().0).collect();
        assert_eq!(keys, ["path", "uid", "size", "mtime"]);
    }

    #[test]
    fn the_last_name_keeps_its_slash() {
        assert_eq!(last_name(b"a/b/"), b"b/");
        assert_eq!(last_name(b"a/b"), b"b");
        assert_eq!(last_name(b"a"), b"a");
        assert_eq!(last_name(b"./"), b"./");
        assert_eq!(last_name(b""), b"");
    }
}
