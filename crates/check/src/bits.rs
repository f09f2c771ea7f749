//! A bitmap of clusters, laid out as the bitmaps on disk are, so that both compare byte by byte.
//!
//! It is kept in pages, made when a bit of theirs is first set: a volume of exabytes that is next to empty
//! takes as little memory as a small one.

use hectare_units::{OutOfMemory, index_of, memory, u64_of};
use std::ops::Range;

/// Bytes of a page.
const PAGE: usize = 4096;

/// A bit for each cluster, the first in the lowest bit of the first byte.
pub(crate) struct Bits {
    /// How many bytes there are.
    len: u64,
    /// `None` is all zeros.
    pages: Vec<Option<Box<[u8; PAGE]>>>,
}

impl Bits {
    /// `len` clear bits; takes eight bytes for every 32,768 of them.
    pub(crate) fn new(len: u64) -> Result<Self, OutOfMemory> {
        let len = len.div_ceil(8);
        let count = index_of(len.div_ceil(u64_of(PAGE)));
        Ok(Self { len, pages: memory::filled(None, count)? })
    }

    /// Sets a range and gives the first bit that was set before. Bits beyond the end are ignored.
    pub(crate) fn claim(&mut self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let (first, last) = (range.start / 8, (range.end - 1) / 8);
        let head = 0xff << (range.start % 8);
        let tail = 0xff >> (7 - (range.end - 1) % 8);
        let (mut at, end, mut taken) = (first, (last + 1).min(self.len), None);
        while at < end {
            let (within, count) = in_page(at, end);
            let page = self.pages[index_of(at / u64_of(PAGE))].get_or_insert_with(|| Box::new([0; PAGE]));
            for byte in &mut page[within..within + count] {
                let mask = if at == first { head } else { 0xff } & if at == last { tail } else { 0xff };
                if taken.is_none() && *byte & mask != 0 {
                    taken = Some(at * 8 + u64::from((*byte & mask).trailing_zeros()));
                }
                *byte |= mask;
                at += 1;
            }
        }
        taken
    }

    /// The bytes from bit `start`, a multiple of eight, that hold `len` bits.
    pub(crate) fn slice(&self, start: u64, len: u64) -> Vec<u8> {
        let end = (start + len).div_ceil(8).min(self.len);
        let (mut at, mut found) = (start / 8, Vec::new());
        while at < end {
            let (within, count) = in_page(at, end);
            match self.pages.get(index_of(at / u64_of(PAGE))) {
                Some(Some(page)) => found.extend_from_slice(&page[within..within + count]),
                _ => found.resize(found.len() + count, 0),
            }
            at += u64_of(count);
        }
        found
    }
}

/// Where byte `at` lies in its page, and how many bytes from there on up to `end` lie in the same.
fn in_page(at: u64, end: u64) -> (usize, usize) {
    let within = index_of(at % u64_of(PAGE));
    (within, index_of((end - at).min(u64_of(PAGE - within))))
}

/// Set bits among the first `len`.
pub(crate) fn count_ones(bytes: &[u8], len: u32) -> u32 {
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

    #[test]
    fn a_page_is_made_when_a_bit_of_it_is_set() {
        let mut bits = Bits::new(1 << 33).unwrap();
        let page = 8 * u64_of(PAGE);
        assert_eq!(bits.slice(5 * page - 8, 16), [0, 0]);
        assert_eq!(bits.claim(5 * page - 2..5 * page + 3), None);
        assert_eq!(bits.slice(5 * page - 8, 16), [0xc0, 0x07]);
        assert_eq!(bits.pages.iter().flatten().count(), 2);
        assert_eq!(bits.claim(5 * page + 2..9 * page), Some(5 * page + 2));
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
