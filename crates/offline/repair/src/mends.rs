//! What was mended, in order: a log of records in pages of a [`PageStore`], since there may be one for every
//! inode of a volume.
//!
//! Adding one can't fail where it is called from everywhere; a failure is the store's, which keeps it, and
//! what hands the mends out asks there.

use crate::error::Error;
use crate::stage::pages::{PAGE_LEN, PageStore};
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, LogicalBlock, low32, u64_of, usize_of};
use std::fmt;
use std::sync::Arc;

/// Bytes of a record before its text: subject, place (kind and two numbers), loss, length of the text.
const HEAD: usize = 1 + 1 + 8 + 4 + 1 + 4;
/// How many are shown for debugging.
const SHOWN: usize = 40;

/// One thing that was mended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mend {
    /// The structure.
    pub what: What,
    /// Where it lies.
    pub place: Place,
    /// What was wrong, and what was done.
    pub text: String,
    /// Whether something is no longer there, or no longer under its name.
    pub loses: bool,
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.what.name(), self.place, self.text)
    }
}

/// What was mended.
pub struct Mends {
    store: Arc<PageStore>,
    /// Whole pages of the log.
    pages: Vec<u32>,
    /// What comes behind them.
    tail: Vec<u8>,
    count: u64,
    /// Of each subject, how many there are, and how many of them lose something; in the order of their first.
    subjects: Vec<(What, u64, u64)>,
    last: Option<Place>,
}

impl Mends {
    /// None, to be kept in `store`.
    pub(crate) fn new(store: &Arc<PageStore>) -> Self {
        let (pages, tail, subjects) = Default::default();
        Self { store: Arc::clone(store), pages, tail, count: 0, subjects, last: None }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether nothing was mended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The subjects, each with the number of its mends and of those that lose something.
    #[must_use]
    pub fn subjects(&self) -> &[(What, u64, u64)] {
        &self.subjects
    }

    /// Whether one of them loses something.
    #[must_use]
    pub fn lose(&self) -> bool {
        self.subjects.iter().any(|(.., losing)| *losing > 0)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Result<Mend, Error>> {
        Reader { mends: self, page: 0, bytes: Vec::new(), at: 0, left: self.count }
    }

    /// Where the last was.
    pub(crate) fn last_place(&self) -> Option<Place> {
        self.last
    }

    pub(crate) fn push(&mut self, mend: &Mend) {
        self.count += 1;
        self.last = Some(mend.place);
        self.count_subject(mend.what, 1, u64::from(mend.loses));
        let (kind, number, block) = numbers(mend.place);
        let subject = (0..).zip(What::ALL).find(|(_, what)| *what == mend.what).map_or(0, |(at, _)| at);
        self.tail.extend([subject, kind]);
        self.tail.extend(number.to_le_bytes());
        self.tail.extend(block.to_le_bytes());
        self.tail.push(u8::from(mend.loses));
        self.tail.extend(low32(u64_of(mend.text.len())).to_le_bytes());
        self.tail.extend(mend.text.as_bytes());
        self.store_tail();
    }

    /// Takes those of another as later ones.
    pub(crate) fn append(&mut self, other: Self) -> Result<(), Error> {
        if self.is_empty() {
            *self = other;
            return Ok(());
        }
        for page in &other.pages {
            let bytes = other.store.read(*page, |page| *page)?;
            self.tail.extend(bytes);
            self.store_tail();
        }
        self.tail.extend(&other.tail);
        self.store_tail();
        self.count += other.count;
        self.last = other.last.or(self.last);
        for (what, count, losing) in &other.subjects {
            self.count_subject(*what, *count, *losing);
        }
        Ok(())
    }

    fn count_subject(&mut self, what: What, count: u64, losing: u64) {
        match self.subjects.iter_mut().find(|(of, ..)| *of == what) {
            Some(of) => (of.1, of.2) = (of.1 + count, of.2 + losing),
            None => self.subjects.push((what, count, losing)),
        }
    }

    /// Moves whole pages of the tail to the store; after a failure they are lost, and the store says so.
    fn store_tail(&mut self) {
        while let Some((page, rest)) = self.tail.split_first_chunk::<PAGE_LEN>() {
            if let Ok(number) = self.store.add(page) {
                self.pages.push(number);
            }
            self.tail = rest.to_vec();
        }
    }
}

impl Drop for Mends {
    fn drop(&mut self) {
        for page in &self.pages {
            self.store.remove(*page);
        }
    }
}

impl fmt::Debug for Mends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mends ", self.count)?;
        f.debug_list().entries(self.iter().take(SHOWN).flatten()).finish()
    }
}

/// A place as numbers.
fn numbers(place: Place) -> (u8, u64, u32) {
    match place {
        Place::Volume => (0, 0, 0),
        Place::Byte(at) => (1, at.get(), 0),
        Place::Block(nr) => (2, nr.get(), 0),
        Place::Group(nr) => (3, u64::from(nr.get()), 0),
        Place::Inode(nr) => (4, u64::from(nr.get()), 0),
        Place::FileBlock(nr, block) => (5, u64::from(nr.get()), block.get()),
    }
}

fn place(kind: u8, number: u64, block: u32) -> Place {
    let inode = InodeNr::new(low32(number));
    match kind {
        1 => Place::Byte(Bytes::new(number)),
        2 => Place::Block(BlockNr::new(number)),
        3 => Place::Group(GroupNr::new(low32(number))),
        4 => Place::Inode(inode),
        5 => Place::FileBlock(inode, LogicalBlock::new(block)),
        _ => Place::Volume,
    }
}

/// Reads the log.
struct Reader<'a> {
    mends: &'a Mends,
    /// Pages that were read.
    page: usize,
    /// What was read, from `at` on not yet given.
    bytes: Vec<u8>,
    at: usize,
    left: u64,
}

impl Reader<'_> {
    /// Has so many bytes at hand.
    fn fill(&mut self, count: usize) -> Result<(), Error> {
        while self.bytes.len() - self.at < count {
            self.bytes.drain(..self.at);
            self.at = 0;
            match self.mends.pages.get(self.page) {
                Some(page) => {
                    let bytes = self.mends.store.read(*page, |page| *page)?;
                    self.bytes.extend(bytes);
                }
                None if self.page == self.mends.pages.len() => self.bytes.extend(&self.mends.tail),
                None => return Err(self.mends.store.failure().map_or_else(lost, Error::Spill)),
            }
            self.page += 1;
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N]);
        self.at += N;
        bytes
    }

    fn read(&mut self) -> Result<Mend, Error> {
        self.fill(HEAD)?;
        let [subject, kind] = self.take();
        let (number, block) = (u64::from_le_bytes(self.take()), u32::from_le_bytes(self.take()));
        let [loses] = self.take();
        let len = usize_of(u32::from_le_bytes(self.take()));
        self.fill(len)?;
        let text = String::from_utf8_lossy(&self.bytes[self.at..self.at + len]).into_owned();
        self.at += len;
        let what = What::ALL.get(usize::from(subject)).copied().unwrap_or(What::Superblock);
        Ok(Mend { what, place: place(kind, number, block), text, loses: loses != 0 })
    }
}

/// Records are missing although nothing failed.
fn lost() -> Error {
    Error::Refused("the list of what was mended is incomplete".to_owned())
}

impl Iterator for Reader<'_> {
    type Item = Result<Mend, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = self.read();
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mend(n: u64) -> Mend {
        let nr = InodeNr::new(low32(n));
        let place = match n % 6 {
            0 => Place::Volume,
            1 => Place::Byte(Bytes::new(n << 33)),
            2 => Place::Block(BlockNr::new(n << 40)),
            3 => Place::Group(GroupNr::new(low32(n))),
            4 => Place::Inode(nr),
            _ => Place::FileBlock(nr, LogicalBlock::new(low32(n + 1))),
        };
        let what = What::ALL[usize::try_from(n).unwrap() % What::ALL.len()];
        let text = "its name is \u{e9}, ".repeat(usize::try_from(n % 400).unwrap());
        Mend { what, place, text, loses: n.is_multiple_of(7) }
    }

    #[test]
    fn what_is_kept_is_read_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(PageStore::within(Bytes::ZERO, folder.path().to_owned()));
        let (mut first, mut second) = (Mends::new(&store), Mends::new(&store));
        (0..1000).for_each(|n| first.push(&mend(n)));
        (1000..1300).for_each(|n| second.push(&mend(n)));
        let mut all = Mends::new(&store);
        all.append(first).unwrap();
        all.append(second).unwrap();
        assert!(store.has_spilled());
        assert_eq!(all.len(), 1300);
        assert!(all.iter().map(Result::unwrap).eq((0..1300).map(mend)));
        assert_eq!(all.last_place(), Some(mend(1299).place));
        let counted: u64 = all.subjects().iter().map(|(_, count, _)| count).sum();
        let losing: u64 = all.subjects().iter().map(|(.., losing)| losing).sum();
        assert_eq!((counted, losing), (1300, 186));
    }

    #[test]
    fn a_log_that_lost_something_is_an_error() {
        let store = Arc::new(PageStore::within(Bytes::ZERO, "/nonexistent".into()));
        let mut mends = Mends::new(&store);
        (0..1000).for_each(|n| mends.push(&mend(n)));
        assert!(store.failure().is_some());
        assert!(mends.iter().any(|mend| mend.is_err()));
    }
}
