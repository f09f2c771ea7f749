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
    /// What was taken of them, in any order, and how many blocks that is.
    taken: Vec<Range<u64>>,
    taken_blocks: u64,
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
            taken_blocks: 0,
        };
        let own = |id: &NodeId| Some(*id) != load.stand_in && load.tree.first_equal(*id).is_none();
        for id in load.tree.ids().filter(own) {
            let Some(old) = kept.old(id) else { continue };
            let mut held = Held::default();
            content_ranges(load, volume.sb.geometry(), id, &mut |range| {
                for extent in touching(&old.extents, &range, Extent::end).filter(|extent| !extent.unwritten) {
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
        for extent in touching(&self.nodes[id.index()].extents, &blocks, Extent::end) {
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
        self.taken_blocks += len;
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
        Blocks::new(self.taken_blocks)
    }

    /// `used` with what was taken here, in order, and how many blocks were set apart and not used.
    pub(super) fn finish(self, used: Vec<Range<u64>>) -> (Vec<Range<u64>>, Blocks) {
        let unused = Blocks::new(self.total) - self.taken();
        let all: RangeSet<u64> = used.into_iter().chain(self.taken).collect();
        (all.into_iter().collect(), unused)
    }
}

/// The extents, in order, that have some of these blocks; `end` gives the block behind one. A sparse file has a
/// million of ranges and of extents, so those before the range are not looked at one by one.
fn touching<'e, F: Fn(&Extent) -> u64>(
    extents: &'e [Extent],
    blocks: &Range<u64>,
    end: F,
) -> impl Iterator<Item = &'e Extent> + use<'e, F> {
    let (first, behind) = (extents.partition_point(|extent| end(extent) <= blocks.start), blocks.end);
    extents[first..].iter().take_while(move |extent| u64::from(extent.logical.get()) < behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Every second block, each an extent.
    fn extents(count: u32) -> Vec<Extent> {
        let one = |n: u32| Extent {
            logical: LogicalBlock::new(2 * n),
            len: 1,
            physical: BlockNr::new(u64::from(5 * n)),
            unwritten: false,
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn extents_of_a_range_are_those_that_share_blocks_with_it() {
        let extents = extents(10);
        let of = |range: Range<u64>| -> Vec<u32> {
            touching(&extents, &range, Extent::end).map(|extent| extent.logical.get()).collect()
        };
        assert_eq!(of(0..5), [0, 2, 4]);
        assert_eq!(of(3..7), [4, 6]);
        assert_eq!((of(3..4), of(18..30), of(19..30)), (vec![], vec![18], vec![]));
    }

    #[test]
    fn regression_ranges_and_extents_are_not_compared_each_with_each() {
        let looks = |count: u32| {
            let (extents, looks) = (extents(count), Cell::new(0));
            for n in 0..u64::from(count) {
                let end = |extent: &Extent| {
                    looks.set(looks.get() + 1);
                    extent.end()
                };
                assert_eq!(touching(&extents, &(2 * n..2 * n + 1), end).count(), 1);
            }
            looks.get()
        };
        assert!(looks(16_000) < 24 * looks(1_000));
    }

    #[test]
    fn regression_what_is_taken_is_summed_as_it_is_taken() {
        let mut reserved = Reserved {
            nodes: vec![Held { map_nodes: vec![BlockNr::new(40)], ..Held::default() }],
            rest: RangeSet::new(),
            total: 12,
            taken: Vec::new(),
            taken_blocks: 0,
        };
        reserved.take(BlockNr::new(7), 3);
        reserved.take(BlockNr::new(20), 5);
        assert_eq!(reserved.map_node(NodeId::ROOT), Some(BlockNr::new(40)));
        assert_eq!(reserved.taken(), Blocks::new(9));
        assert_eq!(
            reserved.finish(std::iter::once(10..12).collect()),
            (vec![7..12, 20..25, 40..41], Blocks::new(3))
        );
    }
}
