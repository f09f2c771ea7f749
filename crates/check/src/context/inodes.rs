//! What is remembered of each inode in use.

use hectare_ext4::inode::Kind;
use hectare_units::{InodeNr, usize_of};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What is remembered of an inode.
#[derive(Clone, Copy, Default)]
pub(crate) struct Info {
    /// Whether it is in use.
    pub(crate) used: bool,
    /// What it is, if it is something.
    pub(crate) kind: Option<Kind>,
    /// Whether no directory may name it: reserved ones but the root, quota and orphan file.
    pub(crate) hidden: bool,
    /// Whether it holds the value of an attribute.
    pub(crate) holds_value: bool,
    /// Whether it waits for its end.
    pub(crate) orphan: bool,
    /// Whether it is encrypted.
    pub(crate) encrypted: bool,
    /// A sum of its encryption policy; 0 if it has none.
    pub(crate) policy: u64,
    /// Its link count.
    pub(crate) links: u16,
    /// How many entries name it.
    pub(crate) refs: u32,
    /// Which of the directories it is, counted from 1; 0 for none.
    pub(crate) directory: u32,
}

/// Inodes of a page.
const PAGE: u32 = 64;

/// What is remembered of the inodes in use.
///
/// It is kept in pages, made when the first of their inodes is noted: tables of zeros cost nothing, however
/// many inodes an image claims to have.
#[derive(Default)]
pub(crate) struct Inodes {
    pages: BTreeMap<u32, Box<[Info; usize_of(PAGE)]>>,
}

impl Inodes {
    /// What is known of inode `nr`; nothing, or that it is not in use, if no such inode was noted.
    pub(crate) fn get(&self, nr: u32) -> Option<&Info> {
        self.pages.get(&(nr / PAGE)).map(|page| &page[usize_of(nr % PAGE)])
    }

    pub(crate) fn get_mut(&mut self, nr: u32) -> Option<&mut Info> {
        self.pages.get_mut(&(nr / PAGE)).map(|page| &mut page[usize_of(nr % PAGE)])
    }

    /// Notes that an inode is in use.
    pub(crate) fn note(&mut self, nr: InodeNr) -> &mut Info {
        let page =
            self.pages.entry(nr.get() / PAGE).or_insert_with(|| Box::new([Info::default(); usize_of(PAGE)]));
        let info = &mut page[usize_of(nr.get() % PAGE)];
        info.used = true;
        info
    }

    /// The inodes in use whose numbers are in a range, in ascending order.
    pub(crate) fn used(&self, numbers: RangeInclusive<u32>) -> impl Iterator<Item = (u32, &Info)> {
        let pages = self.pages.range(numbers.start() / PAGE..=numbers.end() / PAGE);
        pages
            .flat_map(|(page, infos)| (0..PAGE).map(move |index| page * PAGE + index).zip(infos.iter()))
            .filter(move |(nr, info)| info.used && numbers.contains(nr))
    }
}
