//! The bitmap of one group, as it lies on disk, with the operations of a resize.

use std::ops::Range;

/// The bits of a group: clusters or inodes in use.
pub(crate) struct Bitmap {
    bytes: Vec<u8>,
    /// Whether it has to be written.
    pub(crate) is_dirty: bool,
}

impl Bitmap {
    /// Of the bytes on disk.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, is_dirty: false }
    }

    /// Whether a bit is set.
    pub(crate) fn get(&self, bit: u32) -> bool {
        let byte = self.bytes.get(hectare_units::usize_of(bit / 8));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    /// Sets or clears a range.
    pub(crate) fn put(&mut self, range: Range<u32>, used: bool) {
        self.is_dirty = true;
        fill(&mut self.bytes, range, used);
    }

    /// The bits that are set below `end`.
    pub(crate) fn count(&self, end: u32) -> u32 {
        let (whole, rest) = self.bytes.split_at(hectare_units::usize_of(end / 8));
        let last = rest.first().map_or(0, |byte| (byte & ((1u8 << (end % 8)) - 1)).count_ones());
        whole.iter().map(|byte| byte.count_ones()).sum::<u32>() + last
    }

    /// The first run of clear bits in a range, at most `most` long.
    pub(crate) fn free_run(&self, within: Range<u32>, most: u32) -> Option<Range<u32>> {
        let mut at = within.start;
        while at < within.end && self.get(at) {
            let is_full = at.is_multiple_of(8) && self.bytes[hectare_units::usize_of(at / 8)] == 0xff;
            at += if is_full { 8 } else { 1 };
        }
        if at >= within.end {
            return None;
        }
        let end = within.end.min(at.saturating_add(most));
        Some(at..(at..end).find(|bit| self.get(*bit)).unwrap_or(end))
    }

    /// The bytes as they are to be written: what lies beyond bit `end` is set.
    pub(crate) fn padded(&mut self, end: u32) -> &[u8] {
        let all = hectare_units::low32(8 * hectare_units::u64_of(self.bytes.len()));
        fill(&mut self.bytes, end..all, true);
        &self.bytes
    }
}

/// Sets or clears a range of bits.
pub(crate) fn fill(bytes: &mut [u8], range: Range<u32>, used: bool) {
    let mut at = range.start;
    while at < range.end {
        let Some(byte) = bytes.get_mut(hectare_units::usize_of(at / 8)) else { return };
        let last = range.end.min((at / 8 + 1) * 8);
        let mask = (0xffu32 << (at % 8)) & (0xffu32 >> (7 - (last - 1) % 8));
        let mask = hectare_units::low8(mask.into());
        *byte = if used { *byte | mask } else { *byte & !mask };
        at = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_counts_agree_with_the_bits() {
        let mut bitmap = Bitmap::new(vec![0; 8]);
        bitmap.put(0..13, true);
        bitmap.put(20..21, true);
        bitmap.put(4..6, false);
        assert_eq!((bitmap.count(64), bitmap.count(5), bitmap.count(13)), (12, 4, 11));
        assert_eq!(bitmap.free_run(0..64, 9), Some(4..6));
        assert_eq!(bitmap.free_run(6..64, 9), Some(13..20));
        assert_eq!(bitmap.free_run(20..64, 9), Some(21..30));
        assert_eq!(bitmap.free_run(0..4, 9), None);
        assert_eq!(bitmap.padded(30)[3..], [0xc0, 0xff, 0xff, 0xff, 0xff]);
    }
}
