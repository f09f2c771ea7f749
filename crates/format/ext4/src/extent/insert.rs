//! Maps a hole: joins a neighbour, or takes a slot in the leaf, or makes room by splitting.
//!
//! A full leaf is split where the new entry goes: at its end (a file written in order) the old leaf stays
//! full and the new leaf begins with the new entry; at its front (a file written backwards) the same
//! mirrored; else in the middle. Index nodes split the same way. When all is full up to the root, the root's
//! entries move into a new block first, which has room for many times as many.
//!
//! All the blocks this takes are allocated before the first change; see [`Spares`].

use super::edit::{Seat, create, edit};
use super::node::{Node, index_slot};
use super::path::{LEVELS_MAX, Path, Step};
use super::raw::RawEntry;
use super::shrink::shrink_root;
use super::{DEPTH_MAX, Extent, FILE_END, TreeGeometry, TreeWrite};
use crate::error::Corrupt;
use hectare_units::{BlockNr, LogicalBlock};

/// Maps a range that is a hole now. Joins the extent with its neighbours in the leaf where they continue each
/// other.
///
/// # Errors
/// When the extent breaks a limit of the format or part of the range is mapped; when a node can't be read, is
/// corrupt, or can't be had. Only an error of the store in the middle of changing leaves the tree changed.
pub fn insert<T: TreeWrite>(tree: &mut T, new: Extent) -> Result<(), T::Error> {
    let geometry = tree.geometry();
    check_new(&geometry, &new)?;
    let (path, spot) =
        Path::descend(tree, &geometry, new.logical, |leaf, count| Spot::find(leaf, count, &new, &geometry))?;
    let leaf = *path.leaf();
    let at = spot.at;
    match (spot.before, spot.after) {
        (Some(before), Some(after)) if before.joined(new).joins(&after) => {
            let joined = before.joined(new).joined(after).encode();
            edit(tree, leaf.seat, &geometry, |node| {
                node.set(at - 1, joined)?;
                node.remove(at..at + 1)
            })?;
            shrink_root(tree, &geometry)
        }
        (Some(before), _) => {
            edit(tree, leaf.seat, &geometry, |node| node.set(at - 1, before.joined(new).encode()))
        }
        (None, Some(after)) => {
            edit(tree, leaf.seat, &geometry, |node| node.set(at, new.joined(after).encode()))?;
            if at == 0 { path.fix_keys(tree, &geometry, path.leaf_level(), new.logical) } else { Ok(()) }
        }
        (None, None) => {
            let spares = Spares::allocate(tree, &geometry, &path, new.physical)?;
            place(tree, &geometry, path, spares, at, &new)
        }
    }
}

fn check_new(geometry: &TreeGeometry, new: &Extent) -> Result<(), Corrupt> {
    if new.len == 0 || new.len > Extent::len_max(new.unwritten) || new.end() >= FILE_END {
        return Err(geometry.corrupt(new.logical, "the range to map has an impossible length"));
    }
    if !geometry.holds(new.physical, new.len) {
        return Err(geometry.corrupt(new.logical, "the blocks to map it to lie outside the volume"));
    }
    Ok(())
}

/// Where in a leaf an extent goes, and the neighbours it joins.
struct Spot {
    at: usize,
    before: Option<Extent>,
    after: Option<Extent>,
}

impl Spot {
    fn find(leaf: &Node<'_>, at: usize, new: &Extent, geometry: &TreeGeometry) -> Result<Self, Corrupt> {
        let before = at.checked_sub(1).map(|i| leaf.extent(i)).transpose()?;
        let after = (at < leaf.len()).then(|| leaf.extent(at)).transpose()?;
        let free_from = before.map_or(0, |before| before.end());
        let free_to = after.map_or(leaf.end(), |after| u64::from(after.logical.get()));
        if free_from > u64::from(new.logical.get()) || free_to < new.end() {
            return Err(geometry.corrupt(new.logical, "the range to map is mapped already"));
        }
        Ok(Self {
            at,
            before: before.filter(|before| before.joins(new)),
            after: after.filter(|after| new.joins(after)),
        })
    }
}

/// Splits the extent that covers both `at` and the block before it, so that one begins at `at`; if there is
/// no such extent, does nothing. What is mapped to what stays the same.
pub(super) fn split_at<T: TreeWrite>(tree: &mut T, geometry: &TreeGeometry, at: u64) -> Result<(), T::Error> {
    let Ok(block) = u32::try_from(at) else {
        return Ok(()); // no extent reaches beyond the last block
    };
    let (path, found) = Path::descend(tree, geometry, LogicalBlock::new(block), |leaf, count| {
        count.checked_sub(1).map(|i| Ok((i, leaf.extent(i)?))).transpose()
    })?;
    let Some((i, extent)) = found else { return Ok(()) };
    let (Some(head), Some(tail)) = (extent.before(at), extent.after(at)) else { return Ok(()) };
    let spares = Spares::allocate(tree, geometry, &path, tail.physical)?;
    edit(tree, path.leaf().seat, geometry, |node| node.set(i, head.encode()))?;
    place(tree, geometry, path, spares, i + 1, &tail)
}

/// Blocks for the nodes that one more entry in a leaf takes: a sibling for each full block on the way up, and
/// one for the root's entries if the root is full too. Empty where the leaf has room.
struct Spares {
    blocks: [BlockNr; LEVELS_MAX],
    len: usize,
    grows: bool,
}

impl Spares {
    fn allocate<T: TreeWrite>(
        tree: &mut T,
        geometry: &TreeGeometry,
        path: &Path,
        data: BlockNr,
    ) -> Result<Self, T::Error> {
        let full = path.steps().iter().rev().take_while(|step| step.is_full()).count();
        let grows = full == path.steps().len();
        if grows && path.step(0).depth >= DEPTH_MAX {
            return Err(geometry
                .corrupt(LogicalBlock::ZERO, "it would need more levels than it may have")
                .into());
        }
        let mut spares = Self { blocks: [BlockNr::default(); LEVELS_MAX], len: 0, grows };
        let goal = match path.leaf().seat {
            Seat::Root => data,
            Seat::Block(nr) => nr,
        };
        while spares.len < full {
            match tree.allocate(goal) {
                Ok(nr) => spares.push(nr),
                Err(error) => {
                    while let Some(nr) = spares.pop() {
                        tree.free(nr)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(spares)
    }

    fn push(&mut self, nr: BlockNr) {
        self.blocks[self.len] = nr;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<BlockNr> {
        self.len = self.len.checked_sub(1)?;
        Some(self.blocks[self.len])
    }

    fn take(&mut self, geometry: &TreeGeometry) -> Result<BlockNr, Corrupt> {
        self.pop()
            .ok_or_else(|| geometry.corrupt(LogicalBlock::ZERO, "it changed while it was being changed"))
    }
}

/// Puts an extent at position `at` of the path's leaf, splitting upwards as far as nodes are full.
fn place<T: TreeWrite>(
    tree: &mut T,
    geometry: &TreeGeometry,
    mut path: Path,
    mut spares: Spares,
    at: usize,
    new: &Extent,
) -> Result<(), T::Error> {
    if spares.grows {
        let spare = spares.take(geometry)?;
        grow(tree, geometry, &mut path, spare)?;
    }
    let (mut level, mut at, mut key, mut slot) = (path.leaf_level(), at, new.logical, new.encode());
    while path.step(level).is_full() && level > 0 {
        let right = spares.take(geometry)?;
        let right_key = split(tree, geometry, path.step(level), right, at, (key, slot))?;
        if at == 0 {
            path.fix_keys(tree, geometry, level, key)?;
        }
        level -= 1;
        (at, key, slot) = (path.step(level).index + 1, right_key, index_slot(right_key, right));
    }
    edit(tree, path.step(level).seat, geometry, |node| node.insert(at, slot))?;
    if at == 0 { path.fix_keys(tree, geometry, level, key) } else { Ok(()) }
}

/// Moves the root's entries into the block `nr` and makes that the root's only child.
fn grow<T: TreeWrite>(
    tree: &mut T,
    geometry: &TreeGeometry,
    path: &mut Path,
    nr: BlockNr,
) -> Result<(), T::Error> {
    let root = *path.step(0);
    let entries = edit(tree, Seat::Root, geometry, |node| {
        let first = node.first_key().unwrap_or(LogicalBlock::ZERO);
        let entries = node.tail(0)?.to_vec();
        node.fill(&[index_slot(first, nr)])?;
        node.set_depth(root.depth + 1);
        Ok(entries)
    })?;
    let max = create(tree, nr, root.depth, &entries)?;
    path.grown(Step { seat: Seat::Block(nr), max, ..root });
    Ok(())
}

/// Splits a full node into itself and `right`, and puts the new entry at position `at` of what they were
/// together. Returns the first key of the right one.
fn split<T: TreeWrite>(
    tree: &mut T,
    geometry: &TreeGeometry,
    node: &Step,
    right: BlockNr,
    at: usize,
    (key, slot): (LogicalBlock, RawEntry),
) -> Result<LogicalBlock, T::Error> {
    let cut = if at == 0 || at == node.len { at } else { node.len / 2 };
    let goes_right = at > cut || cut == node.len;
    let mut moved = edit(tree, node.seat, geometry, |left| {
        let moved = left.tail(cut)?.to_vec();
        left.remove(cut..cut + moved.len())?;
        if !goes_right {
            left.insert(at, slot)?;
        }
        Ok(moved)
    })?;
    if goes_right {
        moved.insert(at - cut, slot);
    }
    create(tree, right, node.depth, &moved)?;
    let right_key = match moved.first() {
        Some([a, b, c, d, ..]) => LogicalBlock::new(u32::from_le_bytes([*a, *b, *c, *d])),
        None => key,
    };
    Ok(right_key)
}
