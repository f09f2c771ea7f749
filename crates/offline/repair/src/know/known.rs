//! What is known of the inodes in use: sixteen bytes for each, in pages of a [`PageStore`] by their number.
//!
//! A page has the records of 256 neighbouring numbers, and is made for the first of them. A record of zeros
//! is an inode that is not in use.

use crate::error::Error;
use crate::stage::pages::{PAGE_LEN, PageStore};
use hectare_ext4::inode::Kind;
use hectare_units::usize_of;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a record.
const RECORD: usize = 16;
/// Records of a page.
const PER_PAGE: u32 = 256;
const _: () = assert!(RECORD * 256 == PAGE_LEN);
/// More names than this are not counted: an inode counts 65,535 links at most.
const REFS_MAX: u32 = (1 << 24) - 1;

/// The bits of a kind's code: its place in [`Kind::ALL`], from 1 on.
const CODE: u8 = 0x07;
const HIDDEN: u8 = 0x08;
const HOLDS_VALUE: u8 = 0x10;
const HALF: u8 = 0x20;

/// What is known of an inode in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Info {
    pub(crate) kind: Kind,
    /// Whether no directory may name it.
    pub(crate) hidden: bool,
    /// Whether it holds the value of an attribute.
    pub(crate) holds_value: bool,
    /// Whether it had neither links nor a time of deletion.
    pub(crate) half: bool,
    /// How many entries name it, up to [`REFS_MAX`].
    pub(crate) refs: u32,
    /// Of a directory, the one that names it; 0 for none.
    pub(crate) parent: u32,
    /// Of a directory, the parent that it names.
    pub(crate) dot_dot: u32,
    /// Of a directory, how many others it is the parent of.
    pub(crate) subdirectories: u32,
}

impl Info {
    /// One of a kind, of which nothing else is known.
    pub(crate) fn new(kind: Kind) -> Self {
        let (hidden, holds_value, half) = Default::default();
        Self { kind, hidden, holds_value, half, refs: 0, parent: 0, dot_dot: 0, subdirectories: 0 }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    fn encoded(&self) -> [u8; RECORD] {
        let code = (1..).zip(Kind::ALL).find(|(_, kind)| *kind == self.kind).map_or(0, |(code, _)| code);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.hidden, HIDDEN) | flag(self.holds_value, HOLDS_VALUE) | flag(self.half, HALF);
        let refs = self.refs.min(REFS_MAX).to_le_bytes();
        let mut bytes = [code | flags, refs[0], refs[1], refs[2], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (word, at) in [self.parent, self.dot_dot, self.subdirectories].into_iter().zip([4, 8, 12]) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decoded(bytes: [u8; RECORD]) -> Option<Self> {
        let [flags, r0, r1, r2, p0, p1, p2, p3, d0, d1, d2, d3, s0, s1, s2, s3] = bytes;
        let kind = *Kind::ALL.get(usize::from(flags & CODE).checked_sub(1)?)?;
        Some(Self {
            kind,
            hidden: flags & HIDDEN != 0,
            holds_value: flags & HOLDS_VALUE != 0,
            half: flags & HALF != 0,
            refs: u32::from_le_bytes([r0, r1, r2, 0]),
            parent: u32::from_le_bytes([p0, p1, p2, p3]),
            dot_dot: u32::from_le_bytes([d0, d1, d2, d3]),
            subdirectories: u32::from_le_bytes([s0, s1, s2, s3]),
        })
    }
}

/// The inodes in use.
pub(crate) struct Inodes {
    store: Arc<PageStore>,
    pages: BTreeMap<u32, u32>,
}

/// Where a record lies in its page.
fn within(nr: u32) -> Range<usize> {
    let start = usize_of(nr % PER_PAGE) * RECORD;
    start..start + RECORD
}

fn record(page: &[u8; PAGE_LEN], nr: u32) -> [u8; RECORD] {
    page[within(nr)].first_chunk().copied().unwrap_or_default()
}

impl Inodes {
    /// None, in `store`.
    pub(crate) fn new(store: &Arc<PageStore>) -> Self {
        Self { store: Arc::clone(store), pages: BTreeMap::new() }
    }

    /// What is known of inode `nr`; `None` if it is not in use.
    pub(crate) fn get(&self, nr: u32) -> Result<Option<Info>, Error> {
        let Some(page) = self.pages.get(&(nr / PER_PAGE)) else { return Ok(None) };
        Ok(Info::decoded(self.store.read(*page, |page| record(page, nr))?))
    }

    /// The kind of inode `nr`; `None` if it is not in use.
    pub(crate) fn kind(&self, nr: u32) -> Result<Option<Kind>, Error> {
        Ok(self.get(nr)?.map(|info| info.kind))
    }

    /// Notes that inode `nr` is in use, and what it is.
    pub(crate) fn insert(&mut self, nr: u32, info: Info) -> Result<(), Error> {
        let page = match self.pages.get(&(nr / PER_PAGE)) {
            Some(page) => *page,
            None => {
                let page = self.store.add(&[0; PAGE_LEN])?;
                self.pages.insert(nr / PER_PAGE, page);
                page
            }
        };
        Ok(self.store.change(page, |page| page[within(nr)].copy_from_slice(&info.encoded()))?)
    }

    /// Notes that inode `nr` is not in use.
    pub(crate) fn remove(&mut self, nr: u32) -> Result<(), Error> {
        let Some(page) = self.pages.get(&(nr / PER_PAGE)) else { return Ok(()) };
        Ok(self.store.change(*page, |page| page[within(nr)].fill(0))?)
    }

    /// Changes what is known of inode `nr`, if it is in use.
    pub(crate) fn change(&mut self, nr: u32, change: impl FnOnce(&mut Info)) -> Result<(), Error> {
        let Some(page) = self.pages.get(&(nr / PER_PAGE)) else { return Ok(()) };
        Ok(self.store.change(*page, |page| {
            if let Some(mut info) = Info::decoded(record(page, nr)) {
                change(&mut info);
                page[within(nr)].copy_from_slice(&info.encoded());
            }
        })?)
    }

    /// The first in use from `nr` on. The next is asked for with its number and one; there is none beyond
    /// [`u32::MAX`].
    pub(crate) fn first_from(&self, nr: u32) -> Result<Option<(u32, Info)>, Error> {
        for (index, page) in self.pages.range(nr / PER_PAGE..) {
            let start = index * PER_PAGE;
            let from = nr.max(start) - start;
            let found = self.store.read(*page, |page| {
                (start + from..=start + (PER_PAGE - 1))
                    .find_map(|nr| Some((nr, Info::decoded(record(page, nr))?)))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The numbers of those in use that are chosen, in ascending order.
    pub(crate) fn chosen(&self, chosen: impl Fn(u32, &Info) -> bool) -> Result<Vec<u32>, Error> {
        let mut numbers = Vec::new();
        for (index, page) in &self.pages {
            let start = index * PER_PAGE;
            self.store.read(*page, |page| {
                let all = (start..=start + (PER_PAGE - 1))
                    .filter_map(|nr| Some((nr, Info::decoded(record(page, nr))?)));
                numbers.extend(all.filter(|(nr, info)| chosen(*nr, info)).map(|(nr, _)| nr));
            })?;
        }
        Ok(numbers)
    }
}

impl Drop for Inodes {
    fn drop(&mut self) {
        for page in self.pages.values() {
            self.store.remove(*page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::Bytes;

    fn odd(nr: u32) -> Info {
        Info {
            hidden: nr.is_multiple_of(2),
            holds_value: nr.is_multiple_of(3),
            half: nr.is_multiple_of(5),
            refs: nr % REFS_MAX,
            parent: nr ^ 0x5a5a_5a5a,
            dot_dot: !nr,
            subdirectories: nr / 2,
            ..Info::new(Kind::ALL[usize_of(nr % 7)])
        }
    }

    #[test]
    fn what_is_noted_is_known_by_number_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(PageStore::within(Bytes::ZERO, folder.path().to_owned()));
        let mut inodes = Inodes::new(&store);
        let numbers: Vec<u32> = (0..30_000).map(|n| n * 37 + 1).chain([u32::MAX - 1, u32::MAX]).collect();
        for nr in numbers.iter().rev() {
            inodes.insert(*nr, odd(*nr)).unwrap();
        }
        assert!(store.has_spilled());
        assert!(numbers.iter().all(|nr| inodes.get(*nr).unwrap() == Some(odd(*nr))));
        assert_eq!(inodes.chosen(|_, _| true).unwrap(), numbers);
        assert_eq!(inodes.first_from(39).unwrap().map(|(nr, _)| nr), Some(75));
        assert_eq!(inodes.first_from(30_000 * 37).unwrap().map(|(nr, _)| nr), Some(u32::MAX - 1));
        inodes.change(75, |info| info.refs = u32::MAX).unwrap();
        inodes.change(76, |info| info.refs = 1).unwrap();
        assert_eq!(inodes.get(75).unwrap().unwrap().refs, REFS_MAX);
        assert_eq!((inodes.get(76).unwrap(), inodes.get(5_000_000).unwrap()), (None, None));
        inodes.remove(75).unwrap();
        assert_eq!(inodes.first_from(39).unwrap().map(|(nr, _)| nr), Some(112));
    }

    #[test]
    fn its_pages_are_given_back() {
        let store = Arc::new(PageStore::in_memory());
        let first = store.add(&[0; PAGE_LEN]).unwrap();
        let mut inodes = Inodes::new(&store);
        inodes.insert(1, odd(1)).unwrap();
        drop(inodes);
        assert_eq!(store.add(&[0; PAGE_LEN]).unwrap(), first + 1);
    }
}
