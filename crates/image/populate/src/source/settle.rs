//! Settles the layers: afterwards an entry that can be found is one the tree will have.
//!
//! While layers are read, what an opaque directory hides is only decided at the end, and a directory that
//! changes while it is listed can have given a name twice. Code that changes single entries has to know: a
//! change to a hidden one would be lost without a word.

use super::builder::{Builder, LayerKind};
use super::sorted;
use super::visible::GONE;
use crate::handle::SourceHandle;
use crate::tree::NodeId;
use hectare_units::{low32, u64_of, usize_of};

/// The entries of a tree under construction, by directory.
pub(crate) struct ByDirectory {
    /// Numbers of entries, those of one directory together, sorted by name.
    order: Vec<u32>,
    /// Where those of each directory start.
    starts: Vec<u32>,
}

impl ByDirectory {
    /// The numbers of the entries of a directory.
    pub(crate) fn of(&self, dir: NodeId) -> &[u32] {
        let range = usize_of(self.starts[dir.index()])..usize_of(self.starts[dir.index() + 1]);
        &self.order[range]
    }
}

impl Builder<'_> {
    /// The entries that are not removed, by directory.
    pub(crate) fn by_directory(&self) -> ByDirectory {
        let entry = |at: &u32| &self.entries[usize_of(*at)];
        // Entries are counted in 32 bits when they are added.
        let mut order: Vec<u32> = (0..low32(u64_of(self.entries.len()))).collect();
        order.retain(|at| entry(at).node != GONE);
        order.sort_unstable_by(|a, b| sorted::compare(&self.arena, entry(a), entry(b)));
        let starts = sorted::starts(order.iter().map(entry), self.nodes.len());
        ByDirectory { order, starts }
    }

    /// Removes what no finished tree will have, and begins a layer of single entries.
    pub(crate) fn settle(&mut self, source: SourceHandle) -> Result<(), crate::Error> {
        let all = self.by_directory();
        let mut pending = vec![self.root()];
        while let Some(dir) = pending.pop() {
            let mut last = None;
            for at in all.of(dir.node) {
                let entry = self.entries[usize_of(*at)];
                let name = self.arena.name(entry.name);
                if !dir.shows(&entry) || last == Some(name) {
                    self.entries[usize_of(*at)].node = GONE;
                    continue;
                }
                last = Some(name);
                if self.is_directory(NodeId::new(entry.node)) {
                    pending.push(self.below(dir, NodeId::new(entry.node)));
                }
            }
        }
        self.floors.clear();
        // The index may know a removed entry by a name that another one has.
        self.close();
        self.entries.retain(|entry| entry.node != GONE);
        self.begin_layer(source, LayerKind::Archive)
    }
}
