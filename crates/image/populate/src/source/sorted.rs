//! The order of entries: those of one directory together, sorted by name.

use super::visible::RawEntry;
use crate::tree::Arena;
use hectare_units::usize_of;
use std::cmp::Ordering;

/// By directory, then by name; where a name comes twice, by node.
pub(super) fn compare(arena: &Arena, a: &RawEntry, b: &RawEntry) -> Ordering {
    let key = |entry: &RawEntry| (entry.parent, arena.name(entry.name), entry.node);
    key(a).cmp(&key(b))
}

/// Where the entries of each of so many nodes start among sorted ones, and where the last one's end.
pub(super) fn starts<'e>(entries: impl Iterator<Item = &'e RawEntry>, nodes: usize) -> Vec<u32> {
    // Entries are counted in 32 bits when they are added.
    let mut starts = vec![0u32; nodes + 1];
    for entry in entries {
        starts[usize_of(entry.parent) + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    starts
}
