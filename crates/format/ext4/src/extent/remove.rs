//! Unmaps a range, in bounded steps from its end to its beginning.
//!
//! The order is that of a truncate: whatever has been removed so far, the rest is a file that is a little
//! shorter. The only thing that can need space is a hole strictly inside one extent (one entry becomes two),
//! and that split comes first; after it removal only trims and frees.

use super::edit::{Seat, edit};
use super::insert::split_at;
use super::lookup::lookup;
use super::node::Node;
use super::path::Path;
use super::raw::RawEntry;
use super::shrink::shrink_root;
use super::{Extent, FILE_END, Mapping, TreeGeometry, TreeWrite};
use crate::error::Corrupt;
use hectare_units::{BlockNr, LogicalBlock, low32};
use std::ops::Range;

/// Whether a bounded operation has reached its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    /// Nothing remains in the range.
    Done,
    /// The limit was reached first; call again with the same range.
    More,
}

/// Unmaps the file blocks from `from` to before `to_exclusive` (up to 2^32), but at most `limit` extents of
/// them (at least one), starting at the end. `freed` is called with each run of blocks no longer mapped: its
/// volume block, its length, its file block. Nodes that become empty are freed, and the root takes its only
/// child's entries back when they fit.
///
/// One call changes at most `limit` leaves and the nodes above them.
///
/// # Errors
/// When a node can't be read, is corrupt, or (for a hole inside one extent, before anything is changed) can't
/// be had. After any other error the tree may be in between.
pub fn remove<T: TreeWrite>(
    tree: &mut T,
    from: LogicalBlock,
    to_exclusive: u64,
    limit: usize,
    freed: &mut dyn FnMut(BlockNr, u32, LogicalBlock),
) -> Result<Progress, T::Error> {
    let geometry = tree.geometry();
    let first = u64::from(from.get());
    let mut to = to_exclusive.min(FILE_END);
    if to <= first {
        return Ok(Progress::Done);
    }
    if let Mapping::Mapped(extent) = lookup(tree, from)?
        && extent.logical < from
        && extent.end() > to
    {
        split_at(tree, &geometry, to)?;
    }
    let mut left = limit.max(1);
    while to > first && left > 0 {
        let last = LogicalBlock::new(low32(to - 1));
        let (path, cut) =
            Path::descend(tree, &geometry, last, |leaf, count| Cut::plan(leaf, count, first, to, left))?;
        left = left.saturating_sub(cut.freed.len().max(1));
        to = if path.is_leftmost() && cut.reaches_front { 0 } else { cut.reached };
        cut.apply(tree, &geometry, &path)?;
        for run in &cut.freed {
            freed(run.physical, run.len, run.logical);
        }
    }
    shrink_root(tree, &geometry)?;
    Ok(if to > first { Progress::More } else { Progress::Done })
}

/// What is to be done to one leaf.
struct Cut {
    /// The entries that go.
    gone: Range<usize>,
    /// The entry that loses its end, and the one that loses its beginning.
    trimmed: [Option<(usize, RawEntry)>; 2],
    /// What is no longer mapped, last first.
    freed: Vec<Extent>,
    /// Nothing is mapped in the range from here on.
    reached: u64,
    /// Whether every entry of the leaf down to the first has been processed.
    reaches_front: bool,
    /// Whether the first key changes.
    moves_front: bool,
    /// Whether the leaf keeps no entry.
    empties: bool,
}

impl Cut {
    /// Plans for a leaf of which the first `count` entries begin before `to`.
    fn plan(leaf: &Node<'_>, count: usize, from: u64, to: u64, limit: usize) -> Result<Self, Corrupt> {
        let mut cut = Self {
            gone: count..count,
            trimmed: [None; 2],
            freed: Vec::new(),
            reached: to,
            reaches_front: false,
            moves_front: false,
            empties: false,
        };
        let mut i = count;
        while cut.freed.len() < limit && cut.reached > from {
            let Some(below) = i.checked_sub(1) else {
                cut.reached = u64::from(leaf.first().get());
                cut.reaches_front = true;
                break;
            };
            i = below;
            let extent = leaf.extent(i)?;
            if extent.end() <= from {
                cut.reached = from;
                break;
            }
            cut.take(leaf, i, extent, from, to)?;
        }
        cut.empties = cut.gone == (0..leaf.len());
        cut.moves_front |= cut.gone.start == 0 && !cut.gone.is_empty();
        Ok(cut)
    }

    /// Takes out of entry `i` what lies in the range.
    fn take(&mut self, leaf: &Node<'_>, i: usize, extent: Extent, from: u64, to: u64) -> Result<(), Corrupt> {
        let (head, tail) = (extent.before(from), extent.after(to));
        let inside = extent.after(from).and_then(|rest| rest.before(to));
        match (head, tail) {
            (Some(_), Some(_)) => return Err(leaf.corrupt("an extent that was split is whole again")),
            (Some(head), None) => self.trimmed[0] = Some((i, head.encode())),
            (None, Some(tail)) => {
                self.trimmed[1] = Some((i, tail.encode()));
                self.gone = i..i;
                self.moves_front = i == 0;
            }
            (None, None) => self.gone.start = i,
        }
        let inside = inside.ok_or_else(|| leaf.corrupt("its extents are out of order"))?;
        self.reached = u64::from(inside.logical.get());
        self.freed.push(inside);
        Ok(())
    }

    fn apply<T: TreeWrite>(
        &self,
        tree: &mut T,
        geometry: &TreeGeometry,
        path: &Path,
    ) -> Result<(), T::Error> {
        let level = path.leaf_level();
        if self.empties && level > 0 {
            return drop_leaf(tree, geometry, path);
        }
        if self.freed.is_empty() {
            return Ok(());
        }
        let first = edit(tree, path.leaf().seat, geometry, |node| {
            for (i, slot) in self.trimmed.iter().flatten() {
                node.set(*i, *slot)?;
            }
            node.remove(self.gone.clone())?;
            Ok(node.first_key())
        })?;
        match first {
            Some(first) if self.moves_front => path.fix_keys(tree, geometry, level, first),
            _ => Ok(()),
        }
    }
}

/// Frees the path's leaf and every node above it that has no other child.
fn drop_leaf<T: TreeWrite>(tree: &mut T, geometry: &TreeGeometry, path: &Path) -> Result<(), T::Error> {
    let mut level = path.leaf_level();
    while let Seat::Block(nr) = path.step(level).seat {
        level -= 1;
        let parent = path.step(level);
        let (left, first) = edit(tree, parent.seat, geometry, |node| {
            node.remove(parent.index..parent.index + 1)?;
            if node.len() == 0 && parent.seat == Seat::Root {
                node.set_depth(0);
            }
            Ok((node.len(), node.first_key()))
        })?;
        tree.free(nr)?;
        if left > 0 {
            return match first {
                Some(first) if parent.index == 0 => path.fix_keys(tree, geometry, level, first),
                _ => Ok(()),
            };
        }
    }
    Ok(())
}
