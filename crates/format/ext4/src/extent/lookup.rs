//! Reads a tree: one block, or all of it in order.

use super::node::Node;
use super::path::Path;
use super::{Extent, Mapping, TreeGeometry, TreeRead};
use hectare_units::{BlockNr, LogicalBlock};
use std::ops::ControlFlow;

/// What file block `at` is mapped to: the whole extent that covers it, or where the next one begins.
///
/// Reads one node per level, by binary search, without allocating memory.
///
/// # Errors
/// When a node can't be read or is corrupt.
pub fn lookup<T: TreeRead>(tree: &T, at: LogicalBlock) -> Result<Mapping, T::Error> {
    let geometry = tree.geometry();
    let root = tree.root();
    let mut node = Node::root(&root, &geometry)?;
    let mut held;
    loop {
        let count = node.count_to(at);
        let hole = Mapping::Hole { next: node.start_of(count) };
        let Some(i) = count.checked_sub(1) else {
            return Ok(hole);
        };
        if node.depth() == 0 {
            let extent = node.extent(i)?;
            return Ok(if extent.end() > u64::from(at.get()) { Mapping::Mapped(extent) } else { hole });
        }
        let child = node.child(i)?;
        held = tree.node(child.nr)?;
        node = Node::block(&held, &child, &geometry)?;
    }
}

/// The extent that ends last; `None` if nothing is mapped.
///
/// # Errors
/// When a node can't be read or is corrupt.
pub fn last<T: TreeRead>(tree: &T) -> Result<Option<Extent>, T::Error> {
    let geometry = tree.geometry();
    let end = LogicalBlock::new(u32::MAX);
    let (_, last) = Path::descend(tree, &geometry, end, |leaf, count| {
        count.checked_sub(1).map(|i| leaf.extent(i)).transpose()
    })?;
    Ok(last)
}

/// Visits every extent that ends after file block `from`, in order, each whole, until `visit` breaks.
///
/// Reads each node on the path at most once.
///
/// # Errors
/// When a node can't be read or is corrupt; extents before it have been visited.
pub fn for_each<T: TreeRead>(
    tree: &T,
    from: LogicalBlock,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> Result<(), T::Error> {
    let geometry = tree.geometry();
    let root = tree.root();
    walk(tree, &Node::root(&root, &geometry)?, &geometry, from, visit).map(drop)
}

/// Recursion is bounded: each child's depth is one less.
fn walk<T: TreeRead>(
    tree: &T,
    node: &Node<'_>,
    geometry: &TreeGeometry,
    from: LogicalBlock,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, T::Error> {
    for i in node.count_to(from).saturating_sub(1)..node.len() {
        let flow = if node.depth() == 0 {
            let extent = node.extent(i)?;
            if extent.end() > u64::from(from.get()) { visit(extent) } else { ControlFlow::Continue(()) }
        } else {
            let child = node.child(i)?;
            let held = tree.node(child.nr)?;
            walk(tree, &Node::block(&held, &child, geometry)?, geometry, from, visit)?
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Visits every node block with its depth, a parent before its children, until `visit` breaks. Leaves are
/// named by their parents and not read.
///
/// # Errors
/// When an index node can't be read or is corrupt; nodes before it have been visited.
pub fn for_each_node<T: TreeRead>(
    tree: &T,
    visit: &mut dyn FnMut(BlockNr, u16) -> ControlFlow<()>,
) -> Result<(), T::Error> {
    let geometry = tree.geometry();
    let root = tree.root();
    walk_nodes(tree, &Node::root(&root, &geometry)?, &geometry, visit).map(drop)
}

fn walk_nodes<T: TreeRead>(
    tree: &T,
    node: &Node<'_>,
    geometry: &TreeGeometry,
    visit: &mut dyn FnMut(BlockNr, u16) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, T::Error> {
    if node.depth() == 0 {
        return Ok(ControlFlow::Continue(()));
    }
    for i in 0..node.len() {
        let child = node.child(i)?;
        if visit(child.nr, child.depth).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if child.depth > 0 {
            let held = tree.node(child.nr)?;
            let flow = walk_nodes(tree, &Node::block(&held, &child, geometry)?, geometry, visit)?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}
