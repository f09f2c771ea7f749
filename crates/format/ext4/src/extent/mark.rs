//! Changes the state of mapped blocks: written to unwritten or back.
//!
//! The common case, a file written in order over preallocated space, moves the border between two extents and
//! changes neither their number nor the tree's shape. Otherwise the extent is split at the ends of the range,
//! which may need a node and leaves the mapping as it was, and then the middle part changes state, which
//! needs nothing.

use super::edit::edit;
use super::insert::split_at;
use super::lookup::lookup;
use super::node::Node;
use super::path::Path;
use super::raw::RawEntry;
use super::shrink::shrink_root;
use super::{Extent, FILE_END, Mapping, TreeGeometry, TreeWrite};
use crate::error::Corrupt;
use hectare_units::{LogicalBlock, low32};
use std::ops::Range;

/// Makes what is mapped from `from` to before `to_exclusive` (up to 2^32) `unwritten`, or written. Holes stay
/// holes. Joins the changed extents with their neighbours in the leaf.
///
/// # Errors
/// When a node can't be read, is corrupt or can't be had: the tree is then sound, and a first part of the
/// range may have changed. After an error of the store in the middle of changing the tree may be in between.
pub fn mark<T: TreeWrite>(
    tree: &mut T,
    from: LogicalBlock,
    to_exclusive: u64,
    unwritten: bool,
) -> Result<(), T::Error> {
    let geometry = tree.geometry();
    let to = to_exclusive.min(FILE_END);
    let mut at = u64::from(from.get());
    while at < to {
        match lookup(tree, LogicalBlock::new(low32(at)))? {
            Mapping::Hole { next: Some(next) } if u64::from(next.get()) > at => at = u64::from(next.get()),
            Mapping::Hole { .. } => break,
            Mapping::Mapped(extent) if extent.unwritten == unwritten => at = extent.end(),
            Mapping::Mapped(extent) => {
                let end = to.min(extent.end()).min(at + u64::from(Extent::len_max(unwritten)));
                mark_piece(tree, &geometry, at, end, unwritten)?;
                at = end;
            }
        }
    }
    shrink_root(tree, &geometry)
}

/// Changes the state of `from` to before `to`, which lie in one extent of the other state.
fn mark_piece<T: TreeWrite>(
    tree: &mut T,
    geometry: &TreeGeometry,
    from: u64,
    to: u64,
    unwritten: bool,
) -> Result<(), T::Error> {
    let plan = |tree: &T| {
        Path::descend(tree, geometry, LogicalBlock::new(low32(from)), |leaf, count| {
            Change::plan(leaf, count, from, to, unwritten)
        })
    };
    let (mut path, mut change) = plan(tree)?;
    if change.is_none() {
        split_at(tree, geometry, to)?;
        split_at(tree, geometry, from)?;
        (path, change) = plan(tree)?;
    }
    let change =
        change.ok_or_else(|| geometry.corrupt(LogicalBlock::new(low32(from)), "an extent can't be split"))?;
    edit(tree, path.leaf().seat, geometry, |node| {
        for (i, slot) in change.set.iter().flatten() {
            node.set(*i, *slot)?;
        }
        node.remove(change.gone.clone())
    })
}

/// A change of one leaf that needs no more room in it. The first key never changes: what grows downwards has
/// an entry before it.
struct Change {
    set: [Option<(usize, RawEntry)>; 2],
    gone: Range<usize>,
}

impl Change {
    /// `None` if the extent has to be split first.
    fn plan(
        leaf: &Node<'_>,
        count: usize,
        from: u64,
        to: u64,
        unwritten: bool,
    ) -> Result<Option<Self>, Corrupt> {
        let Some(i) = count.checked_sub(1) else { return Ok(None) };
        let extent = leaf.extent(i)?;
        let Some(piece) = extent.after(from).and_then(|rest| rest.before(to)) else { return Ok(None) };
        let piece = Extent { unwritten, ..piece };
        let neighbour =
            |at: Option<usize>| at.filter(|at| *at < leaf.len()).map(|at| leaf.extent(at)).transpose();
        let before = neighbour(i.checked_sub(1))?.filter(|before| before.joins(&piece));
        let after = neighbour(i.checked_add(1))?.filter(|after| piece.joins(after));
        Ok(match (extent.before(from), extent.after(to)) {
            (None, None) => Some(Self::whole(i, piece, before, after)),
            (None, Some(rest)) => before.map(|before| Self {
                set: [Some((i - 1, before.joined(piece).encode())), Some((i, rest.encode()))],
                gone: 0..0,
            }),
            (Some(rest), None) => after.map(|after| Self {
                set: [Some((i, rest.encode())), Some((i + 1, piece.joined(after).encode()))],
                gone: 0..0,
            }),
            (Some(_), Some(_)) => None,
        })
    }

    /// The change of an extent as a whole, at position `i`.
    fn whole(i: usize, piece: Extent, before: Option<Extent>, after: Option<Extent>) -> Self {
        let (at, grown) = before.map_or((i, piece), |before| (i - 1, before.joined(piece)));
        match after {
            Some(after) if grown.joins(&after) => {
                Self { set: [Some((at, grown.joined(after).encode())), None], gone: at + 1..i + 2 }
            }
            _ => Self { set: [Some((at, grown.encode())), None], gone: at + 1..i + 1 },
        }
    }
}
