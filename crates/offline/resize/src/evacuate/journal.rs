//! Moves the journal, after everything else and in transactions of its own.
//!
//! The kernel learns where the journal lies before it replays it, and goes on writing there. So the journal's
//! inode must not be in a transaction that it replays, and what it leaves must stay marked until the inode
//! names the new place.

use super::Evacuation;
use crate::error::Result;
use crate::metadata;
use crate::volume::Volume;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::Inode;
use hectare_units::{BlockNr, InodeNr};
use rangemap::RangeSet;
use std::ops::Range;

/// The journal in its new place.
pub(crate) struct Relocated {
    /// Its inode, which is not written yet.
    pub(crate) inode: Inode,
    /// The clusters that it leaves, which are marked still.
    pub(crate) left: Vec<Range<u64>>,
    /// Blocks that were moved.
    pub(crate) blocks: u64,
}

/// Takes new places for what the journal has in `leaving`, and copies that. The clusters `barred` are not
/// taken.
pub(crate) fn relocate_journal(
    volume: &mut Volume,
    nr: InodeNr,
    old: &Inode,
    leaving: RangeSet<u64>,
    barred: RangeSet<u64>,
) -> Result<Relocated> {
    let mut evacuation = Evacuation::new(volume, leaving, barred)?;
    let (extents, nodes) = evacuation.map(nr, old)?;
    let (used, nodes_at) = evacuation.clusters_of(&extents, &nodes);
    let mut left = RangeSet::new();
    for range in used.iter() {
        for part in evacuation.leaving.overlapping(range) {
            left.insert(part.start.max(range.start)..part.end.min(range.end));
        }
    }
    let mut inode = old.clone();
    let new = evacuation.relocate(nr, &inode, &extents)?;
    // A node that stayed in its place would change before the inode does.
    for range in nodes_at.iter() {
        left.insert(range.clone());
        evacuation.leaving.insert(range.clone());
    }
    evacuation.rebuild(nr, nr, &mut inode, &new, nodes)?;
    let blocks = evacuation.moved.blocks;
    let left: Vec<_> = left.into_iter().collect();
    for range in &left {
        volume.mark(range.clone(), true)?;
    }
    Ok(Relocated { inode, left, blocks })
}

/// Whether the journal has something in these clusters.
pub(crate) fn is_touched(
    volume: &mut Volume,
    nr: InodeNr,
    inode: &Inode,
    clusters: &RangeSet<u64>,
) -> Result<bool> {
    let evacuation = Evacuation::new(volume, RangeSet::new(), RangeSet::new())?;
    let (extents, nodes) = evacuation.map(nr, inode)?;
    let (used, nodes) = evacuation.clusters_of(&extents, &nodes);
    let touches = |range: &Range<u64>| clusters.overlaps(range);
    Ok(used.iter().any(touches) || nodes.iter().any(touches))
}

impl Evacuation<'_> {
    /// The clusters of a map's extents, and of its nodes.
    fn clusters_of(&self, extents: &[Extent], nodes: &[BlockNr]) -> (RangeSet<u64>, RangeSet<u64>) {
        let geometry = self.volume.geometry();
        let clusters = |first: BlockNr, len: u32| {
            metadata::clusters(geometry, &(first.get()..first.get() + u64::from(len)))
        };
        let extents = extents.iter().map(|extent| clusters(extent.physical, extent.len)).collect();
        (extents, nodes.iter().map(|node| clusters(*node, 1)).collect())
    }
}

/// The journal's inode, if the volume has one inside that does not move with the others. One in a folder, as
/// there once were, is moved like any file.
pub(crate) fn journal(volume: &Volume) -> Option<InodeNr> {
    volume.sb.journal_inode().filter(|nr| *nr < volume.sb.first_inode())
}
