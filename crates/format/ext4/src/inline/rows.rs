//! Changes the entries of an inline directory.
//!
//! Each of the two rows is covered by its records without a gap. A name goes into the slack of a record; if
//! there is none the second row grows by just the record, and whether that still fits the inode is found when
//! it is stored ([`super::store`]). A removed name leaves its room to the record before it, or an unused
//! record.

use super::{ENTRY_HEADER, HEAD, Inline, PARENT};
use crate::dir::{Format, leaf};
use crate::error::{Corrupt, Place};
use crate::inode::Inode;
use crate::xattr::{Area, Name, ValueRef};
use hectare_units::{InodeNr, low8, low16, u64_of, usize_of};

/// Bytes of `.` and `..` in a block.
const DOTS: usize = 24;

/// The bytes of an inline directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    bytes: Vec<u8>,
}

impl Rows {
    /// The entries of a directory whose content lies in its inode.
    ///
    /// # Errors
    /// `Corrupt` if its attributes or entries are broken.
    pub fn of_inode(inode: &Inode, place: Place) -> Result<Self, Corrupt> {
        let area = Area::in_inode(inode.xattr_area(), place)?;
        let entry = area.as_ref().and_then(|area| area.find(&Name::inline_data()));
        let data = entry.and_then(|entry| match entry.value {
            ValueRef::Inline(bytes) => Some(bytes),
            ValueRef::Inode { .. } => None,
        });
        Inline::new(&inode.block, data, inode.bytes(), place)?.rows()
    }

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

    /// The directory as a block: what it becomes when it leaves the inode, each entry as far behind the first as
    /// it is here. `None` if it does not fit.
    #[must_use]
    pub fn to_block(&self, own: InodeNr, format: &Format) -> Option<Vec<u8>> {
        let parent = InodeNr::from_disk(u32::from_le_bytes(*self.bytes.first_chunk()?))?;
        leaf::of_records(&self.bytes[PARENT..], format, own, parent)
    }

    /// Where an entry of [`Self::to_block`] stands in the inode, by its place in the block.
    #[must_use]
    pub fn entry_at(offset: u32) -> Option<usize> {
        usize_of(offset).checked_sub(DOTS)?.checked_add(PARENT)
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

    /// Gives the parent, and the inodes that the entries lead to, the numbers that `number` says.
    pub fn renumber(&mut self, number: impl Fn(InodeNr) -> InodeNr) {
        self.renumber_at(0, &number);
        for at in self.records().collect::<Vec<_>>() {
            self.renumber_at(at, &number);
        }
    }

    fn renumber_at(&mut self, at: usize, number: &impl Fn(InodeNr) -> InodeNr) {
        if let Some(bytes) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
            && let Some(inode) = InodeNr::from_disk(u32::from_le_bytes(*bytes))
        {
            *bytes = number(inode).get().to_le_bytes();
        }
    }

    /// Gives every entry the file type, as records have it, that `file_type` says of its inode.
    pub fn retype(&mut self, file_type: impl Fn(InodeNr) -> u8) {
        for at in self.records().collect::<Vec<_>>() {
            let Some(record) = self.bytes.get_mut(at..at + 8) else { continue };
            let number = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
            if let Some(inode) = InodeNr::from_disk(number) {
                record[7] = file_type(inode);
            }
        }
    }

    /// Removes the entry at a byte.
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

    /// Points the entry at a byte at another inode.
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
    use crate::dir::{HashVersion, Signedness};
    use crate::error::Place;
    use hectare_units::{BlockSize, Bytes, low32};
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

    fn format(checksums: bool) -> Format {
        Format {
            block_size: BlockSize::KIB1,
            filetype: true,
            checksums,
            index: true,
            large_dir: false,
            hash_version: HashVersion::HalfMd4,
            hash_signedness: Signedness::Signed,
            hash_seed: [1, 2, 3, 4],
            folding: None,
            opaque_names: false,
        }
    }

    #[test]
    fn a_block_has_the_same_entries_at_places_that_are_found_again() {
        for checksums in [false, true] {
            let format = format(checksums);
            let mut rows = Rows::empty(InodeNr::ROOT);
            for n in 0..20u32 {
                rows.insert(format!("name {n}").as_bytes(), InodeNr::new(20 + n), 1);
            }
            rows.remove(list(&rows)[&b"name 7"[..]].0);
            let block = rows.to_block(InodeNr::new(12), &format).unwrap();
            let leaf = leaf::Leaf::parse(&block, &format, Place::Volume).unwrap();
            let found: BTreeMap<Vec<u8>, (usize, u32, u8)> = leaf
                .records()
                .map(Result::unwrap)
                .filter(|record| record.inode.is_some() && !record.name.starts_with(b"."))
                .map(|r| {
                    let at = Rows::entry_at(low32(u64_of(r.offset))).unwrap();
                    (r.name.to_vec(), (at, r.inode.unwrap().get(), r.file_type.code()))
                })
                .collect();
            assert_eq!(found, list(&rows));
        }
        let mut rows = Rows::empty(InodeNr::ROOT);
        (0..300u32).for_each(|n| rows.insert(format!("name {n}").as_bytes(), InodeNr::new(20 + n), 1));
        assert_eq!(rows.to_block(InodeNr::new(12), &format(true)), None);
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
