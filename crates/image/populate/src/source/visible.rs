//! Which entries of a tree under construction can be seen: those that the finished tree would have.
//!
//! An opaque directory of any layer hides what layers below it put into the directory, and into every
//! directory below. So each lookup is in a [`Dir`], which carries the greatest floor on its way from the root:
//! an entry of a layer below that floor is absent, and what takes its name is a new node. `finish` and
//! `settle` ask the same question of the same type.

use crate::tree::NodeId;
use std::collections::HashMap;

/// The node of a removed entry.
pub(crate) const GONE: u32 = u32::MAX;

/// A directory entry of the tree under construction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawEntry {
    pub(crate) parent: u32,
    pub(crate) name: u32,
    pub(crate) node: u32,
    pub(crate) layer: u16,
}

/// A directory on a way from the root, and the first layer whose entries can be seen in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dir {
    pub(crate) node: NodeId,
    floor: u16,
}

impl Dir {
    /// A directory in one whose first layer to be seen is `floor`, with its own floors.
    pub(crate) fn new(node: NodeId, floor: u16, floors: &HashMap<NodeId, u16>) -> Self {
        Self { node, floor: floors.get(&node).map_or(floor, |own| floor.max(*own)) }
    }

    /// A directory that is an entry of this one.
    pub(crate) fn below(self, node: NodeId, floors: &HashMap<NodeId, u16>) -> Self {
        Self::new(node, self.floor, floors)
    }

    /// Whether an entry of this directory can be seen.
    pub(crate) fn shows(self, entry: &RawEntry) -> bool {
        entry.node != GONE && entry.layer >= self.floor
    }
}
