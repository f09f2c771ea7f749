//! Runs of bits in a bitmap of 64-bit words, a word at a time.
//!
//! Bit `i` is bit `i % 64` of word `i / 64`. Ranges are half open and must lie inside the words; the callers'
//! bitmaps are sized when they are made, so a range outside is a bug and panics.

use crate::sync::{Cost, charge};
use hectare_units::{low32, u64_of, usize_of};
use std::ops::Range;

/// Bits in a word.
const WORD: u32 = 64;

/// Words needed for `len` bits.
pub(crate) const fn words_for(len: u32) -> usize {
    usize_of(len.div_ceil(WORD))
}

/// The words a range touches, with a mask of the touched bits of each.
fn masks(range: &Range<u32>) -> impl Iterator<Item = (usize, u64)> + use<> {
    let Range { start, end } = *range;
    let words = if start < end { start / WORD..(end - 1) / WORD + 1 } else { 0..0 };
    words.map(move |word| {
        let low = start.saturating_sub(word * WORD);
        let high = (end - word * WORD).min(WORD);
        (usize_of(word), (u64::MAX >> (WORD - (high - low))) << low)
    })
}

/// Changes the words a range touches, each with a mask of the touched bits.
fn change(words: &mut [u64], range: &Range<u32>, change: impl Fn(&mut u64, u64)) {
    let Range { start, end } = *range;
    if start >= end {
        return;
    }
    let [first, last] = [start / WORD, (end - 1) / WORD].map(usize_of);
    let (head, tail) = (u64::MAX << (start % WORD), u64::MAX >> (WORD - 1 - (end - 1) % WORD));
    match &mut words[first..=last] {
        [only] => change(only, head & tail),
        [first, whole @ .., last] => {
            change(first, head);
            whole.iter_mut().for_each(|word| change(word, u64::MAX));
            change(last, tail);
        }
        [] => {}
    }
}

/// Sets the bits of `range`.
pub(crate) fn set(words: &mut [u64], range: &Range<u32>) {
    change(words, range, |word, mask| *word |= mask);
}

/// Clears the bits of `range`.
pub(crate) fn clear(words: &mut [u64], range: &Range<u32>) {
    change(words, range, |word, mask| *word &= !mask);
}

/// How many bits of `range` are set.
pub(crate) fn count(words: &[u64], range: &Range<u32>) -> u32 {
    masks(range).map(|(word, mask)| (words[word] & mask).count_ones()).sum()
}

/// The first bit of `range` that is set in `view` of its word.
fn first(words: &[u64], range: &Range<u32>, view: impl Fn(u64) -> u64) -> Option<u32> {
    let Range { start, end } = *range;
    if start >= end {
        return None;
    }
    let [mut word, last] = [start / WORD, (end - 1) / WORD].map(usize_of);
    let mut bits = view(words[word]) & u64::MAX << (start % WORD);
    if bits == 0 {
        let passed = words[word + 1..=last].iter().position(|word| view(*word) != 0);
        charge(Cost::Word, low32(u64_of(passed.unwrap_or(last - word))));
        word += 1 + passed?;
        bits = view(words[word]);
    }
    let at = low32(u64_of(word)) * WORD + bits.trailing_zeros();
    (at < end).then_some(at)
}

/// The first clear bit of `range`.
pub(crate) fn first_clear(words: &[u64], range: &Range<u32>) -> Option<u32> {
    first(words, range, |word| !word)
}

/// The first set bit of `range`.
pub(crate) fn first_set(words: &[u64], range: &Range<u32>) -> Option<u32> {
    first(words, range, |word| word)
}

/// The last set bit before `end`.
pub(crate) fn last_set(words: &[u64], end: u32) -> Option<u32> {
    let mut end = end;
    while end > 0 {
        let word = (end - 1) / WORD;
        let bits = words[usize_of(word)] & (u64::MAX >> (WORD - (end - word * WORD)));
        if bits != 0 {
            return Some(word * WORD + (WORD - 1 - bits.leading_zeros()));
        }
        end = word * WORD;
    }
    None
}

/// The maximal runs of clear bits inside `range`, in order.
pub(crate) fn clear_runs(words: &[u64], range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let Range { start, end } = range;
    let mut from = start;
    std::iter::from_fn(move || {
        let first = first_clear(words, &(from..end))?;
        from = first_set(words, &(first..end)).unwrap_or(end);
        Some(first..from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(bits: &[bool]) -> Vec<u64> {
        let len = u32::try_from(bits.len()).unwrap();
        let mut words = vec![0; words_for(len)];
        for (at, _) in (0..len).zip(bits).filter(|(_, bit)| **bit) {
            words[usize_of(at / 64)] |= 1 << (at % 64);
        }
        words
    }

    fn naive_runs(bits: &[bool], range: Range<u32>) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for at in range.filter(|at| !bits[usize_of(*at)]) {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    /// Bitmaps made of runs, since independent bits hardly ever leave a long one.
    fn bitmap() -> impl Strategy<Value = Vec<bool>> {
        prop::collection::vec((any::<bool>(), 1_usize..100), 1..12)
            .prop_map(|runs| runs.into_iter().flat_map(|(bit, len)| std::iter::repeat_n(bit, len)).collect())
    }

    fn bitmap_and_range() -> impl Strategy<Value = (Vec<bool>, Range<u32>)> {
        bitmap().prop_flat_map(|bits| {
            let len = u32::try_from(bits.len()).unwrap();
            (Just(bits), 0..=len, 0..=len).prop_map(|(bits, a, b)| (bits, a.min(b)..a.max(b)))
        })
    }

    proptest! {
        #[test]
        fn searches_agree_with_naive_ones((bits, range) in bitmap_and_range()) {
            let words = pack(&bits);
            let is_set = |at: &u32| bits[usize_of(*at)];
            prop_assert_eq!(first_set(&words, &range), range.clone().find(is_set));
            prop_assert_eq!(first_clear(&words, &range), range.clone().find(|at| !is_set(at)));
            prop_assert_eq!(last_set(&words, range.end), (0..range.end).rev().find(is_set));
            let set = range.clone().filter(is_set).count();
            prop_assert_eq!(usize_of(count(&words, &range)), set);
            let runs: Vec<_> = clear_runs(&words, range.clone()).collect();
            prop_assert_eq!(runs, naive_runs(&bits, range));
        }

        #[test]
        fn set_and_clear_touch_their_range_only((bits, range) in bitmap_and_range()) {
            for value in [true, false] {
                let mut expected = bits.clone();
                expected[usize_of(range.start)..usize_of(range.end)].fill(value);
                let mut words = pack(&bits);
                if value { set(&mut words, &range) } else { clear(&mut words, &range) }
                prop_assert_eq!(words, pack(&expected));
            }
        }
    }
}
