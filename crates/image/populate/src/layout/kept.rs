//! What a new volume keeps of an old one: the inode numbers of its nodes, and where their content was.
//!
//! Invariants: no two nodes have one number, and a node whose old number is taken gets the lowest that no
//! node and no inode of the format has.

use crate::like::{Like, OldInode};
use crate::tree::{NodeId, Tree};
use hectare_units::{InodeNr, low32, usize_of};
use std::ops::Range;

/// What is kept of each node.
pub(crate) struct Kept {
    /// By node; the root's and the stand-in's are the format's.
    numbers: Vec<InodeNr>,
    /// The nodes by their numbers.
    nodes: Vec<(InodeNr, NodeId)>,
    /// Runs of numbers less one.
    runs: Vec<Range<u64>>,
    old: Vec<Option<OldInode>>,
}

impl Kept {
    /// What nodes of `tree` have in the old image; those of the format come before `first`.
    pub(crate) fn new(tree: &Tree, stand_in: Option<NodeId>, like: &mut Like, first: InodeNr) -> Self {
        let old: Vec<_> = tree.ids().map(|id| like.take(&tree.path(id))).collect();
        let own = |id: &NodeId| *id != NodeId::ROOT && Some(*id) != stand_in;
        let most = low32(u64::from(like.geometry().inodes_count()));
        let mut taken = vec![false; usize_of(most) + 1];
        let mut numbers = vec![InodeNr::ROOT; tree.len()];
        let mut open = Vec::new();
        for id in tree.ids().filter(own) {
            let number = old[id.index()].as_ref().map(|old| old.inode);
            let fits = |nr: &InodeNr| *nr >= first && nr.get() <= most && !taken[usize_of(nr.get())];
            match number.filter(fits) {
                Some(nr) => {
                    taken[usize_of(nr.get())] = true;
                    numbers[id.index()] = nr;
                }
                None => open.push(id),
            }
        }
        let is_free = |nr: &u32| !taken.get(usize_of(*nr)).copied().unwrap_or(false);
        let free = (first.get()..=u32::MAX).filter(is_free).map(InodeNr::new);
        for (id, nr) in open.into_iter().zip(free) {
            numbers[id.index()] = nr;
        }
        let mut nodes: Vec<_> = tree.ids().filter(own).map(|id| (numbers[id.index()], id)).collect();
        nodes.sort_unstable();
        let runs = runs(nodes.iter().map(|(nr, _)| u64::from(nr.get()) - 1));
        Self { numbers, nodes, runs, old }
    }

    /// The number of a node that has one of its own.
    pub(crate) fn inode_of(&self, id: NodeId) -> InodeNr {
        self.numbers[id.index()]
    }

    /// The node that has a number.
    pub(crate) fn node_of(&self, nr: InodeNr) -> Option<NodeId> {
        let at = self.nodes.binary_search_by_key(&nr, |(nr, _)| *nr).ok()?;
        Some(self.nodes[at].1)
    }

    /// The runs of numbers, less one, that are in use.
    pub(crate) fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// How many inodes a volume must have.
    pub(crate) fn inodes_needed(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// What the old image has at the node's path.
    pub(crate) fn old(&self, id: NodeId) -> Option<&OldInode> {
        self.old[id.index()].as_ref()
    }
}

/// Ascending numbers as runs.
fn runs(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for nr in numbers {
        match runs.last_mut() {
            Some(run) if run.end == nr => run.end += 1,
            _ => runs.push(nr..nr + 1),
        }
    }
    runs
}

/// The parts of `runs` inside `bounds`, less its start.
pub(super) fn clipped(runs: &[Range<u64>], bounds: Range<u64>) -> impl Iterator<Item = Range<u32>> + '_ {
    let Range { start, end } = bounds;
    let first = runs.partition_point(|run| run.end <= start);
    let clip = move |run: &Range<u64>| low32(run.start.max(start) - start)..low32(run.end.min(end) - start);
    runs[first..].iter().take_while(move |run| run.start < end).map(clip)
}
