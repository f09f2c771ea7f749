//! What came out, and what is doubtful about it: as data, for a report.

use crate::{NodeId, Salvage};
use serde::Serialize;
use std::collections::BTreeMap;

/// All findings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// What is wrong with the volume as a whole.
    pub volume: Vec<String>,
    /// Files, directories and all else with a name in the tree, removed ones included.
    pub nodes: u64,
    /// Those about which nothing is doubtful.
    pub whole: u64,
    /// The others, in the order of their paths.
    pub doubtful: Vec<Doubtful>,
    /// Removed files, the most promising first.
    pub deleted: Vec<Deleted>,
    /// Parts of the device that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// A node with doubts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Doubtful {
    /// Its path in the tree; other characters than UTF-8 are replaced.
    pub path: String,
    /// Its inode's number, if it has one.
    pub inode: Option<u32>,
    /// What is doubtful, and why.
    pub doubts: Vec<String>,
}

/// A removed file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Deleted {
    /// Its path in the tree.
    pub path: String,
    /// The number its inode had, if there was one.
    pub inode: Option<u32>,
    /// Bytes of content.
    pub size: u64,
    /// When its content was last changed, in seconds since 1970.
    pub modified: i64,
    /// How much of its space no file has now, in percent.
    pub free_percent: u64,
    /// What is doubtful beside that.
    pub doubts: Vec<String>,
}

/// A range of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Unreadable {
    /// Its first byte.
    pub at: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Salvage {
    /// What was found; doubts about content only of what has been read.
    #[must_use]
    pub fn report(&self) -> Report {
        let found = self.found.lock();
        let path = |at: usize| String::from_utf8_lossy(&self.tree.path(at)).into_owned();
        let mut doubts: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let deleted: Vec<_> = self.deleted.iter().map(|(at, deleted)| (*at, deleted.clone())).collect();
        for (at, node) in self.tree.nodes.iter().enumerate() {
            let is_placed = self.tree.places.contains_key(&at) || at == self.tree.root;
            let more = found.get(&at).cloned().unwrap_or_default();
            let all: Vec<String> = node.doubts.iter().cloned().chain(more).collect();
            if is_placed && !node.is_removed && !all.is_empty() {
                doubts.insert(at, all);
            }
        }
        let mut doubtful: Vec<Doubtful> = doubts
            .iter()
            .map(|(at, all)| Doubtful {
                path: path(*at),
                inode: self.tree.nodes[*at].nr.map(hectare_units::InodeNr::get),
                doubts: all.clone(),
            })
            .collect();
        doubtful.sort();
        let of_removed = |at: usize, deleted: Deleted| {
            let more = found.get(&at).cloned().unwrap_or_default();
            let doubts = self.tree.nodes[at].doubts.iter().cloned().chain(more).collect();
            Deleted { path: path(at), doubts, ..deleted }
        };
        let nodes = hectare_units::u64_of(self.tree.places.len()) + 1;
        Report {
            volume: self.volume.notes.clone(),
            nodes,
            whole: nodes.saturating_sub(hectare_units::u64_of(doubtful.len())),
            doubtful,
            deleted: deleted.into_iter().map(|(at, deleted)| of_removed(at, deleted)).collect(),
            unreadable: self
                .volume
                .source
                .unreadable()
                .into_iter()
                .map(|range| Unreadable { at: range.start, len: range.end - range.start })
                .collect(),
        }
    }

    /// Whether nothing is known to be doubtful about a node.
    #[must_use]
    pub fn is_whole(&self, node: NodeId) -> bool {
        self.tree.nodes[node.0].doubts.is_empty() && !self.found.lock().contains_key(&node.0)
    }
}
