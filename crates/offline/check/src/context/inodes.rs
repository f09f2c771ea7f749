//! What is remembered of each inode in use.
//!
//! Nearly every inode is a file with one link and one name. Of such a one a byte is kept, its *code*, which
//! says of what kind it is and whether its name was met; of any other, the code says where in its page the
//! rest is kept. Names are counted through a shared reference, since several threads read directories.
//!
//! Pages are made when the first of their inodes is noted: tables of zeros cost next to nothing, however many
//! inodes an image claims to have.

use hectare_ext4::inode::Kind;
use hectare_units::{InodeNr, usize_of};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// What is remembered of an inode.
#[derive(Default)]
pub(crate) struct Info {
    /// A sum of its encryption policy; 0 if it has none.
    pub(crate) policy: u64,
    /// How many entries name it, as far as there is room for that: see [`Inodes::names`].
    pub(crate) refs: AtomicU32,
    /// Which of the directories it is, counted from 1; 0 for none.
    pub(crate) directory: u32,
    /// Its link count.
    pub(crate) links: u16,
    /// What it is, if it is something.
    pub(crate) kind: Option<Kind>,
    /// Whether no directory may name it: reserved ones but the root, quota and orphan file.
    pub(crate) nameless: bool,
    /// Whether it holds the value of an attribute, and so needs no name.
    pub(crate) holds_value: bool,
    /// Whether it is encrypted.
    pub(crate) encrypted: bool,
}

impl Info {
    fn refs(&self) -> u32 {
        self.refs.load(Relaxed)
    }

    fn copy(&self) -> Self {
        Self { refs: AtomicU32::new(self.refs()), ..*self }
    }

    /// Whether there is nothing to say but the kind.
    fn is_plain(&self) -> bool {
        let Self { policy, directory, links, nameless, holds_value, encrypted, .. } = *self;
        (policy, directory, links) == (0, 0, 1) && !(nameless || holds_value || encrypted)
    }
}

/// The code of an inode that is not in use.
const UNUSED: u8 = 0;
/// The first code of those that lead to the rest of a page.
const REST: u8 = 128;

/// The code of an inode with one link and no name or one, if that is all there is to say: twice the place of
/// its kind in [`Kind::ALL`], and one, and one more if it has a name.
fn encoded(info: &Info) -> Option<u8> {
    let at = (0..).zip(Kind::ALL).find(|(_, kind)| info.kind == Some(*kind))?.0;
    let refs = u8::try_from(info.refs()).ok().filter(|refs| *refs < 2)?;
    info.is_plain().then_some(2 * at + 1 + refs)
}

/// What a code below [`REST`] says.
fn decoded(code: u8) -> Option<Info> {
    let code = code.checked_sub(1)?;
    let kind = Kind::ALL.get(usize::from(code / 2)).copied();
    Some(Info { kind, links: 1, refs: AtomicU32::new(u32::from(code % 2)), ..Info::default() })
}

/// Inodes of a page, as many as there are codes from [`REST`] on; and pages of a shelf.
const PAGE: u32 = 128;
const SHELF: u32 = 4096;

struct Page {
    codes: [AtomicU8; usize_of(PAGE)],
    rest: Vec<Info>,
}

impl Page {
    fn new() -> Box<Self> {
        Box::new(Self { codes: [const { AtomicU8::new(UNUSED) }; usize_of(PAGE)], rest: Vec::new() })
    }

    fn get(&self, at: usize) -> Option<Info> {
        let code = self.codes[at].load(Relaxed);
        match code.checked_sub(REST) {
            None => decoded(code),
            Some(rest) => Some(self.rest[usize::from(rest)].copy()),
        }
    }

    fn put(&mut self, at: usize, info: Info) {
        let code = self.codes[at].get_mut();
        if let Some(rest) = code.checked_sub(REST) {
            self.rest[usize::from(rest)] = info;
        } else if let Some(plain) = encoded(&info) {
            *code = plain;
        } else {
            let rest = u8::try_from(self.rest.len()).expect("there are no more than inodes of a page");
            *code = REST + rest;
            self.rest.push(info);
        }
    }

    /// Counts a name; false if the inode has one and should have no more, which the code has no room for.
    fn add_name(&self, at: usize) -> bool {
        let code = &self.codes[at];
        let mut seen = code.load(Relaxed);
        loop {
            match seen {
                UNUSED => return true,
                REST.. => {
                    let refs = &self.rest[usize::from(seen - REST)].refs;
                    // It stays at the largest number: there are fewer names than that in any real volume.
                    let _ = refs.fetch_update(Relaxed, Relaxed, |refs| refs.checked_add(1));
                    return true;
                }
                named if named.is_multiple_of(2) => return false,
                unnamed => match code.compare_exchange_weak(unnamed, unnamed + 1, Relaxed, Relaxed) {
                    Ok(_) => return true,
                    Err(now) => seen = now,
                },
            }
        }
    }
}

/// What is remembered of the inodes in use.
#[derive(Default)]
pub(crate) struct Inodes {
    shelves: Vec<Vec<Option<Box<Page>>>>,
    /// The names beyond the first of inodes that have one link.
    more_names: Mutex<BTreeMap<u32, u32>>,
}

/// The shelf of an inode, its page there, and its place in the page.
const fn place(nr: u32) -> (usize, usize, usize) {
    let page = nr / PAGE;
    (usize_of(page / SHELF), usize_of(page % SHELF), usize_of(nr % PAGE))
}

impl Inodes {
    /// What is known of inode `nr`; `None` if it is not in use.
    pub(crate) fn get(&self, nr: u32) -> Option<Info> {
        let (shelf, page, at) = place(nr);
        self.shelves.get(shelf)?.get(page)?.as_ref()?.get(at)
    }

    fn page(&mut self, shelf: usize, page: usize) -> &mut Option<Box<Page>> {
        if self.shelves.len() <= shelf {
            self.shelves.resize_with(shelf + 1, Vec::new);
        }
        let shelf = &mut self.shelves[shelf];
        if shelf.len() <= page {
            shelf.resize_with(page + 1, || None);
        }
        &mut shelf[page]
    }

    /// Notes that an inode is in use, and what it is.
    pub(crate) fn put(&mut self, nr: InodeNr, info: Info) {
        let (shelf, page, at) = place(nr.get());
        self.page(shelf, page).get_or_insert_with(Page::new).put(at, info);
    }

    /// Changes what is known of an inode in use.
    pub(crate) fn change(&mut self, nr: InodeNr, change: impl FnOnce(&mut Info)) {
        if let Some(mut info) = self.get(nr.get()) {
            change(&mut info);
            self.put(nr, info);
        }
    }

    /// Counts an entry that names an inode, if that is in use.
    pub(crate) fn add_name(&self, nr: u32) {
        let (shelf, page, at) = place(nr);
        let page = self.shelves.get(shelf).and_then(|shelf| shelf.get(page)?.as_ref());
        if page.is_some_and(|page| !page.add_name(at)) {
            let mut more_names = self.more_names.lock();
            let more = more_names.entry(nr).or_default();
            *more = more.saturating_add(1);
        }
    }

    /// How many entries name an inode.
    pub(crate) fn names(&self, nr: u32, info: &Info) -> u32 {
        // Only one that is full can have more.
        let more = if info.refs() == 1 { self.more_names.lock().get(&nr).copied() } else { None };
        info.refs().saturating_add(more.unwrap_or(0))
    }

    /// Takes what another has noted, of other inodes.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (shelf, pages) in other.shelves.into_iter().enumerate() {
            for (index, page) in pages.into_iter().enumerate().filter_map(|(i, page)| Some((i, page?))) {
                match self.page(shelf, index) {
                    Some(present) => {
                        for at in 0..usize_of(PAGE) {
                            page.get(at).into_iter().for_each(|info| present.put(at, info));
                        }
                    }
                    none => *none = Some(page),
                }
            }
        }
    }

    /// The inodes in use whose numbers are in a range, in ascending order.
    pub(crate) fn used(&self, numbers: RangeInclusive<u32>) -> impl Iterator<Item = (u32, Info)> {
        self.with_codes(numbers, |code| code != UNUSED)
    }

    /// The inodes in use, but for those with one link and one name.
    pub(crate) fn not_simply_named(&self) -> impl Iterator<Item = (u32, Info)> {
        let all = !self.more_names.lock().is_empty();
        self.with_codes(1..=u32::MAX, move |code| all || code >= REST || !code.is_multiple_of(2))
    }

    /// The inodes in use whose numbers are in a range, and whose codes are wanted.
    fn with_codes(
        &self,
        numbers: RangeInclusive<u32>,
        wanted: impl Fn(u8) -> bool + Copy,
    ) -> impl Iterator<Item = (u32, Info)> {
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
                (number..).zip(&pages[from..to]).filter_map(|(number, page)| Some((number, page.as_ref()?)))
            })
            .flat_map(move |(number, page)| {
                let codes = (0u32..).zip(&page.codes);
                let some = codes.filter(move |(_, code)| wanted(code.load(Relaxed)));
                some.filter_map(move |(at, _)| Some((number * PAGE + at, page.get(usize_of(at))?)))
            })
            .filter(move |(nr, _)| numbers.contains(nr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_links(links: u16) -> Info {
        Info { links, kind: Some(Kind::File), ..Info::default() }
    }

    #[test]
    fn inodes_are_found_by_number_and_in_order() {
        let mut inodes = Inodes::default();
        let numbers = [1, 2, 127, 128, 524_287, 524_288, 1 << 31, u32::MAX];
        for nr in numbers.iter().rev() {
            inodes.put(InodeNr::new(*nr), with_links(7));
        }
        for nr in numbers {
            assert_eq!(inodes.get(nr).map(|info| info.links), Some(7), "{nr}");
        }
        assert!(inodes.get(3).is_none() && inodes.get(1 << 20).is_none());
        let found: Vec<u32> = inodes.used(2..=524_288).map(|(nr, _)| nr).collect();
        assert_eq!(found, [2, 127, 128, 524_287, 524_288]);
        inodes.add_name(u32::MAX);
        let last = inodes.used(u32::MAX - 1..=u32::MAX).map(|(_, info)| info.refs());
        assert_eq!(last.collect::<Vec<_>>(), [1]);
    }

    /// Every kind, with no link to three, keeps what is put, and counts up to four names.
    #[test]
    fn names_are_counted_exactly_whatever_the_links() {
        let kinds = Kind::ALL.map(Some).into_iter().chain([None]);
        for (kind, links) in kinds.flat_map(|kind| (0..4).map(move |links| (kind, links))) {
            let mut inodes = Inodes::default();
            inodes.put(InodeNr::new(20), Info { kind, links, ..Info::default() });
            for names in 0..5 {
                let info = inodes.get(20).unwrap();
                assert_eq!((info.kind, info.links), (kind, links));
                assert_eq!(inodes.names(20, &info), names, "{kind:?} {links}");
                inodes.add_name(20);
            }
            inodes.add_name(21);
            assert!(inodes.get(21).is_none(), "a name makes no inode");
        }
    }

    #[test]
    fn changes_of_all_inodes_of_a_page_are_kept() {
        let mut inodes = Inodes::default();
        for nr in 0..2 * PAGE {
            inodes.put(InodeNr::new(nr), with_links(1));
        }
        for nr in 0..2 * PAGE {
            inodes.change(InodeNr::new(nr), |info| info.policy = u64::from(nr) + 1);
            inodes.change(InodeNr::new(nr), |info| info.directory = nr);
        }
        let right = |(nr, info): (u32, Info)| info.policy == u64::from(nr) + 1 && info.directory == nr;
        assert!(inodes.used(0..=u32::MAX).all(right));
        assert_eq!(inodes.used(0..=u32::MAX).count(), usize_of(2 * PAGE));
    }

    #[test]
    fn what_two_have_noted_is_put_together() {
        let (mut one, mut other) = (Inodes::default(), Inodes::default());
        for nr in 100..600 {
            let of = if nr / 50 % 2 == 0 { &mut one } else { &mut other };
            of.put(InodeNr::new(nr), with_links(u16::try_from(nr % 3).unwrap()));
        }
        one.absorb(other);
        assert!(one.used(0..=u32::MAX).all(|(nr, info)| u32::from(info.links) == nr % 3));
        assert!(one.used(0..=u32::MAX).map(|(nr, _)| nr).eq(100..600));
    }
}
