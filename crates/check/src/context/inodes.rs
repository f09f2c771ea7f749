//! What is remembered of each inode in use.

use hectare_ext4::inode::Kind;
use hectare_units::{InodeNr, usize_of};
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

/// Inodes of a page, and pages of a shelf.
const PAGE: u32 = 64;
const SHELF: u32 = 4096;

type Page = Box<[Info; usize_of(PAGE)]>;

/// What is remembered of the inodes in use.
///
/// It is kept in pages on shelves, made when the first of their inodes is noted: tables of zeros cost next to
/// nothing, however many inodes an image claims to have.
#[derive(Default)]
pub(crate) struct Inodes {
    shelves: Vec<Vec<Option<Page>>>,
}

/// The shelf of an inode, its page there, and its place in the page.
const fn place(nr: u32) -> (usize, usize, usize) {
    let page = nr / PAGE;
    (usize_of(page / SHELF), usize_of(page % SHELF), usize_of(nr % PAGE))
}

impl Inodes {
    /// What is known of inode `nr`; nothing, or that it is not in use, if no such inode was noted.
    pub(crate) fn get(&self, nr: u32) -> Option<&Info> {
        let (shelf, page, at) = place(nr);
        Some(&self.shelves.get(shelf)?.get(page)?.as_ref()?[at])
    }

    pub(crate) fn get_mut(&mut self, nr: u32) -> Option<&mut Info> {
        let (shelf, page, at) = place(nr);
        Some(&mut self.shelves.get_mut(shelf)?.get_mut(page)?.as_mut()?[at])
    }

    fn page(&mut self, shelf: usize, page: usize) -> &mut Page {
        if self.shelves.len() <= shelf {
            self.shelves.resize_with(shelf + 1, Vec::new);
        }
        let shelf = &mut self.shelves[shelf];
        if shelf.len() <= page {
            shelf.resize_with(page + 1, || None);
        }
        shelf[page].get_or_insert_with(|| Box::new([Info::default(); usize_of(PAGE)]))
    }

    /// Notes that an inode is in use.
    pub(crate) fn note(&mut self, nr: InodeNr) -> &mut Info {
        let (shelf, page, at) = place(nr.get());
        let info = &mut self.page(shelf, page)[at];
        info.used = true;
        info
    }

    /// The inodes in use whose numbers are in a range, in ascending order.
    pub(crate) fn used(&self, numbers: RangeInclusive<u32>) -> impl Iterator<Item = (u32, &Info)> {
        let (first, last) = (numbers.start() / PAGE, numbers.end() / PAGE);
        let shelves = (0u32..).zip(&self.shelves);
        let shelves =
            shelves.skip(usize_of(first / SHELF)).take_while(move |(shelf, _)| shelf * SHELF <= last);
        shelves
            .flat_map(move |(shelf, pages)| {
                let from = usize_of(first.saturating_sub(shelf * SHELF)).min(pages.len());
                let to =
                    usize_of((last - shelf * SHELF).saturating_add(1)).clamp(from, pages.len().max(from));
                let number = first.max(shelf * SHELF);
                (number..).zip(&pages[from..to]).filter_map(|(page, infos)| Some((page, infos.as_ref()?)))
            })
            .flat_map(|(page, infos)| (0..PAGE).map(move |index| page * PAGE + index).zip(infos.iter()))
            .filter(move |(nr, info)| info.used && numbers.contains(nr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_found_by_number_and_in_order() {
        let mut inodes = Inodes::default();
        let numbers = [1, 2, 63, 64, 262_143, 262_144, 1 << 31, u32::MAX];
        for nr in numbers.iter().rev() {
            inodes.note(InodeNr::new(*nr)).links = 7;
        }
        for nr in numbers {
            assert_eq!(inodes.get(nr).map(|info| (info.used, info.links)), Some((true, 7)), "{nr}");
        }
        assert!(inodes.get(3).is_some_and(|info| !info.used) && inodes.get(1 << 20).is_none());
        let found: Vec<u32> = inodes.used(2..=262_144).map(|(nr, _)| nr).collect();
        assert_eq!(found, [2, 63, 64, 262_143, 262_144]);
        if let Some(info) = inodes.get_mut(u32::MAX) {
            info.refs = 9;
        }
        assert_eq!(inodes.used(u32::MAX - 1..=u32::MAX).map(|(_, info)| info.refs).collect::<Vec<_>>(), [9]);
    }
}
