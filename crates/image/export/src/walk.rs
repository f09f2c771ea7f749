//! Walks one tree, or two side by side, in an order that depends on names only.
//!
//! A directory comes before what it holds, names come in the order of their bytes, and a name that is in both
//! trees is met once, with both inodes. The caller decides which directories are entered.
//!
//! Hazard: a volume may be corrupt. A directory that is met twice is an error, so every walk ends; so are
//! more names at once than the volume has room for, and a path that no program could use. An error ends the
//! walk: what follows would be a part that looks like the whole.

use crate::error::Result;
use crate::names::{MET_TWICE, Names, TOO_MANY, is_room_for};
use crate::tree::Tree;
use hectare_engine::Metadata;
use hectare_units::InodeNr;
use std::cmp::Ordering;
use std::collections::HashSet;

/// The longest path: 16 times what Linux takes in one call.
const PATH_MAX: usize = 64 << 10;

/// The two sides of a walk. A single tree is on the new side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Old,
    New,
}

/// Something for each side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair<T> {
    pub(crate) old: T,
    pub(crate) new: T,
}

impl<T> Pair<T> {
    fn get(&self, side: Side) -> &T {
        match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        }
    }

    fn get_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Old => &mut self.old,
            Side::New => &mut self.new,
        }
    }
}

/// What has a path, in one tree or both.
#[derive(Debug)]
pub(crate) struct Met {
    /// From the top, without a slash at either end.
    pub(crate) path: Vec<u8>,
    pub(crate) found: Pair<Option<Metadata>>,
}

/// A directory whose names are being met.
struct Level {
    /// The length of its path.
    path_len: usize,
    names: Pair<Names>,
}

/// A walk under way.
pub(crate) struct Walk<'a> {
    trees: Pair<Option<&'a Tree<'a>>>,
    begun: bool,
    /// The path of the innermost directory.
    path: Vec<u8>,
    levels: Vec<Level>,
    entered: Pair<HashSet<InodeNr>>,
}

impl<'a> Walk<'a> {
    /// A walk of one tree.
    pub(crate) fn of(tree: &'a Tree<'a>) -> Self {
        Self::new(Pair { old: None, new: Some(tree) })
    }

    /// A walk of two.
    pub(crate) fn of_both(old: &'a Tree<'a>, new: &'a Tree<'a>) -> Self {
        Self::new(Pair { old: Some(old), new: Some(new) })
    }

    fn new(trees: Pair<Option<&'a Tree<'a>>>) -> Self {
        Self { trees, begun: false, path: Vec::new(), levels: Vec::new(), entered: Pair::default() }
    }

    /// What comes next: first the tops.
    pub(crate) fn next(&mut self) -> Result<Option<Met>> {
        if !std::mem::replace(&mut self.begun, true) {
            let top = |tree: Option<&Tree<'_>>| tree.map(|tree| tree.top);
            let inodes = Pair { old: top(self.trees.old), new: top(self.trees.new) };
            return self.meet(Vec::new(), &inodes).map(Some);
        }
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            self.path.truncate(level.path_len);
            let Some((name, inodes)) = level.names.pop_front() else {
                self.levels.pop();
                continue;
            };
            let path = if self.path.is_empty() { name } else { [&self.path[..], b"/", &name].concat() };
            return self.meet(path, &inodes).map(Some);
        }
    }

    fn meet(&self, path: Vec<u8>, inodes: &Pair<Option<InodeNr>>) -> Result<Met> {
        let stat = |side: Side| match (self.trees.get(side), *inodes.get(side)) {
            (Some(tree), Some(nr)) => tree.stat(&path, nr).map(Some),
            _ => Ok(None),
        };
        let found = Pair { old: stat(Side::Old)?, new: stat(Side::New)? };
        Ok(Met { path, found })
    }

    /// Has the content of what was met last come next, on the sides where it is a directory.
    pub(crate) fn enter(&mut self, met: &Met) -> Result<()> {
        self.enter_sides(met, &[Side::Old, Side::New])
    }

    /// Likewise, but on the new side only.
    pub(crate) fn enter_new(&mut self, met: &Met) -> Result<()> {
        self.enter_sides(met, &[Side::New])
    }

    fn enter_sides(&mut self, met: &Met, sides: &[Side]) -> Result<()> {
        let mut names = Pair::<Names>::default();
        for side in sides.iter().copied() {
            let (Some(tree), Some(meta)) = (self.trees.get(side), met.found.get(side)) else { continue };
            if !meta.is_dir() {
                continue;
            }
            if !self.entered.get_mut(side).insert(meta.inode) {
                return Err(tree.refuse(&met.path, MET_TWICE));
            }
            if met.path.len() > PATH_MAX {
                return Err(tree.refuse(&met.path[..PATH_MAX], "the directories are nested too deeply"));
            }
            let listed = tree.names(&met.path, meta.inode)?;
            let above = self.levels.iter().map(|level| level.names.get(side).left()).sum::<usize>();
            if !is_room_for(tree.volume, above + listed.left()) {
                return Err(tree.refuse(&met.path, TOO_MANY));
            }
            *names.get_mut(side) = listed;
        }
        self.path.clone_from(&met.path);
        self.levels.push(Level { path_len: met.path.len(), names });
        Ok(())
    }
}

impl Pair<Names> {
    /// The first of the names on both sides, with its inodes.
    fn pop_front(&mut self) -> Option<(Vec<u8>, Pair<Option<InodeNr>>)> {
        let order = match (self.old.front(), self.new.front()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.name.cmp(new.name),
        };
        let old = if order.is_le() { self.old.pop_front() } else { None };
        let new = if order.is_ge() { self.new.pop_front() } else { None };
        let name = old.or(new)?.name.to_vec();
        Some((name, Pair { old: old.map(|entry| entry.inode), new: new.map(|entry| entry.inode) }))
    }
}
