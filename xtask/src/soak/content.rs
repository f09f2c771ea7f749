//! What a file should hold, in a few numbers: which write put which bytes where.
//!
//! Every write has a version of its own, and the bytes of a version are a function of it and of their place
//! in the file. So what should be there can be made at any time, and old data, data of another file and zeros
//! are told apart. Version 0 is zeros: holes, space without data, and what lies beyond the end.

use hectare_lab::random::Random;
use hectare_units::{index_of, u64_of};
use std::collections::BTreeMap;

/// The content of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Content {
    len: u64,
    /// Where a version begins; it ends where the next begins. Before the first there are zeros.
    versions: BTreeMap<u64, u64>,
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
        let end = at + len;
        let after = self.version_at(end);
        let rest = self.versions.split_off(&at).split_off(&end);
        self.versions.extend(rest);
        self.versions.insert(at, version);
        self.versions.entry(end).or_insert(after);
        self.len = self.len.max(end);
    }

    /// The file becomes shorter or longer.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.versions.split_off(&len);
            self.versions.insert(len, 0);
        }
        self.len = len;
    }

    /// The file is made at least so long.
    pub(super) fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    fn version_at(&self, at: u64) -> u64 {
        self.versions.range(..=at).next_back().map_or(0, |(_, version)| *version)
    }

    /// What should be found from `at` on.
    pub(super) fn expect(&self, at: u64, out: &mut [u8]) {
        let end = at + u64_of(out.len());
        let mut from = at;
        while from < end {
            let next = self.versions.range(from + 1..).next().map_or(end, |(next, _)| (*next).min(end));
            let part = &mut out[index_of(from - at)..index_of(next - at)];
            pattern(self.version_at(from), from, part);
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
        let word = Random::new(version.rotate_left(32) ^ (place / 8)).next().to_le_bytes();
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
        let mut random = Random::new(11);
        let (mut content, mut model) = (Content::default(), Vec::new());
        for version in 1..2_000 {
            let (at, len) = (random.below(300), random.below(60));
            match random.below(6) {
                0 => {
                    content.set_len(at.into());
                    model.resize(hectare_units::usize_of(at), 0);
                }
                _ if len > 0 => {
                    content.write(at.into(), len.into(), version);
                    plain(&mut model, hectare_units::usize_of(at), hectare_units::usize_of(len), version);
                }
                _ => {}
            }
            assert_eq!(content.len(), u64_of(model.len()));
            let from = random.below(100).min(u32::try_from(model.len()).unwrap());
            let mut found = vec![9; model.len() - hectare_units::usize_of(from)];
            content.expect(from.into(), &mut found);
            assert_eq!(found, model[hectare_units::usize_of(from)..], "at version {version}");
        }
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
