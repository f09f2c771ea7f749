//! One file as plain data: the result of a walk, and the unit of a comparison.
//!
//! [`walk()`](crate::walk()) makes entries from a directory; Hectare's own reader makes the same entries from
//! a volume, and [`compare()`](crate::compare()) does not know which is which. So everything here is public
//! and of plain types, and the two things that must be computed alike are computed here: the digest of a
//! file's content ([`Content`]) and the binary form of extended attributes (see [`Entry::xattrs`]).

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The type of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
}

/// A time stamp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds after that, 0 to 999,999,999.
    pub nanos: u32,
}

/// One object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The path from the root of the walk, without a leading slash; the root itself is empty.
    pub path: Vec<u8>,
    /// The type.
    pub kind: Kind,
    /// The low 12 bits of the mode: permissions, set-uid, set-gid, sticky.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of links.
    pub nlink: u64,
    /// The size in bytes. Not compared for directories.
    pub size: u64,
    /// A number that paths of the same object share. Only its grouping of paths is compared.
    pub inode: u64,
    /// Major and minor number of a device, else zeros.
    pub device: (u32, u32),
    /// When the content was last changed.
    pub mtime: Time,
    /// When it was last read.
    pub atime: Time,
    /// What a symbolic link points to, else empty.
    pub target: Vec<u8>,
    /// The ranges of a regular file that hold data, as `SEEK_DATA` reports them: offset and length,
    /// ascending, apart, inside the size. Unwritten (preallocated) ranges are holes.
    pub data: Vec<(u64, u64)>,
    /// Extended attributes by full name ("user.note"), each in the form `getxattr(2)` gives: ACLs as
    /// `system.posix_acl_access` in the kernel's interface form (version 2), not in ext4's shorter disk form.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The digest of a regular file's content (see [`Content`]), else zeros.
    pub digest: [u8; 32],
}

impl Entry {
    /// An entry with everything else zero or empty.
    #[must_use]
    pub fn new(path: impl Into<Vec<u8>>, kind: Kind) -> Self {
        Self {
            path: path.into(),
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            inode: 0,
            device: (0, 0),
            mtime: Time::default(),
            atime: Time::default(),
            target: Vec::new(),
            data: Vec::new(),
            xattrs: BTreeMap::new(),
            digest: [0; 32],
        }
    }
}

const CHUNK: usize = 64 * 1024;
const CHUNK_BYTES: u64 = 64 * 1024;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// SHA-256 of a file's content, such that a terabyte of hole costs nothing.
///
/// The digest is of the size and of each 64 KiB chunk that is not all zeros, with its number before it. It
/// does not depend on which zeros are holes, nor on how the content was split into calls.
#[derive(Clone)]
pub struct Content {
    hash: Sha256,
    chunk: Box<[u8]>,
    number: u64,
    filled: bool,
}

impl Default for Content {
    fn default() -> Self {
        Self::new()
    }
}

impl Content {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { hash: Sha256::new(), chunk: vec![0; CHUNK].into(), number: 0, filled: false }
    }

    /// Adds content at an offset in bytes; what lies between calls is zeros.
    ///
    /// # Panics
    /// If offsets go backwards by more than a chunk (they must ascend).
    pub fn add(&mut self, offset: u64, mut bytes: &[u8]) {
        let mut offset = offset;
        while !bytes.is_empty() {
            self.move_to(offset / CHUNK_BYTES);
            let within = usize::try_from(offset % CHUNK_BYTES).unwrap_or(0);
            let n = bytes.len().min(CHUNK - within);
            let (now, later) = bytes.split_at(n);
            self.chunk[within..within + n].copy_from_slice(now);
            self.filled = true;
            bytes = later;
            offset += n as u64;
        }
    }

    fn move_to(&mut self, number: u64) {
        assert!(number >= self.number, "content must be added in ascending order");
        if number > self.number {
            self.flush();
            self.number = number;
        }
    }

    fn flush(&mut self) {
        if self.filled && *self.chunk != ZEROS[..] {
            self.hash.update(self.number.to_le_bytes());
            self.hash.update(&self.chunk);
        }
        if self.filled {
            self.chunk.fill(0);
            self.filled = false;
        }
    }

    /// The digest of content of `size` bytes.
    #[must_use]
    pub fn finish(mut self, size: u64) -> [u8; 32] {
        self.flush();
        self.hash.update(u64::MAX.to_le_bytes());
        self.hash.update(size.to_le_bytes());
        self.hash.finalize().into()
    }

    /// The digest of content held in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> [u8; 32] {
        let mut content = Self::new();
        content.add(0, bytes);
        content.finish(bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_does_not_depend_on_cuts_and_holes() {
        let mut bytes = vec![0; 300_000];
        bytes[10..20].fill(1);
        bytes[131_070..131_080].fill(2);
        let whole = Content::of(&bytes);
        for cut in [1, 7, 4096, 65_536, 65_537] {
            let mut content = Content::new();
            for (i, part) in bytes.chunks(cut).enumerate() {
                content.add((i * cut) as u64, part);
            }
            assert_eq!(content.finish(300_000), whole, "{cut}");
        }
        let mut holes = Content::new();
        holes.add(10, &bytes[10..20]);
        holes.add(131_070, &bytes[131_070..131_080]);
        assert_eq!(holes.finish(300_000), whole);
    }

    #[test]
    fn the_digest_sees_every_byte_its_place_and_the_size() {
        let base = Content::of(&[0; 100]);
        assert_ne!(base, Content::of(&[0; 101]));
        let mut moved = [Content::new(), Content::new()];
        moved[0].add(0, b"x");
        moved[1].add(65_536, b"x");
        let [first, second] = moved.map(|content| content.finish(100_000));
        assert_ne!(first, second);
    }
}
