//! Makes a tree lower whose root has one child.

use super::edit::{Seat, edit};
use super::node::Node;
use super::{TreeGeometry, TreeWrite};

/// Moves the entries of the root's only child into the root, as often as they fit.
pub(super) fn shrink_root<T: TreeWrite>(tree: &mut T, geometry: &TreeGeometry) -> Result<(), T::Error> {
    loop {
        let root = tree.root();
        let root = Node::root(&root, geometry)?;
        if root.depth() == 0 || root.len() != 1 {
            return Ok(());
        }
        let child = root.child(0)?;
        let held = tree.node(child.nr)?;
        let node = Node::block(&held, &child, geometry)?;
        if node.len() > root.max() {
            return Ok(());
        }
        let entries = node.to_slots();
        drop(held);
        edit(tree, Seat::Root, geometry, |node| {
            node.fill(&entries)?;
            node.set_depth(child.depth);
            Ok(())
        })?;
        tree.free(child.nr)?;
    }
}
