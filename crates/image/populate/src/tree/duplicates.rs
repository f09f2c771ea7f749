//! Which files of a tree have the content of another one.
//!
//! Invariants: the first of equal files has the lowest number, and is the first for all others.
//!
//! What this is not: finding them, for which files are read.

use super::{NodeId, Tree};
use hectare_units::u64_of;
use std::collections::{HashMap, HashSet};

/// Files with the content of others.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    /// The first file with the content of each but the first.
    first: HashMap<NodeId, NodeId>,
    /// The first ones.
    firsts: HashSet<NodeId>,
}

impl Duplicates {
    /// Notes that a file has the content of `first`.
    pub(crate) fn add(&mut self, id: NodeId, first: NodeId) {
        self.first.insert(id, first);
        self.firsts.insert(first);
    }

    /// Parts files that are to be sealed from those that are not: the blocks of a sealed file have its hashes
    /// behind the content.
    pub(crate) fn part(&mut self, is_sealed: impl Fn(NodeId) -> bool) {
        let old = std::mem::take(self);
        let mut files: Vec<_> = old.first.into_iter().chain(old.firsts.iter().map(|id| (*id, *id))).collect();
        files.sort_unstable();
        let mut firsts = HashMap::new();
        for (id, first) in files {
            let first = *firsts.entry((first, is_sealed(id))).or_insert(id);
            if first != id {
                self.add(id, first);
            }
        }
    }

    /// All but the first of equal files, in no order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.first.keys().copied()
    }
}

impl Tree {
    /// The first file with the content of this one, if the tree was asked to find equal files and that is
    /// another.
    #[must_use]
    pub fn first_equal(&self, id: NodeId) -> Option<NodeId> {
        self.duplicates.first.get(&id).copied()
    }

    /// Whether files behind this one have its content.
    pub(crate) fn has_equals(&self, id: NodeId) -> bool {
        self.duplicates.firsts.contains(&id)
    }

    /// How many files have the content of another one before them.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        u64_of(self.duplicates.first.len())
    }
}
