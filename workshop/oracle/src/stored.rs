//! Entries as bytes, to keep what the kernel once read of a volume: numbers in eight bytes, and the rest with its
//! length before it.

use crate::entry::{Entry, Kind, Time};

const KINDS: [Kind; 7] =
    [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::Char, Kind::Block];

/// All of them as bytes.
pub(crate) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut out = Out(Vec::new());
    for entry in entries {
        out.bytes(&entry.path);
        out.number(KINDS.iter().position(|kind| *kind == entry.kind).unwrap_or(KINDS.len()) as u64);
        let (major, minor) = entry.device;
        for number in [u32::from(entry.mode), entry.uid, entry.gid, major, minor] {
            out.number(number.into());
        }
        for number in [entry.nlink, entry.size, entry.inode] {
            out.number(number);
        }
        for time in [entry.mtime, entry.atime] {
            out.number(time.secs.cast_unsigned());
            out.number(time.nanos.into());
        }
        out.bytes(&entry.target);
        out.number(entry.data.len() as u64);
        for (offset, length) in &entry.data {
            out.number(*offset);
            out.number(*length);
        }
        out.number(entry.xattrs.len() as u64);
        for (name, value) in &entry.xattrs {
            out.bytes(name);
            out.bytes(value);
        }
        out.bytes(&entry.digest);
    }
    out.0
}

/// What [`encode`] was given; `None` for other bytes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (mut from, mut entries) = (In(bytes), Vec::new());
    while !from.0.is_empty() {
        entries.push(from.entry()?);
    }
    Some(entries)
}

struct Out(Vec<u8>);

impl Out {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        u64::from_le_bytes(self.take(8)?.try_into().ok()?).try_into().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(len)
    }

    fn time(&mut self) -> Option<Time> {
        Some(Time { secs: self.number::<u64>()?.cast_signed(), nanos: self.number()? })
    }

    fn entry(&mut self) -> Option<Entry> {
        // Fields of a literal are evaluated as they are written.
        Some(Entry {
            path: self.bytes()?.to_vec(),
            kind: *KINDS.get(self.number::<usize>()?)?,
            mode: self.number()?,
            uid: self.number()?,
            gid: self.number()?,
            device: (self.number()?, self.number()?),
            nlink: self.number()?,
            size: self.number()?,
            inode: self.number()?,
            mtime: self.time()?,
            atime: self.time()?,
            target: self.bytes()?.to_vec(),
            data: self.list(|from| Some((from.number()?, from.number()?)))?,
            xattrs: self.list(|from| Some((from.bytes()?.to_vec(), from.bytes()?.to_vec())))?,
            digest: self.bytes()?.try_into().ok()?,
        })
    }

    fn list<T, C: FromIterator<T>>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<C> {
        let len = self.number::<usize>()?;
        (0..len).map(|_| item(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_is_decoded_is_what_was_encoded() {
        let mut entries: Vec<_> = KINDS.iter().map(|kind| Entry::new(format!("{kind:?}"), *kind)).collect();
        let first = &mut entries[0];
        (first.mode, first.uid, first.gid, first.device) = (0o7777, u32::MAX, 2, (3, 4));
        (first.nlink, first.size, first.inode) = (5, u64::MAX, 7);
        (first.mtime, first.atime) =
            (Time { secs: -1, nanos: 999_999_999 }, Time { secs: 1 << 40, nanos: 8 });
        (first.target, first.data) = (b"\xff\0".to_vec(), vec![(0, 1), (4096, 1 << 40)]);
        first.xattrs = BTreeMap::from([(b"user.a".to_vec(), vec![9; 300]), (b"user.b".to_vec(), Vec::new())]);
        first.digest = [10; 32];
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes), Some(entries));
        assert_eq!(decode(&bytes[1..]), None);
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
    }
}
