//! The expected content of a file, in a few numbers: which write put which bytes where.
//!
//! Every write has a version of its own, and the bytes of a version are a function of it and of the place in
//! the file they were written to. So the expected content can be made at any time, and old data, data of
//! another file, zeros, and data that moved too far can be distinguished. Version 0 is zeros: holes, space
//! without data, and what lies beyond the end.

use hectare_units::random::SplitMix64;
use hectare_units::{index_of, u64_of};
use std::collections::BTreeMap;

/// The write that a run of bytes comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Run {
    version: u64,
    /// Where its first byte was written to; it may have moved since.
    origin: u64,
}

/// The content of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Content {
    len: u64,
    /// Where a run begins; it ends where the next begins. Before the first there are zeros.
    runs: BTreeMap<u64, Run>,
}

impl Content {
    /// The length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// A write of `len` bytes at `at`.
    pub(super) fn write(&mut self, at: u64, len: u64, version: u64) {
        if len == 0 {
            return;
        }
        self.put(at, len, version);
        self.extend(at + len);
    }

    /// Makes a range zeros; the size stays.
    pub(super) fn clear(&mut self, at: u64, len: u64) {
        if len > 0 {
            self.put(at, len, 0);
        }
    }

    fn put(&mut self, at: u64, len: u64, version: u64) {
        self.split(at);
        self.split(at + len);
        let rest = self.runs.split_off(&at).split_off(&(at + len));
        self.runs.extend(rest);
        self.runs.insert(at, Run { version, origin: at });
    }

    /// Sets the size.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.runs.split_off(&len);
            self.runs.insert(len, Run::default());
        }
        self.len = len;
    }

    /// Makes the file at least `len` bytes long.
    pub(super) fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Removes a range inside the file.
    pub(super) fn collapse(&mut self, at: u64, len: u64) {
        self.split(at + len);
        let moved = self.runs.split_off(&at).split_off(&(at + len));
        self.runs.extend(moved.into_iter().map(|(start, run)| (start - len, run)));
        self.len -= len;
    }

    /// Inserts a range of zeros inside the file.
    pub(super) fn insert(&mut self, at: u64, len: u64) {
        self.split(at);
        let moved = self.runs.split_off(&at);
        self.runs.extend(moved.into_iter().map(|(start, run)| (start + len, run)));
        self.runs.insert(at, Run::default());
        self.len += len;
    }

    /// Makes a run begin at a place, without changing what is there.
    fn split(&mut self, at: u64) {
        self.runs.insert(at, self.run_at(at));
    }

    /// The content at a place, as a run that begins there.
    fn run_at(&self, at: u64) -> Run {
        let last = self.runs.range(..=at).next_back();
        last.map_or(Run::default(), |(start, run)| Run { origin: run.origin + (at - start), ..*run })
    }

    /// Whether nothing but zeros should be found from `at` to before `end`.
    pub(super) fn is_zero(&self, at: u64, end: u64) -> bool {
        at >= end || self.run_at(at).version == 0 && self.runs.range(at..end).all(|(_, run)| run.version == 0)
    }

    /// The expected content from `at` on.
    pub(super) fn expect(&self, at: u64, out: &mut [u8]) {
        let end = at + u64_of(out.len());
        let mut from = at;
        while from < end {
            let next = self.runs.range(from + 1..).next().map_or(end, |(next, _)| (*next).min(end));
            let part = &mut out[index_of(from - at)..index_of(next - at)];
            let run = self.run_at(from);
            pattern(run.version, run.origin, part);
            from = next;
        }
    }
}

/// The bytes of a version from byte `at` of the file on.
pub(super) fn pattern(version: u64, at: u64, out: &mut [u8]) {
    if version == 0 {
        out.fill(0);
        return;
    }
    let mut done = 0;
    while done < out.len() {
        let place = at + u64_of(done);
        let word = SplitMix64::new(version.rotate_left(32) ^ (place / 8)).draw().to_le_bytes();
        let skip = index_of(place % 8);
        let now = (8 - skip).min(out.len() - done);
        out[done..done + now].copy_from_slice(&word[skip..skip + now]);
        done += now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same with every byte in memory.
    fn plain(model: &mut Vec<u8>, at: usize, len: usize, version: u64) {
        if model.len() < at + len {
            model.resize(at + len, 0);
        }
        pattern(version, u64_of(at), &mut model[at..at + len]);
    }

    #[test]
    fn versions_say_what_bytes_would() {
        let mut random = SplitMix64::new(11);
        let (mut content, mut model, mut zeros) = (Content::default(), Vec::new(), 0);
        for version in 1..4_000 {
            let (at, len) = (u64::from(random.below32(300)), u64::from(random.below32(60)));
            let (from, to) = (index_of(at), index_of(at + len));
            let inside = from < to && to < model.len();
            match random.below32(9) {
                0 => {
                    content.set_len(at);
                    model.resize(from, 0);
                }
                1 if inside => {
                    content.collapse(at, len);
                    model.drain(from..to);
                }
                2 if inside && model.len() < 600 => {
                    content.insert(at, len);
                    model.splice(from..from, std::iter::repeat_n(0, to - from));
                }
                3 if inside => {
                    content.clear(at, len);
                    model[from..to].fill(0);
                }
                _ if len > 0 => {
                    content.write(at, len, version);
                    plain(&mut model, from, to - from, version);
                }
                _ => {}
            }
            assert_eq!(content.len(), u64_of(model.len()));
            let from = index_of(u64::from(random.below32(100)).min(content.len()));
            let mut found = vec![9; model.len() - from];
            content.expect(u64_of(from), &mut found);
            assert_eq!(found, model[from..], "at version {version}");
            let run = found.iter().position(|byte| *byte != 0).unwrap_or(found.len());
            let end = u64_of(from + run);
            assert!(run == found.len() || !content.is_zero(u64_of(from), end + 1), "at version {version}");
            zeros += u64::from(run > 8 && content.is_zero(u64_of(from), end));
        }
        assert!(zeros > 100, "{zeros} times there were zeros");
    }

    #[test]
    fn versions_differ_and_do_not_depend_on_how_they_are_cut() {
        let (mut a, mut b, mut c) = ([0; 64], [0; 64], [0; 31]);
        pattern(1, 0, &mut a);
        pattern(2, 0, &mut b);
        pattern(1, 5, &mut c);
        assert!(a != b && a[5..36] == c);
    }
}
