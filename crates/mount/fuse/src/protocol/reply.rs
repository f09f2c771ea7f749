//! Replies: a header, and the server's data after it.
//!
//! One [`Reply`] serves a thread for all its requests: its memory is reused, and a read goes directly into
//! it. The data is dropped if the request is refused after all.

use super::NodeId;
use super::wire::{Attr, Dirent, EntryOut, InvalInodeOut, OutHeader};
use crate::errno::{Answer, Refusal};
use hectare_engine::Kind;
use hectare_units::low32;
use std::time::Duration;
use zerocopy::{FromZeros, Immutable, IntoBytes};

const HEADER: usize = size_of::<OutHeader>();
/// Directory entries are aligned to this.
const ENTRY_ALIGN: usize = 8;

/// A reply under construction.
#[derive(Default)]
pub(crate) struct Reply {
    /// As long as the longest reply so far; this one uses the first bytes.
    bytes: Vec<u8>,
    len: usize,
    stale: Vec<Stale>,
}

/// What the kernel must drop before it gets a reply that does not replace it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// The attributes of an inode.
    Attributes(NodeId),
    /// The attributes and the cached content of an inode. The kernel first writes back what it buffers of a
    /// file, which another thread has to receive.
    Content(NodeId),
    /// All cached names, and that others do not exist ([`Features::DROPS_NAMES`](super::init::Features)).
    Names,
}

impl Stale {
    /// The message that has it dropped.
    pub(crate) fn message(self) -> Vec<u8> {
        /// `FUSE_NOTIFY_INC_EPOCH`, in the error field of an answer.
        const INC_EPOCH: i32 = 8;
        match self {
            Self::Attributes(node) => drop_from(node, -1),
            Self::Content(node) => drop_content(node),
            Self::Names => header(HEADER, INC_EPOCH, 0).as_bytes().to_vec(),
        }
    }
}

impl Reply {
    /// Drops the data.
    pub(crate) fn clear(&mut self) {
        self.len = HEADER;
        self.stale.clear();
    }

    /// Notes what the kernel must drop before it gets this reply.
    pub(crate) fn make_stale(&mut self, stale: Stale) {
        if !self.stale.contains(&stale) {
            self.stale.push(stale);
        }
    }

    /// What the kernel must drop.
    pub(crate) fn take_stale(&mut self) -> Vec<Stale> {
        std::mem::take(&mut self.stale)
    }

    /// The next `len` bytes, with undefined content.
    fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.len..end]
    }

    /// Appends bytes.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends a record.
    pub(crate) fn put(&mut self, record: &(impl IntoBytes + Immutable)) {
        self.put_bytes(record.as_bytes());
    }

    /// Has up to `most` bytes filled, and appends as many as `fill` returns.
    pub(crate) fn fill(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> Answer<usize>) -> Answer {
        let filled = fill(self.room(most))?;
        self.len += filled.min(most);
        Ok(())
    }

    /// A list of directory entries of at most `room` bytes.
    pub(crate) fn entries(&mut self, room: u32) -> Entries<'_> {
        let room = self.len + hectare_units::usize_of(room);
        Entries { reply: self, room }
    }

    /// The whole message: the data, or the error alone.
    pub(crate) fn finish(&mut self, unique: u64, answer: Answer) -> &[u8] {
        let error = answer.err().map_or(0, |Refusal(errno)| {
            self.len = HEADER;
            -errno.raw_os_error()
        });
        let len = self.len.max(HEADER);
        self.len = 0;
        self.put(&header(len, error, unique));
        self.len = len;
        &self.bytes[..len]
    }
}

/// Directory entries, as far as there is room.
pub(crate) struct Entries<'a> {
    reply: &'a mut Reply,
    /// The limit of their end.
    room: usize,
}

impl Entries<'_> {
    /// Adds a name with the number and kind of its inode, and the position of the next entry; returns false
    /// if there is no room for it.
    #[must_use]
    pub(crate) fn add(&mut self, number: u64, next: u64, kind: Kind, name: &[u8]) -> bool {
        self.fits(0, name) && {
            self.put(number, next, kind, name);
            true
        }
    }

    /// As `add`, with attributes; the kernel then knows the inode unless its number there is 0.
    #[must_use]
    pub(crate) fn add_with(&mut self, entry: &EntryOut, next: u64, kind: Kind, name: &[u8]) -> bool {
        self.fits(size_of::<EntryOut>(), name) && {
            self.reply.put(entry);
            self.put(entry.attr.ino.get(), next, kind, name);
            true
        }
    }

    fn fits(&self, before: usize, name: &[u8]) -> bool {
        let len = before + (size_of::<Dirent>() + name.len()).next_multiple_of(ENTRY_ALIGN);
        self.reply.len + len <= self.room
    }

    fn put(&mut self, number: u64, next: u64, kind: Kind, name: &[u8]) {
        let mut entry = Dirent::new_zeroed();
        entry.ino.set(number);
        entry.off.set(next);
        entry.namelen.set(low32(hectare_units::u64_of(name.len())));
        entry.kind.set(u32::from(kind.mode_bits()) >> 12);
        self.reply.put(&entry);
        self.reply.put_bytes(name);
        let rest = name.len().next_multiple_of(ENTRY_ALIGN) - name.len();
        self.reply.put_bytes(&[0; ENTRY_ALIGN][..rest]);
    }
}

fn header(len: usize, error: i32, unique: u64) -> OutHeader {
    let mut header = OutHeader::new_zeroed();
    header.len.set(low32(hectare_units::u64_of(len)));
    header.error.set(error);
    header.unique.set(unique);
    header
}

/// A notification: the kernel is to write back and drop what it caches of a file's content, and to drop its
/// attributes.
pub(crate) fn drop_content(node: NodeId) -> Vec<u8> {
    drop_from(node, 0) // to the end
}

/// The same from an offset on; below 0 it means attributes alone, which waits for nothing.
fn drop_from(node: NodeId, from: i64) -> Vec<u8> {
    /// `FUSE_NOTIFY_INVAL_INODE`, in the error field of an answer.
    const INVAL_INODE: i32 = 2;
    let mut of = InvalInodeOut::new_zeroed();
    of.ino.set(node.0);
    of.off.set(from);
    let header = header(HEADER + size_of::<InvalInodeOut>(), INVAL_INODE, 0);
    [header.as_bytes(), of.as_bytes()].concat()
}

/// The answer that a name does not exist, which may be cached.
pub(crate) fn no_entry(kept: Duration) -> EntryOut {
    entry(NodeId(0), 0, kept, Attr::new_zeroed())
}

/// The answer that names an inode.
pub(crate) fn entry(node: NodeId, generation: u32, kept: Duration, attr: Attr) -> EntryOut {
    let mut out = EntryOut::new_zeroed();
    out.nodeid.set(node.0);
    out.generation.set(generation.into());
    out.entry_valid.set(kept.as_secs());
    out.entry_valid_nsec.set(kept.subsec_nanos());
    out.attr_valid.set(kept.as_secs());
    out.attr_valid_nsec.set(kept.subsec_nanos());
    out.attr = attr;
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn an_answer_has_its_header_before_it() {
        let mut reply = Reply::default();
        reply.clear();
        reply.put_bytes(b"abc");
        let whole = reply.finish(7, Ok(()));
        assert_eq!(whole[..4], 19_u32.to_ne_bytes());
        assert_eq!(whole[4..8], [0; 4]);
        assert_eq!(whole[8..16], 7_u64.to_ne_bytes());
        assert_eq!(&whole[16..], b"abc");
    }

    #[test]
    fn what_was_put_is_dropped_with_a_refusal() {
        let mut reply = Reply::default();
        reply.clear();
        reply.put_bytes(&[9; 100]);
        let whole = reply.finish(7, Err(Errno::NOSPC.into())).to_vec();
        assert_eq!((whole.len(), &whole[4..8]), (16, &(-28_i32).to_ne_bytes()[..]));
        reply.clear();
        reply.fill(50, |bytes| Ok(bytes.iter().filter(|byte| **byte == 9).count().min(3))).unwrap();
        assert_eq!(reply.finish(8, Ok(())).len(), 16 + 3, "as many as were filled");
    }

    #[test]
    fn entries_end_where_the_room_does() {
        for (room, count) in [(0, 0), (31, 0), (32, 1), (63, 1), (64, 2), (1000, 3)] {
            let mut reply = Reply::default();
            reply.clear();
            let mut entries = reply.entries(room);
            let added = (1..=3_u64).take_while(|n| entries.add(*n, n + 1, Kind::File, b"12345678")).count();
            assert_eq!(added, count, "{room}");
            assert_eq!(reply.finish(1, Ok(())).len(), 16 + 32 * count);
        }
    }

    #[test]
    fn names_are_followed_by_zeros() {
        let mut reply = Reply::default();
        reply.clear();
        reply.put_bytes(&[0xff; 64]);
        reply.clear();
        assert!(reply.entries(100).add(5, 6, Kind::Directory, b"abc"));
        let whole = reply.finish(1, Ok(()));
        assert_eq!(whole[16..24], 5_u64.to_ne_bytes());
        assert_eq!(whole[24..32], 6_u64.to_ne_bytes());
        assert_eq!(whole[32..40], [3_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat());
        assert_eq!(&whole[40..], b"abc\0\0\0\0\0");
    }
}
