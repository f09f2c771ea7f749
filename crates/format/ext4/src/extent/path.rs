//! The path from the root to a leaf, remembered for operations that change nodes on it.
//!
//! A path holds no bytes, only positions and counts, so that no node is kept from being changed in place. It
//! is valid until the first structural change; operations then descend again.

use super::edit::{Seat, edit};
use super::node::Node;
use super::{DEPTH_MAX, TreeGeometry, TreeRead, TreeWrite};
use crate::error::Corrupt;
use hectare_units::LogicalBlock;

/// Levels of the longest path: the root and [`DEPTH_MAX`] blocks.
pub(super) const LEVELS_MAX: usize = DEPTH_MAX as usize + 1;

/// A node on the path.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) seat: Seat,
    pub(super) depth: u16,
    pub(super) len: usize,
    pub(super) max: usize,
    /// The child through which the path continues; 0 in the leaf.
    pub(super) index: usize,
}

impl Step {
    fn of(node: &Node<'_>, seat: Seat) -> Self {
        Self { seat, depth: node.depth(), len: node.len(), max: node.max(), index: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= self.max
    }
}

/// The nodes from the root to a leaf.
pub(super) struct Path {
    steps: [Step; LEVELS_MAX],
    len: usize,
}

impl Path {
    /// Descends to the leaf whose range holds `at` (the first leaf if `at` lies before all keys), and has
    /// `read` look at it; `read` also gets the number of extents that begin at or before `at`.
    pub(super) fn descend<T: TreeRead, R>(
        tree: &T,
        geometry: &TreeGeometry,
        at: LogicalBlock,
        read: impl FnOnce(&Node<'_>, usize) -> Result<R, Corrupt>,
    ) -> Result<(Self, R), T::Error> {
        let root = tree.root();
        let mut node = Node::root(&root, geometry)?;
        let mut held;
        let mut path = Self { steps: [Step::of(&node, Seat::Root); LEVELS_MAX], len: 1 };
        loop {
            let count = node.count_to(at);
            if node.depth() == 0 {
                let result = read(&node, count)?;
                return Ok((path, result));
            }
            let index = count.saturating_sub(1);
            path.leaf_mut().index = index;
            let child = node.child(index)?;
            held = tree.node(child.nr)?;
            node = Node::block(&held, &child, geometry)?;
            path.push(Step::of(&node, Seat::Block(child.nr)));
        }
    }

    fn push(&mut self, step: Step) {
        // Each child's depth is one less than its parent's and the root's is at most DEPTH_MAX.
        self.steps[self.len] = step;
        self.len += 1;
    }

    fn leaf_mut(&mut self) -> &mut Step {
        &mut self.steps[self.len - 1]
    }

    /// The level of the leaf; the root is level 0.
    pub(super) fn leaf_level(&self) -> usize {
        self.len - 1
    }

    pub(super) fn leaf(&self) -> &Step {
        &self.steps[self.len - 1]
    }

    pub(super) fn step(&self, level: usize) -> &Step {
        &self.steps[level]
    }

    /// All steps, root first.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps[..self.len]
    }

    /// Whether the leaf is the first of the tree.
    pub(super) fn is_leftmost(&self) -> bool {
        self.steps().iter().all(|step| step.index == 0)
    }

    /// Puts `moved` between the root and the rest: the root's entries now live there, and the root has one
    /// child.
    pub(super) fn grown(&mut self, moved: Step) {
        self.steps.copy_within(1..self.len, 2);
        self.steps[1] = moved;
        self.steps[0] = Step { depth: moved.depth + 1, len: 1, index: 0, ..self.steps[0] };
        self.len += 1;
    }

    /// Updates the parents of the node at `level`: its first key is now `key`.
    pub(super) fn fix_keys<T: TreeWrite>(
        &self,
        tree: &mut T,
        geometry: &TreeGeometry,
        level: usize,
        key: LogicalBlock,
    ) -> Result<(), T::Error> {
        for step in self.steps[..level].iter().rev() {
            edit(tree, step.seat, geometry, |node| node.set_key(step.index, key))?;
            if step.index != 0 {
                break;
            }
        }
        Ok(())
    }
}
