//! The blocks that content keeps from an old image, set apart before anything else gets space.
//!
//! Invariants: what is reserved was free in the new volume, and is reserved once.

use super::load::Load;
use super::ranges::content_ranges;
use super::volume::Volume;
use crate::tree::NodeId;
use hectare_ext4::extent::Extent;
use hectare_units::{BlockNr, Blocks, LogicalBlock, low32};
use rangemap::RangeSet;
use std::ops::Range;

/// The reservation of one node.
#[derive(Clone, Debug, Default)]
struct Held {
    extents: Vec<Extent>,
    map_nodes: Vec<BlockNr>,
    attribute_block: Option<BlockNr>,
}

/// What every node keeps, and what is free beside it.
pub(super) struct Reserved {
    nodes: Vec<Held>,
    rest: RangeSet<u64>,
    /// Blocks set apart.
    total: u64,
    /// What was taken of them, in any order.
    taken: Vec<Range<u64>>,
}

/// A part of a file: its blocks, and where they lie if they keep their place.
pub(super) type Piece = (Range<u64>, Option<BlockNr>);

impl Reserved {
    /// Sets apart what the tree keeps; `None` if there is no old image.
    pub(super) fn new(
        load: &Load<'_>,
        volume: Volume<'_>,
        free: &mut dyn Iterator<Item = Range<u64>>,
    ) -> Option<Self> {
        let kept = load.kept.as_ref()?;
        let mut reserved = Self {
            nodes: vec![Held::default(); load.tree.len()],
            rest: free.filter(|range| !range.is_empty()).collect(),
            total: 0,
            taken: Vec::new(),
        };
        let own = |id: &NodeId| Some(*id) != load.stand_in && load.tree.first_equal(*id).is_none();
        for id in load.tree.ids().filter(own) {
            let Some(old) = kept.old(id) else { continue };
            let mut held = Held::default();
            content_ranges(load, volume.sb.geometry(), id, &mut |range| {
                for extent in old.extents.iter().filter(|extent| !extent.unwritten) {
                    reserved.keep(&range, extent, &mut held.extents);
                }
            });
            held.map_nodes = old.map_nodes.iter().copied().filter(|nr| reserved.one(*nr)).collect();
            held.map_nodes.reverse(); // taken from the end
            held.attribute_block = old.attribute_block.filter(|nr| reserved.one(*nr));
            reserved.nodes[id.index()] = held;
        }
        Some(reserved)
    }

    /// Sets apart the part of an old extent that has blocks of `range` and is free.
    fn keep(&mut self, range: &Range<u64>, old: &Extent, into: &mut Vec<Extent>) {
        let first = u64::from(old.logical.get());
        let (start, end) = (range.start.max(first), range.end.min(first + u64::from(old.len)));
        if start >= end {
            return;
        }
        let places = old.physical.get() + (start - first)..old.physical.get() + (end - first);
        let clip = |free: &Range<u64>| free.start.max(places.start)..free.end.min(places.end);
        let free: Vec<_> = self.rest.overlapping(&places).map(clip).collect();
        for part in free {
            into.push(Extent {
                logical: LogicalBlock::new(low32(start + (part.start - places.start))),
                len: low32(part.end - part.start),
                physical: BlockNr::new(part.start),
                unwritten: false,
            });
            self.total += part.end - part.start;
            self.rest.remove(part);
        }
    }

    /// Sets apart one block, if it is free.
    fn one(&mut self, nr: BlockNr) -> bool {
        let is_free = self.rest.contains(&nr.get());
        if is_free {
            self.rest.remove(nr.get()..nr.get() + 1);
            self.total += 1;
        }
        is_free
    }

    /// The free ranges beside what was set apart, in order.
    pub(super) fn rest(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        self.rest.iter().cloned().collect::<Vec<_>>().into_iter()
    }

    /// The parts of a node's blocks that keep their place, and those between.
    pub(super) fn pieces(&self, id: NodeId, mut blocks: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for extent in &self.nodes[id.index()].extents {
            let first = u64::from(extent.logical.get());
            let (start, end) = (blocks.start.max(first), blocks.end.min(extent.end()));
            if start >= end {
                continue;
            }
            if blocks.start < start {
                pieces.push((blocks.start..start, None));
            }
            pieces.push((start..end, Some(extent.physical + Blocks::new(start - first))));
            blocks.start = end;
        }
        if !blocks.is_empty() {
            pieces.push((blocks, None));
        }
        pieces
    }

    /// Notes that blocks set apart are used.
    pub(super) fn take(&mut self, place: BlockNr, len: u64) {
        self.taken.push(place.get()..place.get() + len);
    }

    /// A block for the node's map.
    pub(super) fn map_node(&mut self, id: NodeId) -> Option<BlockNr> {
        let nr = self.nodes[id.index()].map_nodes.pop()?;
        self.take(nr, 1);
        Some(nr)
    }

    /// The node's attribute block.
    pub(super) fn attribute_block(&mut self, id: NodeId) -> Option<BlockNr> {
        let nr = self.nodes[id.index()].attribute_block.take()?;
        self.take(nr, 1);
        Some(nr)
    }

    /// Blocks used of those set apart.
    pub(super) fn taken(&self) -> Blocks {
        Blocks::new(self.taken.iter().map(|range| range.end - range.start).sum())
    }

    /// `used` with what was taken here, in order, and how many blocks were set apart and not used.
    pub(super) fn finish(self, used: Vec<Range<u64>>) -> (Vec<Range<u64>>, Blocks) {
        let unused = Blocks::new(self.total) - self.taken();
        let all: RangeSet<u64> = used.into_iter().chain(self.taken).collect();
        (all.into_iter().collect(), unused)
    }
}
