//! The names of one thread's directory as its operations left them, and how a state of them is recognised.
//!
//! Operations on names and attributes are one transaction each and reach the log in their order, so after a
//! crash the names must be those after some operation. A tree is compared by a digest of all its entries:
//! path, identity, kind, links, target, attributes.
//!
//! Sizes and content are not part of it: they reach storage at times of their own ([`super::content`]).

use super::op::Op;
use super::self_describing;
use hectare_units::u64_of;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, and where to.
    Symlink(String),
}

/// One entry of a tree, as it was expected or found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Entry {
    /// From the root of the volume.
    pub(super) path: String,
    /// The identity of what lies there.
    pub(super) id: u32,
    pub(super) kind: EntryKind,
    pub(super) links: u32,
    /// The digest of each attribute's value.
    pub(super) attributes: BTreeMap<String, u64>,
}

impl Entry {
    /// A number for it that another one is not likely to have.
    fn digest(&self) -> u64 {
        digest(self)
    }
}

/// A number for a value.
pub(super) fn digest(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A number for all entries of a tree, in any order.
pub(super) fn digest_of(entries: &[Entry]) -> u64 {
    entries.iter().fold(0, |sum, entry| sum.wrapping_add(entry.digest()))
}

#[derive(Clone, Debug)]
struct Node {
    kind: EntryKind,
    /// Names, of anything but directories.
    names: u32,
    attributes: BTreeMap<String, u64>,
}

/// All names below a directory.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    top: String,
    names: BTreeMap<String, u32>,
    nodes: HashMap<u32, Node>,
}

impl Tree {
    /// An empty directory, which is part of its tree.
    pub(super) fn new(top: &str, id: u32) -> Self {
        let mut tree = Self { top: top.to_owned(), names: BTreeMap::new(), nodes: HashMap::new() };
        tree.add(top, id, EntryKind::Directory);
        tree
    }

    /// The directory all of it lies in.
    pub(super) fn top(&self) -> &str {
        &self.top
    }

    /// What a path leads to.
    pub(super) fn id(&self, path: &str) -> Option<u32> {
        self.names.get(path).copied()
    }

    /// A path that leads to it.
    pub(super) fn path(&self, id: u32) -> Option<&str> {
        self.names.iter().find(|(_, named)| **named == id).map(|(path, _)| path.as_str())
    }

    /// The paths of all that is of a kind.
    pub(super) fn paths(&self, fits: impl Fn(&EntryKind) -> bool) -> Vec<&str> {
        let fits = |id: &u32| self.nodes.get(id).is_some_and(|node| fits(&node.kind));
        self.names.iter().filter(|(_, id)| fits(id)).map(|(path, _)| path.as_str()).collect()
    }

    /// The names of the attributes at a path.
    pub(super) fn attributes(&self, path: &str) -> Vec<&str> {
        let node = self.id(path).and_then(|id| self.nodes.get(&id));
        node.map(|node| node.attributes.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Whether nothing lies below a path.
    pub(super) fn is_empty(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.names.range(below.clone()..).next().is_some_and(|(name, _)| name.starts_with(&below))
    }

    fn add(&mut self, path: &str, id: u32, kind: EntryKind) {
        self.names.insert(path.to_owned(), id);
        self.nodes.insert(id, Node { kind, names: 1, attributes: BTreeMap::new() });
    }

    /// Takes a name away; the node goes with its last.
    fn drop_name(&mut self, path: &str) {
        let Some(id) = self.names.remove(path) else { return };
        if let Some(node) = self.nodes.get_mut(&id) {
            node.names -= 1;
            if node.names == 0 {
                self.nodes.remove(&id);
            }
        }
    }

    /// Takes out all names at a path and below it, without what they lead to.
    fn take(&mut self, path: &str) -> Vec<(String, u32)> {
        let below = format!("{path}/");
        let inside = |name: &String| *name == path || name.starts_with(&below);
        let taken: Vec<String> = self.names.keys().filter(|name| inside(name)).cloned().collect();
        let tail = |name: String| name[path.len()..].to_owned();
        taken.into_iter().filter_map(|name| self.names.remove(&name).map(|id| (tail(name), id))).collect()
    }

    fn put(&mut self, path: &str, taken: Vec<(String, u32)>) {
        self.names.extend(taken.into_iter().map(|(tail, id)| (format!("{path}{tail}"), id)));
    }

    fn node(&mut self, path: &str) -> Option<(u32, &mut Node)> {
        let id = self.id(path)?;
        self.nodes.get_mut(&id).map(|node| (id, node))
    }

    /// Does what the operation with this number does to names and attributes.
    pub(super) fn apply(&mut self, op: &Op, version: u32) {
        match op {
            Op::Create { path, id } => self.add(path, *id, EntryKind::File),
            Op::MakeDir { path, id } => self.add(path, *id, EntryKind::Directory),
            Op::Symlink { path, id, target } => self.add(path, *id, EntryKind::Symlink(target.clone())),
            Op::Link { from, to } => {
                if let Some((id, node)) = self.node(from) {
                    node.names += 1;
                    self.names.insert(to.clone(), id);
                }
            }
            Op::Rename { from, to } => {
                self.drop_name(to);
                let taken = self.take(from);
                self.put(to, taken);
            }
            Op::Exchange { a, b } => {
                let (first, second) = (self.take(a), self.take(b));
                self.put(b, first);
                self.put(a, second);
            }
            Op::Unlink { path } | Op::RemoveDir { path } => self.drop_name(path),
            Op::SetXattr { path, name, len } => {
                if let Some((id, node)) = self.node(path) {
                    let value = digest(&self_describing::attribute(id, version, *len));
                    node.attributes.insert(name.clone(), value);
                }
            }
            Op::RemoveXattr { path, name } => {
                if let Some((_, node)) = self.node(path) {
                    node.attributes.remove(name);
                }
            }
            _ => {}
        }
    }

    /// All entries, the top included, in the order of their paths.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |(path, id): (&String, &u32)| {
            let node = self.nodes.get(id)?;
            let links =
                if node.kind == EntryKind::Directory { self.directory_links(path) } else { node.names };
            let (kind, attributes) = (node.kind.clone(), node.attributes.clone());
            Some(Entry { path: path.clone(), id: *id, kind, links, attributes })
        };
        self.names.iter().filter_map(entry).collect()
    }

    /// Its name, its own entry for itself, and one from each directory in it.
    fn directory_links(&self, path: &str) -> u32 {
        let below = format!("{path}/");
        let inside = self.names.range(below.clone()..).take_while(|(name, _)| name.starts_with(&below));
        let children = inside.filter(|(name, _)| !name[below.len()..].contains('/'));
        let is_dir = |id: &u32| self.nodes.get(id).is_some_and(|node| node.kind == EntryKind::Directory);
        2 + hectare_units::low32(u64_of(children.filter(|(_, id)| is_dir(id)).count()))
    }
}

/// The entries that differ between an expected and a found tree, a line each; not more than `most`.
pub(super) fn differences(expected: &[Entry], found: &[Entry], most: usize) -> Vec<String> {
    let by_path = |entries: &[Entry]| -> BTreeMap<String, Entry> {
        entries.iter().map(|entry| (entry.path.clone(), entry.clone())).collect()
    };
    let (expected, found) = (by_path(expected), by_path(found));
    let mut lines = Vec::new();
    for (path, entry) in &expected {
        match found.get(path) {
            None => lines.push(format!("{path} (id {}) is missing", entry.id)),
            Some(other) if other != entry => lines.push(format!("expected {entry:?}, found {other:?}")),
            Some(_) => {}
        }
    }
    let extra = found.iter().filter(|(path, _)| !expected.contains_key(*path));
    lines.extend(extra.map(|(path, entry)| format!("{path} (id {}) should not be there", entry.id)));
    lines.truncate(most);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ops: &[Op]) -> Tree {
        let mut tree = Tree::new("t", 1);
        ops.iter().for_each(|op| tree.apply(op, 5));
        tree
    }

    fn create(path: &str, id: u32) -> Op {
        Op::Create { path: path.into(), id }
    }

    fn make_dir(path: &str, id: u32) -> Op {
        Op::MakeDir { path: path.into(), id }
    }

    #[test]
    fn names_move_with_what_lies_below_them() {
        let ops = [make_dir("t/d", 2), create("t/d/f", 3), make_dir("t/e", 4)];
        let mut tree = after(&ops);
        tree.apply(&Op::Rename { from: "t/d".into(), to: "t/e/d".into() }, 6);
        assert_eq!((tree.id("t/e/d/f"), tree.id("t/d")), (Some(3), None));
        assert!(!tree.is_empty("t/e") && tree.is_empty("t/e/d/f"));
        tree.apply(&create("t/x", 5), 7);
        tree.apply(&Op::Exchange { a: "t/x".into(), b: "t/e".into() }, 8);
        assert_eq!((tree.id("t/x/d/f"), tree.id("t/e")), (Some(3), Some(5)));
        let links: Vec<u32> = after(&ops).entries().iter().map(|entry| entry.links).collect();
        assert_eq!(links, [4, 2, 1, 2]);
    }

    #[test]
    fn a_file_lives_as_long_as_a_name() {
        let mut tree = after(&[create("t/a", 2), create("t/b", 3)]);
        tree.apply(&Op::Link { from: "t/a".into(), to: "t/c".into() }, 6);
        assert_eq!(tree.entries()[1].links, 2);
        tree.apply(&Op::Rename { from: "t/b".into(), to: "t/a".into() }, 7);
        assert_eq!((tree.id("t/a"), tree.id("t/c"), tree.path(2)), (Some(3), Some(2), Some("t/c")));
        tree.apply(&Op::Unlink { path: "t/c".into() }, 8);
        assert_eq!(tree.path(2), None);
    }

    #[test]
    fn digests_tell_states_apart() {
        let one = after(&[create("t/a", 2), create("t/b", 3)]);
        let other = after(&[create("t/a", 3), create("t/b", 2)]);
        assert_ne!(digest_of(&one.entries()), digest_of(&other.entries()));
        let mut tagged = one.clone();
        tagged.apply(&Op::SetXattr { path: "t/a".into(), name: "user.x".into(), len: 7 }, 9);
        assert_ne!(digest_of(&one.entries()), digest_of(&tagged.entries()));
        assert_eq!(differences(&one.entries(), &tagged.entries(), 9).len(), 1);
        assert_eq!(differences(&one.entries(), &after(&[]).entries(), 9).len(), 2);
    }
}
