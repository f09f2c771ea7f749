//! Whether two names of a directory are the same.
//!
//! Names are compared within their whole directory by a hash of 64 bits with a key of this process. In an
//! indexed directory a name can be in one leaf only, that of its hash in the index, unless that hash is where
//! two leaves meet: a leaf whose hashes all differ holds no name twice, which most show without a comparison.
//!
//! In a casefolded directory names are compared as they are folded; so they are in the index.

use crate::records::records;
use hectare_ext4::dir::Hasher;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// Names a set has room for that is kept for the next directory.
const KEPT_NAMES: usize = 1 << 12;

/// The names of the directory at hand.
#[derive(Default)]
pub(crate) struct Names {
    keys: RandomState,
    /// Names that may be in any block.
    seen: HashSet<u64>,
    leaf: Leaf,
}

/// The leaf at hand; empty for any other block.
#[derive(Default)]
struct Leaf {
    /// Which hashes its names may have, both ends included.
    range: Option<(u32, u32)>,
    /// The hashes of its names.
    hashes: Vec<u32>,
    sorted: Vec<u32>,
    /// Whether no name has the hash of another.
    distinct: bool,
    /// Names that may be in no other block, unless all are distinct.
    seen: HashSet<u64>,
}

impl Names {
    /// Begins a directory.
    pub(crate) fn start(&mut self) {
        if self.seen.capacity() > KEPT_NAMES {
            self.seen = HashSet::new();
        } else {
            self.seen.clear();
        }
    }

    /// Begins a block that is no leaf of an index.
    pub(crate) fn start_block(&mut self) {
        self.leaf.range = None;
        self.leaf.hashes.clear();
        self.leaf.sorted.clear();
    }

    /// Begins a leaf, and gives the least and the largest hash of its names.
    pub(crate) fn start_leaf(
        &mut self,
        range: (u32, u32),
        hasher: &Hasher,
        block: &[u8],
    ) -> Option<(u32, u32)> {
        let leaf = &mut self.leaf;
        leaf.range = Some(range);
        leaf.seen.clear();
        let used = records(block, block.len()).map_while(Result::ok).filter(|record| record.inode != 0);
        leaf.hashes.clear();
        leaf.hashes.extend(used.map(|record| hasher.hash(record.name).major));
        leaf.sorted.clone_from(&leaf.hashes);
        leaf.sorted.sort_unstable();
        leaf.distinct = leaf.sorted.windows(2).all(|pair| pair[0] != pair[1]);
        leaf.sorted.first().copied().zip(leaf.sorted.last().copied())
    }

    /// Adds the name of the `nth` record in use of the block at hand, counted from 0; false if it is there.
    pub(crate) fn add(&mut self, name: &[u8], nth: usize) -> bool {
        let Leaf { range, hashes, distinct, seen, .. } = &mut self.leaf;
        let hash = hashes.get(nth).copied();
        let is_inside = range.zip(hash).is_some_and(|((low, high), hash)| low < hash && hash < high);
        if is_inside && *distinct {
            return true;
        }
        let key = self.keys.hash_one(name);
        if is_inside { seen.insert(key) } else { self.seen.insert(key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_ext4::dir::{HashVersion, Signedness};

    /// A block with these names.
    fn block(names: &[&[u8]]) -> Vec<u8> {
        let record = |name: &&[u8]| {
            let mut record = vec![7, 0, 0, 0, 20, 0, u8::try_from(name.len()).unwrap(), 1];
            record.extend(*name);
            record.resize(20, 0);
            record
        };
        names.iter().flat_map(record).collect()
    }

    fn added(names: &mut Names, all: &[&[u8]]) -> Vec<bool> {
        all.iter().enumerate().map(|(nth, name)| names.add(name, nth)).collect()
    }

    #[test]
    fn a_name_is_there_once_in_its_leaf_and_at_the_ends_of_leaves() {
        let hasher = Hasher::new(HashVersion::HalfMd4, Signedness::Unsigned, [0; 4]);
        let of = |name: &[u8]| hasher.hash(name).major;
        let mut all: [&[u8]; 3] = [b"one", b"two", b"three"];
        all.sort_by_key(|name| of(name));
        let [low, middle, high] = all;
        let range = (of(low), of(high));
        let mut names = Names::default();
        names.start();
        assert_eq!(names.start_leaf(range, &hasher, &block(&all)), Some(range));
        assert_eq!(added(&mut names, &all), [true; 3]);
        // The next leaf: what is at an end may have been in the last one, what is inside may not.
        assert_eq!(names.start_leaf(range, &hasher, &block(&all)), Some(range));
        assert_eq!(added(&mut names, &all), [false, true, false]);
        let twice = [middle, low, middle];
        assert_eq!(names.start_leaf(range, &hasher, &block(&twice)), Some((of(low), of(middle))));
        assert_eq!(added(&mut names, &twice), [true, false, false]);
        // Without an index the whole directory is searched.
        names.start();
        names.start_block();
        assert_eq!(added(&mut names, &all), [true; 3]);
        names.start_block();
        assert_eq!(added(&mut names, &all), [false; 3]);
    }
}
