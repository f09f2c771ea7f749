//! Finishes the tree: drops hidden and unreachable nodes, sorts, numbers.
//!
//! The new numbers follow a walk in which a directory numbers all its children before the first of its
//! subdirectories is entered: they depend on content only, and siblings lie together. Nodes are permuted in
//! place, because a second copy of a million of them would cost more memory than everything else. The walk
//! keeps its own stack: an archive can nest directories as deep as it likes.

use super::builder::Builder;
use super::sorted;
use super::visible::{GONE, RawEntry};
use crate::tree::{Duplicates, Entry, Node, NodeId, NodeKind, Tree, Xattr};
use hectare_units::{low32, u64_of, usize_of};
use std::collections::BTreeSet;

const UNNUMBERED: u32 = u32::MAX;

impl Builder<'_> {
    /// The finished tree.
    pub(crate) fn finish(mut self) -> Tree {
        self.close();
        let starts = self.sort_entries();
        let mut walk = Walk {
            number: vec![UNNUMBERED; self.nodes.len()],
            next: 1,
            entries: Vec::with_capacity(self.entries.len()),
        };
        walk.number[0] = 0;
        self.walk(&starts, &mut walk);
        let Walk { number, next, entries } = walk;
        self.entries = Vec::new();
        renumber(&mut self.nodes, number, next);
        let xattr_sets = self.number_xattr_sets();
        self.nodes.shrink_to_fit();
        self.arena.0.shrink_to_fit();
        Tree {
            nodes: self.nodes,
            entries,
            arena: self.arena,
            xattr_sets,
            files: self.files,
            host_files: self.host_files,
            linked: self.linked,
            lists: self.lists,
            sources: self.sources,
            places: self.places,
            left_out: self.left_out,
            warnings: self.warnings,
            image_config: self.image_config,
            sealed: BTreeSet::new(),
            duplicates: Duplicates::default(),
        }
    }

    /// Sorts live entries by directory and name; gives where each directory's entries start.
    fn sort_entries(&mut self) -> Vec<u32> {
        let arena = &self.arena;
        self.entries.retain(|entry| entry.node != GONE);
        self.entries.sort_unstable_by(|a, b| sorted::compare(arena, a, b));
        // A directory that changes while it is listed can give a name twice.
        self.entries.dedup_by(|b, a| a.parent == b.parent && arena.name(a.name) == arena.name(b.name));
        sorted::starts(self.entries.iter(), self.nodes.len())
    }

    fn walk(&mut self, starts: &[u32], walk: &mut Walk) {
        let mut pending = vec![self.root()];
        let mut subdirectories = Vec::new();
        while let Some(dir) = pending.pop() {
            let first = walk.entries.len();
            let entries = usize_of(starts[dir.node.index()])..usize_of(starts[dir.node.index() + 1]);
            for at in entries {
                let entry = self.entries[at];
                if dir.shows(&entry) && self.name_node(dir.node, entry, walk) {
                    subdirectories.push(self.below(dir, NodeId::new(entry.node)));
                }
            }
            let node = &mut self.nodes[dir.node.index()];
            // No more entries than were counted in 32 bits when they were added.
            let count = low32(u64_of(walk.entries.len() - first));
            node.kind = NodeKind::Directory { first: low32(u64_of(first)), count };
            node.links = low32(u64_of(subdirectories.len())) + 2;
            pending.extend(subdirectories.drain(..).rev());
        }
    }

    /// Numbers the node of an entry if it has no number yet and adds the entry; whether it is a directory.
    fn name_node(&mut self, dir: NodeId, entry: RawEntry, walk: &mut Walk) -> bool {
        let node = &mut self.nodes[usize_of(entry.node)];
        let number = &mut walk.number[usize_of(entry.node)];
        if *number == UNNUMBERED {
            *number = walk.next;
            walk.next += 1;
            node.name = entry.name;
            node.parent = walk.number[dir.index()];
        }
        node.links += 1;
        walk.entries.push(Entry { name: entry.name, node: walk.number[usize_of(entry.node)] });
        node.is_directory()
    }

    /// Numbers the sets of extended attributes in the order in which nodes use them.
    fn number_xattr_sets(&mut self) -> Vec<Box<[Xattr]>> {
        let sets = std::mem::take(&mut self.xattr_sets).into_sets();
        let mut numbers = vec![0u32; sets.len()];
        let mut ordered = Vec::with_capacity(sets.len());
        for node in self.nodes.iter_mut().filter(|node| node.xattrs != 0) {
            let old = usize_of(node.xattrs) - 1;
            if numbers[old] == 0 {
                ordered.push(sets[old].as_ref().into());
                numbers[old] = low32(u64_of(ordered.len()));
            }
            node.xattrs = numbers[old];
        }
        ordered
    }
}

struct Walk {
    /// New number of each old node.
    number: Vec<u32>,
    next: u32,
    entries: Vec<Entry>,
}

/// Moves every node to its number and drops those without one.
fn renumber(nodes: &mut Vec<Node>, mut number: Vec<u32>, reachable: u32) {
    for (next, unnumbered) in (reachable..).zip(number.iter_mut().filter(|n| **n == UNNUMBERED)) {
        *unnumbered = next;
    }
    for at in 0..nodes.len() {
        while usize_of(number[at]) != at {
            let to = usize_of(number[at]);
            nodes.swap(at, to);
            number.swap(at, to);
        }
    }
    nodes.truncate(usize_of(reachable));
}
