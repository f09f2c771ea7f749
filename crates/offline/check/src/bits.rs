//! A bitmap of clusters, laid out as the bitmaps on disk are, so that both compare byte by byte.
//!
//! It is kept in pages, and a page has bytes only once its set bits are more than one run: a volume of
//! exabytes that is next to empty takes as little memory as a small one, although each of its groups may
//! start with metadata.

use hectare_units::{OutOfMemory, index_of, memory, u64_of};
use std::ops::Range;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Bits of a page.
const PAGE_BITS: u64 = 8 * 4096;

/// A bit for each cluster, the first in the lowest bit of the first byte.
#[derive(Clone)]
pub struct Bits {
    /// How many bytes there are.
    len: u64,
    pages: Vec<Page>,
}

/// The bits of a page.
#[derive(Clone)]
enum Page {
    /// One run is set, from the first bit to before the second; an empty one is a page of zeros.
    Run(u16, u16),
    /// More than one.
    Bytes(Box<[u8; PAGE]>),
}

impl Page {
    /// Sets a range and gives the first bit that was set before.
    fn claim(&mut self, from: u16, to: u16) -> Option<u64> {
        match self {
            Self::Run(start, end) if start == end => {
                (*start, *end) = (from, to);
                None
            }
            Self::Run(start, end) if from <= *end && *start <= to => {
                let first = from.max(*start);
                let taken = first < to.min(*end);
                (*start, *end) = (from.min(*start), to.max(*end));
                taken.then_some(u64::from(first))
            }
            Self::Run(start, end) => {
                let mut bytes = Box::new([0; PAGE]);
                set(&mut *bytes, usize::from(*start)..usize::from(*end));
                set(&mut *bytes, usize::from(from)..usize::from(to));
                *self = Self::Bytes(bytes);
                None
            }
            Self::Bytes(bytes) => set(&mut **bytes, usize::from(from)..usize::from(to)).map(u64_of),
        }
    }

    /// Sets the bits of another page; false if one was set in both.
    fn absorb(&mut self, other: Self) -> bool {
        match (self, other) {
            (page, Self::Run(start, end)) => start == end || page.claim(start, end).is_none(),
            (Self::Bytes(bytes), Self::Bytes(other)) => {
                let disjoint = bytes.iter().zip(&*other).all(|(byte, other)| byte & other == 0);
                bytes.iter_mut().zip(&*other).for_each(|(byte, other)| *byte |= other);
                disjoint
            }
            (page, bytes) => {
                let Self::Run(start, end) = std::mem::replace(page, bytes) else { return false };
                start == end || page.claim(start, end).is_none()
            }
        }
    }

    /// The first set bit from `at` on.
    fn first_from(&self, at: u16) -> Option<u16> {
        match self {
            Self::Run(start, end) => Some(at.max(*start)).filter(|bit| bit < end),
            Self::Bytes(bytes) => {
                let of_first = bytes[usize::from(at / 8)] & 0xff << (at % 8);
                let later = bytes.iter().copied().skip(usize::from(at / 8) + 1);
                let mut all = (at / 8..).zip(std::iter::once(of_first).chain(later));
                let (byte, bits) = all.find(|(_, bits)| *bits != 0)?;
                Some(8 * byte + hectare_units::low16(u64::from(bits.trailing_zeros())))
            }
        }
    }

    /// Copies the bytes from `within` on into `found`, which is all zeros.
    fn copy(&self, within: usize, found: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => found.copy_from_slice(&bytes[within..within + found.len()]),
            Self::Run(start, end) => {
                let bits = 8 * found.len();
                let bit = |bit: u16| usize::from(bit).saturating_sub(8 * within).min(bits);
                set(found, bit(*start)..bit(*end));
            }
        }
    }
}

impl Bits {
    /// `len` clear bits; takes sixteen bytes for every 32,768 of them.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn new(len: u64) -> Result<Self, OutOfMemory> {
        let count = index_of(len.div_ceil(PAGE_BITS));
        Ok(Self { len: len.div_ceil(8), pages: memory::filled(Page::Run(0, 0), count)? })
    }

    /// Sets a range and gives the first bit that was set before. Bits beyond the end are ignored.
    pub fn claim(&mut self, range: Range<u64>) -> Option<u64> {
        let end = range.end.min(self.len * 8);
        let (mut at, mut taken) = (range.start, None);
        while at < end {
            let start = at - at % PAGE_BITS;
            let within = |bit: u64| hectare_units::low16(bit - start);
            let (from, to) = (within(at), within(end.min(start + PAGE_BITS)));
            let found = self.pages[index_of(at / PAGE_BITS)].claim(from, to);
            taken = taken.or(found.map(|bit| start + bit));
            at = start + PAGE_BITS;
        }
        taken
    }

    /// Clears one bit.
    pub fn release(&mut self, at: u64) {
        let Some(page) = self.pages.get_mut(index_of(at / PAGE_BITS)) else { return };
        let mut bytes = Box::new([0; PAGE]);
        page.copy(0, &mut bytes[..]);
        let within = index_of(at % PAGE_BITS);
        bytes[within / 8] &= !(1 << (within % 8));
        *page = Page::Bytes(bytes);
    }

    /// Whether a bit is set; bits beyond the end are not.
    #[must_use]
    pub fn contains(&self, at: u64) -> bool {
        let within = at % PAGE_BITS;
        match self.pages.get(index_of(at / PAGE_BITS)) {
            Some(Page::Run(start, end)) => (u64::from(*start)..u64::from(*end)).contains(&within),
            Some(Page::Bytes(bytes)) => bytes[index_of(within / 8)] >> (within % 8) & 1 == 1,
            None => false,
        }
    }

    /// The first set bit from `at` on.
    #[must_use]
    pub fn first_from(&self, at: u64) -> Option<u64> {
        let first = index_of(at / PAGE_BITS);
        let pages = (first..).zip(self.pages.get(first..)?);
        pages
            .filter_map(|(index, page)| {
                let start = u64_of(index) * PAGE_BITS;
                let within = hectare_units::low16(at.saturating_sub(start));
                page.first_from(within).map(|bit| start + u64::from(bit))
            })
            .next()
    }

    /// Sets the bits of another bitmap of the same length; false if one was set in both.
    pub(crate) fn absorb(&mut self, other: Self) -> bool {
        let pages = self.pages.iter_mut().zip(other.pages);
        pages.fold(true, |disjoint, (page, other)| page.absorb(other) && disjoint)
    }

    /// The bytes from bit `start`, a multiple of eight, that hold `len` bits.
    #[must_use]
    pub fn slice(&self, start: u64, len: u64) -> Vec<u8> {
        let end = (start + len).div_ceil(8).min(self.len);
        let (mut at, mut found) = (start / 8, Vec::new());
        while at < end {
            let (within, count) = in_page(at, end);
            let done = found.len();
            found.resize(done + count, 0);
            if let Some(page) = self.pages.get(index_of(at / u64_of(PAGE))) {
                page.copy(within, &mut found[done..]);
            }
            at += u64_of(count);
        }
        found
    }
}

/// Sets a range of bits and gives the first that was set before.
fn set(bytes: &mut [u8], range: Range<usize>) -> Option<usize> {
    let (first, last) = (range.start / 8, range.end.checked_sub(1).filter(|_| !range.is_empty())? / 8);
    let (head, tail) = (0xff << (range.start % 8), 0xff >> (7 - (range.end - 1) % 8));
    let mut taken = None;
    for (at, byte) in (first..=last).zip(&mut bytes[first..=last]) {
        let mask = if at == first { head } else { 0xff } & if at == last { tail } else { 0xff };
        if taken.is_none() && *byte & mask != 0 {
            taken = Some(at * 8 + hectare_units::usize_of((*byte & mask).trailing_zeros()));
        }
        *byte |= mask;
    }
    taken
}

/// Where byte `at` lies in its page, and how many bytes from there on up to `end` lie in the same.
fn in_page(at: u64, end: u64) -> (usize, usize) {
    let within = index_of(at % u64_of(PAGE));
    (within, index_of((end - at).min(u64_of(PAGE - within))))
}

/// Set bits among the first `len`.
#[must_use]
pub fn count_ones(bytes: &[u8], len: u32) -> u32 {
    let (whole, rest) = (hectare_units::usize_of(len / 8), len % 8);
    let full: u32 = bytes.iter().take(whole).map(|byte| byte.count_ones()).sum();
    full + bytes.get(whole).map_or(0, |byte| (byte & ((1 << rest) - 1)).count_ones())
}

/// Whether bit `at` is set; bits beyond the end are not.
pub(crate) fn is_set(bytes: &[u8], at: u32) -> bool {
    bytes.get(hectare_units::usize_of(at / 8)).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// Whether every bit from `from` to the end of the bytes is set.
pub(crate) fn all_set_from(bytes: &[u8], from: u32) -> bool {
    let first = hectare_units::usize_of(from / 8);
    let Some((head, rest)) = bytes.get(first..).and_then(<[u8]>::split_first) else { return true };
    head | ((1 << (from % 8)) - 1) == 0xff && rest.iter().all(|byte| *byte == 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_claimed_once() {
        let mut bits = Bits::new(64).unwrap();
        assert_eq!(bits.claim(3..20), None);
        assert_eq!(bits.claim(20..21), None);
        assert_eq!(bits.claim(0..3), None);
        assert_eq!(bits.claim(10..12), Some(10));
        assert_eq!(bits.claim(20..40), Some(20));
        assert_eq!(bits.claim(40..40), None);
        assert_eq!(bits.slice(0, 64), [0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]);
        assert_eq!(bits.claim(60..70), None);
        assert_eq!(bits.claim(63..64), Some(63));
    }

    /// How many pages have bytes of their own.
    fn with_bytes(bits: &Bits) -> usize {
        bits.pages.iter().filter(|page| matches!(page, Page::Bytes(_))).count()
    }

    #[test]
    fn a_range_goes_over_pages() {
        let mut bits = Bits::new(1 << 33).unwrap();
        assert_eq!(bits.slice(5 * PAGE_BITS - 8, 16), [0, 0]);
        assert_eq!(bits.claim(5 * PAGE_BITS - 2..5 * PAGE_BITS + 3), None);
        assert_eq!(bits.slice(5 * PAGE_BITS - 8, 16), [0xc0, 0x07]);
        assert_eq!(bits.claim(5 * PAGE_BITS + 2..9 * PAGE_BITS), Some(5 * PAGE_BITS + 2));
        assert_eq!(bits.slice(9 * PAGE_BITS - 8, 16), [0xff, 0]);
    }

    /// A volume of 1 PiB has metadata in every group: 369,980 KB were needed to check one.
    #[test]
    fn regression_a_page_takes_memory_for_two_runs_and_not_for_one() {
        let mut bits = Bits::new(1 << 30).unwrap();
        for group in 0..1 << 15 {
            assert_eq!(bits.claim(group * PAGE_BITS..group * PAGE_BITS + 1), None);
            assert_eq!(bits.claim(group * PAGE_BITS + 1..group * PAGE_BITS + 70), None);
        }
        assert_eq!(with_bytes(&bits), 0);
        assert_eq!(bits.claim(7 * PAGE_BITS + 71..7 * PAGE_BITS + 72), None);
        assert_eq!(with_bytes(&bits), 1);
        assert_eq!(bits.slice(7 * PAGE_BITS + 64, 8), [0b1011_1111]);
    }

    /// Against a model, over two pages: what is claimed, what is found, and what is read.
    #[test]
    fn claims_are_those_of_a_plain_bitmap() {
        let mut state = 1_u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        for _ in 0..200 {
            let mut bits = Bits::new(2 * PAGE_BITS).unwrap();
            let mut model = vec![0; 2 * PAGE];
            for _ in 0..below(8) {
                let start = PAGE_BITS - 40 + below(80);
                let range = start..start + below(20);
                let expected = set(&mut model, index_of(range.start)..index_of(range.end)).map(u64_of);
                assert_eq!(bits.claim(range), expected);
            }
            let from = PAGE_BITS - 64 + 8 * below(16);
            let (first, len) = (index_of(from / 8), 1 + below(64));
            assert_eq!(bits.slice(from, len), model[first..first + index_of(len.div_ceil(8))]);
        }
    }

    #[test]
    fn set_bits_are_found_in_order() {
        for bits in [&[5, 6, 7][..], &[0, 40_000, 100_000, PAGE_BITS - 1, PAGE_BITS, 3 * PAGE_BITS + 9]] {
            let mut sorted = bits.to_vec();
            sorted.sort_unstable();
            let mut map = Bits::new(4 * PAGE_BITS).unwrap();
            bits.iter().for_each(|bit| assert_eq!(map.claim(*bit..*bit + 1), None));
            let (mut found, mut next) = (Vec::new(), 0);
            while let Some(bit) = map.first_from(next) {
                found.push(bit);
                next = bit + 1;
            }
            assert_eq!(found, sorted);
            assert_eq!(map.first_from(8 * PAGE_BITS), None);
        }
    }

    /// What two have set is what one would have, and called disjoint if it is.
    #[test]
    fn two_bitmaps_become_one() {
        let ranges = [0..5, 3..4, 5..9, 5..6, 100..101, 4..101, PAGE_BITS - 1..PAGE_BITS + 1];
        for chosen in 0..1 << (2 * ranges.len()) {
            let of = |which: usize| {
                let mut bits = Bits::new(2 * PAGE_BITS).unwrap();
                let mine = (0..).zip(&ranges).filter(|(i, _)| chosen >> (2 * i + which) & 1 == 1);
                mine.for_each(|(_, range)| {
                    assert!(bits.claim(range.clone()).is_none_or(|bit| bit < 2 * PAGE_BITS));
                });
                bits
            };
            let all = |bits: &Bits| bits.slice(0, 2 * PAGE_BITS);
            let (mut one, other) = (of(0), of(1));
            let (first, second) = (all(&one), all(&other));
            let disjoint = first.iter().zip(&second).all(|(a, b)| a & b == 0);
            assert_eq!(one.absorb(other), disjoint, "{chosen:#x}");
            assert!(all(&one).iter().zip(first.iter().zip(&second)).all(|(all, (a, b))| *all == a | b));
        }
    }

    #[test]
    fn bits_are_counted_up_to_a_length() {
        let bytes = [0xff, 0x0f, 0xf0];
        assert_eq!(count_ones(&bytes, 24), 16);
        assert_eq!(count_ones(&bytes, 10), 10);
        assert!(is_set(&bytes, 11) && !is_set(&bytes, 12) && !is_set(&bytes, 24));
        assert!(all_set_from(&bytes, 20) && !all_set_from(&bytes, 19) && all_set_from(&bytes, 24));
    }
}
