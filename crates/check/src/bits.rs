//! A bitmap of clusters, laid out as the bitmaps on disk are, so that both compare byte by byte.

use hectare_units::index_of;
use std::ops::Range;

/// A bit for each cluster, the first in the lowest bit of the first byte.
pub(crate) struct Bits {
    bytes: Vec<u8>,
}

impl Bits {
    /// `len` clear bits.
    pub(crate) fn new(len: u64) -> Self {
        Self { bytes: vec![0; index_of(len.div_ceil(8))] }
    }

    /// Sets a range and gives the first bit that was set before. Bits beyond the end are ignored.
    pub(crate) fn claim(&mut self, range: Range<u64>) -> Option<u64> {
        let taken = self.first_set(range.clone());
        self.each(range, |byte, mask| *byte |= mask);
        taken
    }

    /// The first bit set in a range.
    fn first_set(&mut self, range: Range<u64>) -> Option<u64> {
        let (mut found, start) = (None, index_of(range.start / 8));
        let mut at = start;
        self.each(range, |byte, mask| {
            if found.is_none() && *byte & mask != 0 {
                found = Some(hectare_units::u64_of(at) * 8 + u64::from((*byte & mask).trailing_zeros()));
            }
            at += 1;
        });
        found
    }

    /// The bytes of a range with the bits that belong to it.
    fn each(&mut self, range: Range<u64>, mut visit: impl FnMut(&mut u8, u8)) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (index_of(range.start / 8), index_of((range.end - 1) / 8));
        let head = 0xff << (range.start % 8);
        let tail = 0xff >> (7 - (range.end - 1) % 8);
        let Some(bytes) = self.bytes.get_mut(first..) else { return };
        let count = last - first;
        for (i, byte) in bytes.iter_mut().take(count + 1).enumerate() {
            let mask = if i == 0 { head } else { 0xff } & if i == count { tail } else { 0xff };
            visit(byte, mask);
        }
    }

    /// The bytes from bit `start`, a multiple of eight, that hold `len` bits.
    pub(crate) fn slice(&self, start: u64, len: u64) -> &[u8] {
        let first = index_of(start / 8).min(self.bytes.len());
        let end = index_of((start + len).div_ceil(8)).min(self.bytes.len());
        &self.bytes[first..end]
    }
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
        let mut bits = Bits::new(64);
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
    fn bits_are_counted_up_to_a_length() {
        let bytes = [0xff, 0x0f, 0xf0];
        assert_eq!(count_ones(&bytes, 24), 16);
        assert_eq!(count_ones(&bytes, 10), 10);
        assert!(is_set(&bytes, 11) && !is_set(&bytes, 12) && !is_set(&bytes, 24));
        assert!(all_set_from(&bytes, 20) && !all_set_from(&bytes, 19) && all_set_from(&bytes, 24));
    }
}
