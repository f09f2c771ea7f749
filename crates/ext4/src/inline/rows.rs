//! Changes the entries of an inline directory.
//!
//! Each of the two rows is covered by its records without a gap. A name goes into the slack of a record; if
//! there is none the second row grows by just the record, and whether that still fits the inode is found when
//! it is stored ([`super::store`]). A removed name leaves its room to the record before it, or an unused
//! record.

use super::{DirEntry, ENTRY_HEADER, HEAD, Inline, PARENT};
use crate::error::Corrupt;
use hectare_units::{InodeNr, low8, low16, u64_of};

/// The bytes of an inline directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    bytes: Vec<u8>,
}

impl Rows {
    /// An empty directory.
    #[must_use]
    pub fn empty(parent: InodeNr) -> Self {
        let mut bytes = vec![0; HEAD];
        put_len(&mut bytes, PARENT, HEAD - PARENT);
        let mut rows = Self { bytes };
        rows.set_parent(parent);
        rows
    }

    /// The content to store.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes another directory the parent.
    pub fn set_parent(&mut self, parent: InodeNr) {
        self.bytes[..PARENT].copy_from_slice(&parent.get().to_le_bytes());
    }

    /// Adds a name that is not there. `file_type` is the code to store, 0 without the feature `filetype`.
    pub fn insert(&mut self, name: &[u8], inode: InodeNr, file_type: u8) {
        let need = record_len(name.len());
        let at = self.records().find_map(|at| {
            let (len, used) = (self.len_at(at), self.used_at(at));
            (len - used >= need).then_some((at, len, used))
        });
        let (at, len) = match at {
            Some((at, len, 0)) => (at, len),
            Some((at, len, used)) => {
                put_len(&mut self.bytes, at, used);
                (at + used, len - used)
            }
            None => {
                let at = self.bytes.len();
                self.bytes.resize(at + need, 0);
                (at, need)
            }
        };
        put_len(&mut self.bytes, at, len);
        self.bytes[at..at + 4].copy_from_slice(&inode.get().to_le_bytes());
        self.bytes[at + 6] = low8(u64_of(name.len()));
        self.bytes[at + 7] = file_type;
        self.bytes[at + ENTRY_HEADER..at + ENTRY_HEADER + name.len()].copy_from_slice(name);
    }

    /// Removes the entry that [`DirEntry::at`] gave.
    pub fn remove(&mut self, entry: usize) {
        let before = self.records().take_while(|at| *at < entry).last();
        let len = self.len_at(entry);
        match before.filter(|_| entry != HEAD) {
            Some(before) => {
                let joined = self.len_at(before) + len;
                self.bytes[entry..entry + len].fill(0);
                put_len(&mut self.bytes, before, joined);
            }
            None => self.bytes[entry..entry + 4].fill(0),
        }
    }

    /// Points the entry that [`DirEntry::at`] gave at another inode.
    pub fn replace(&mut self, entry: usize, inode: InodeNr, file_type: u8) {
        self.bytes[entry..entry + 4].copy_from_slice(&inode.get().to_le_bytes());
        self.bytes[entry + 7] = file_type;
    }

    /// Where records begin. [`Inline::rows`] checked them.
    fn records(&self) -> impl Iterator<Item = usize> + '_ {
        let next = |at: &usize| Some(at + self.len_at(*at)).filter(|next| *next < self.bytes.len());
        std::iter::successors(Some(PARENT), next)
    }

    fn len_at(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[at + 4], self.bytes[at + 5]]))
    }

    /// Bytes of a record that its name needs: none if it is unused.
    fn used_at(&self, at: usize) -> usize {
        let unused = self.bytes[at..at + 4] == [0; 4];
        if unused { 0 } else { record_len(self.bytes[at + 6].into()) }
    }
}

impl Inline<'_> {
    /// The directory, to be changed.
    ///
    /// # Errors
    /// `Corrupt` if an entry is broken, or a row is not covered.
    pub fn rows(&self) -> Result<Rows, Corrupt> {
        self.parent()?;
        let mut end = PARENT;
        let mut at = PARENT;
        while let Some(row) = self.row_from(at) {
            at += self.entry(at, row)?.1;
            end = at;
        }
        if end != HEAD + self.tail.len() {
            return Err(self.corrupt("its entries do not cover it"));
        }
        Ok(Rows { bytes: [&self.head[..], self.tail].concat() })
    }

    /// The first entry with a name that `is` the right one.
    ///
    /// # Errors
    /// `Corrupt` for a broken entry before it.
    pub fn find(&self, is: impl Fn(&[u8]) -> bool) -> Result<Option<DirEntry<'_>>, Corrupt> {
        for entry in self.dir_entries() {
            let entry = entry?;
            if is(entry.name) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

fn record_len(name: usize) -> usize {
    (ENTRY_HEADER + name).next_multiple_of(4)
}

fn put_len(bytes: &mut [u8], at: usize, len: usize) {
    bytes[at + 4..at + 6].copy_from_slice(&low16(u64_of(len)).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;
    use hectare_units::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn list(rows: &Rows) -> BTreeMap<Vec<u8>, (usize, u32, u8)> {
        let (head, tail) = rows.content().split_at(HEAD);
        let head = head.try_into().unwrap();
        let inline = Inline::new(head, Some(tail), Bytes::ZERO, Place::Volume).unwrap();
        assert_eq!(&inline.rows().unwrap(), rows, "every row is covered");
        inline
            .dir_entries()
            .map(|entry| entry.map(|e| (e.name.to_vec(), (e.at, e.inode.get(), e.file_type))).unwrap())
            .collect()
    }

    proptest! {
        #![proptest_config(crate::testing::cases("inline rows", 256))]

        #[test]
        fn changes_are_those_of_a_map(ops in prop::collection::vec((0..12u8, 1..40usize, 1..99u32), 1..60)) {
            let mut rows = Rows::empty(InodeNr::ROOT);
            let mut model: BTreeMap<Vec<u8>, (u32, u8)> = BTreeMap::new();
            for (n, len, nr) in ops {
                let name = vec![b'a' + n; len % 7 * usize::from(n) + 1];
                let inode = InodeNr::new(nr);
                match (list(&rows).get(&name).copied(), nr % 3) {
                    (Some((at, _, _)), 0) => {
                        rows.remove(at);
                        model.remove(&name);
                    }
                    (Some((at, _, _)), _) => {
                        rows.replace(at, inode, 2);
                        model.insert(name, (nr, 2));
                    }
                    (None, _) => {
                        rows.insert(&name, inode, 1);
                        model.insert(name, (nr, 1));
                    }
                }
                let listed: BTreeMap<_, _> =
                    list(&rows).into_iter().map(|(name, (_, nr, kind))| (name, (nr, kind))).collect();
                prop_assert_eq!(&listed, &model);
            }
        }
    }

    #[test]
    fn a_removed_name_leaves_its_room() {
        let mut rows = Rows::empty(InodeNr::ROOT);
        for (name, nr) in [(&b"one"[..], 12), (b"a name that is longer", 13), (b"b", 14)] {
            rows.insert(name, InodeNr::new(nr), 1);
        }
        let len = rows.content().len();
        rows.remove(list(&rows)[&b"a name that is longer"[..]].0);
        rows.insert(b"a name that is short", InodeNr::new(15), 1);
        assert_eq!(rows.content().len(), len);
    }
}
