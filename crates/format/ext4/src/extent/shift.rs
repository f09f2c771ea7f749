//! Moves mappings to other file blocks: closes a gap ([`shift_down`]), or opens one
//! ([`shift_up`]), a number of leaves at a time.
//!
//! Only keys change: an extent keeps its place on the volume and its length, so no data moves and no space
//! is needed, but for the one extent that a gap opens inside of, which is split first. Leaves are taken from
//! the gap's side (down: the first one first; up: the last one first), so between two steps the gap is merely
//! somewhere further on: extents are in order, none overlap, and the tree is consistent, whatever becomes of
//! the rest.
//!
//! A step changes its leaves and the nodes above them. Where the two sides of a closed gap continue each
//! other in one leaf, they are joined.

use super::edit::edit;
use super::insert::split_at;
use super::lookup::lookup;
use super::node::Node;
use super::path::Path;
use super::shrink::shrink_root;
use super::{Extent, FILE_END, Mapping, TreeGeometry, TreeWrite};
use crate::error::Corrupt;
use hectare_units::{LogicalBlock, low32};
use std::ops::Range;

/// Moves what is mapped from file block `from` on down by `by` blocks, which must be unmapped below `from`,
/// in at most `leaves` leaves (at least one). `None` when nothing is left to move, else the `from` to call
/// again with.
///
/// # Errors
/// When a node can't be read or is corrupt, or (before anything is changed) when there is no such gap. After
/// an error of the store in the middle of changing the tree may be in between.
pub fn shift_down<T: TreeWrite>(
    tree: &mut T,
    from: LogicalBlock,
    by: u32,
    leaves: usize,
) -> Result<Option<LogicalBlock>, T::Error> {
    let geometry = tree.geometry();
    let Some(target) = from.get().checked_sub(by).map(LogicalBlock::new) else {
        return Err(geometry.corrupt(from, "it can't move to before the file's beginning").into());
    };
    let is_gap = match lookup(tree, target)? {
        Mapping::Mapped(_) => by == 0,
        Mapping::Hole { next } => next.is_none_or(|next| next >= from),
    };
    if !is_gap {
        return Err(geometry.corrupt(target, "what is to move down has no gap to move into").into());
    }
    let mut next = Some(from);
    for _ in 0..leaves.max(1) {
        let Some(at) = next else { break };
        next = leaf_down(tree, &geometry, at, by)?;
    }
    join(tree, &geometry, target)?;
    Ok(next)
}

/// Moves what one leaf maps from `from` on; where the next leaf begins.
fn leaf_down<T: TreeWrite>(
    tree: &mut T,
    geometry: &TreeGeometry,
    from: LogicalBlock,
    by: u32,
) -> Result<Option<LogicalBlock>, T::Error> {
    let (path, (moved, next)) = Path::descend(tree, geometry, from, |leaf, _| {
        Ok((first_from(leaf, from)..leaf.len(), leaf.start_of(leaf.len())))
    })?;
    change(tree, geometry, &path, moved, |key| key.checked_sub(by))?;
    Ok(next)
}

/// Moves what is mapped from file block `from` to before `to` up by `by` blocks, the last of at most `leaves`
/// leaves (at least one) first; from `to` on (2^32 at first) `by` blocks must be unmapped. An extent
/// around `from` is split. `None` when nothing is left to move, else the `to` to call again with.
///
/// # Errors
/// When a node can't be read or is corrupt; when (before anything is changed) the last extent would leave the
/// file's blocks, or a node for the split can't be had. After an error of the store in the middle of changing
/// the tree may be in between.
pub fn shift_up<T: TreeWrite>(
    tree: &mut T,
    from: LogicalBlock,
    to: u64,
    by: u32,
    leaves: usize,
) -> Result<Option<u64>, T::Error> {
    let geometry = tree.geometry();
    let mut to = to.min(FILE_END);
    if to <= u64::from(from.get()) {
        return Ok(None);
    }
    check_room(tree, &geometry, to, by)?;
    split_at(tree, &geometry, from.get().into())?;
    for _ in 0..leaves.max(1) {
        match leaf_up(tree, &geometry, from, to, by)? {
            Some(next) => to = next,
            None => return Ok(None),
        }
    }
    Ok(Some(to))
}

/// Refuses to move what ends before `to` over what comes next, or over the end.
fn check_room<T: TreeWrite>(tree: &T, geometry: &TreeGeometry, to: u64, by: u32) -> Result<(), T::Error> {
    let last = LogicalBlock::new(low32(to - 1));
    let (_, fits) = Path::descend(tree, geometry, last, |leaf, count| {
        let Some(i) = count.checked_sub(1) else { return Ok(true) };
        let bound = leaf.start_of(count).map_or(FILE_END - 1, |next| next.get().into());
        Ok(leaf.extent(i)?.end().saturating_add(by.into()) <= bound)
    })?;
    if fits {
        return Ok(());
    }
    Err(geometry.corrupt(last, "what is to move up has no room to move into").into())
}

/// Moves what the leaf before `to` maps from `from` on; where the leaf began, if more is to be moved before
/// it.
fn leaf_up<T: TreeWrite>(
    tree: &mut T,
    geometry: &TreeGeometry,
    from: LogicalBlock,
    to: u64,
    by: u32,
) -> Result<Option<u64>, T::Error> {
    let last = LogicalBlock::new(low32(to - 1));
    let (path, (moved, first)) = Path::descend(tree, geometry, last, |leaf, count| {
        Ok((first_from(leaf, from).min(count)..count, leaf.first()))
    })?;
    let more = moved.start == 0 && !path.is_leftmost() && first > from;
    change(tree, geometry, &path, moved, |key| key.checked_add(by))?;
    Ok(more.then(|| first.get().into()))
}

/// The first entry of a leaf with a key of at least `from`.
fn first_from(leaf: &Node<'_>, from: LogicalBlock) -> usize {
    from.get().checked_sub(1).map_or(0, |before| leaf.count_to(LogicalBlock::new(before)))
}

/// Changes the keys of entries of the path's leaf, and updates the nodes above.
fn change<T: TreeWrite>(
    tree: &mut T,
    geometry: &TreeGeometry,
    path: &Path,
    moved: Range<usize>,
    key: impl Fn(u32) -> Option<u32>,
) -> Result<(), T::Error> {
    if moved.is_empty() {
        return Ok(());
    }
    let moves_front = moved.start == 0;
    let first = edit(tree, path.leaf().seat, geometry, |node| {
        node.change_keys(moved, key)?;
        Ok(node.first_key())
    })?;
    match first {
        Some(first) if moves_front => path.fix_keys(tree, geometry, path.leaf_level(), first),
        _ => Ok(()),
    }
}

/// Joins the extent that begins at `at` with the one before it in its leaf, if they continue each other.
fn join<T: TreeWrite>(tree: &mut T, geometry: &TreeGeometry, at: LogicalBlock) -> Result<(), T::Error> {
    let (path, found) = Path::descend(tree, geometry, at, pair_at)?;
    let Some((i, joined)) = found else { return Ok(()) };
    edit(tree, path.leaf().seat, geometry, |node| {
        node.set(i, joined.encode())?;
        node.remove(i + 1..i + 2)
    })?;
    shrink_root(tree, geometry)
}

/// The last of `count` entries and the one before it as one extent, with the position of the first.
fn pair_at(leaf: &Node<'_>, count: usize) -> Result<Option<(usize, Extent)>, Corrupt> {
    let Some(i) = count.checked_sub(2) else { return Ok(None) };
    let (before, after) = (leaf.extent(i)?, leaf.extent(i + 1)?);
    Ok(before.joins(&after).then(|| (i, before.joined(after))))
}
