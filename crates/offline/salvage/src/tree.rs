//! Makes one tree of the nodes and names that were found.
//!
//! The root has what names lead to; `lost+found` has what no name leads to, under its number (`#1234`), and
//! `deleted` what was removed. A directory has one place: where its own `..` agrees with a name, else where
//! the first name is. What would lead in a circle is cut.
//!
//! Invariants: every node is reached from the root, a directory once. Names are fit for any directory: no
//! `/`, no NUL, neither `.` nor `..`, at most 255 bytes, and no two alike in one directory.

use crate::names::{Names, nameless};
use crate::survey::{Node, Survey};
use hectare_ext4::inode::Kind;
use hectare_units::{InodeNr, LogicalBlock, u64_of};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The longest name.
const NAME_MAX: usize = 255;
const LOST_AND_FOUND: &[u8] = b"lost+found";
const DELETED: &[u8] = b"deleted";

/// A name of a file.
type Name = Box<[u8]>;
/// A name and the node that it leads to.
type Child = (Name, usize);

/// The nodes, each with its children.
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: usize,
    /// Of directories: names and nodes, in the order of the blocks where their content begins.
    pub(crate) children: HashMap<usize, Vec<Child>>,
    /// The first place of a node: its directory and its name there.
    pub(crate) places: HashMap<usize, (usize, Name)>,
    /// How many names a node has.
    pub(crate) links: HashMap<usize, u64>,
    /// Of files whose content is in the log: blocks that begin with the journal's magic number.
    pub(crate) escaped: HashMap<usize, Vec<LogicalBlock>>,
}

/// A removed file with the place it had, if that is known.
pub(crate) struct Removed {
    pub(crate) node: Node,
    pub(crate) name: Option<Name>,
    /// Blocks of its content that are escaped in the log.
    pub(crate) escaped: Vec<LogicalBlock>,
}

/// Makes the tree.
pub(crate) fn build(survey: Survey, names: Names, removed: Vec<Removed>) -> Tree {
    let root = survey.find(InodeNr::ROOT).filter(|at| survey.nodes[*at].kind == Kind::Directory);
    let mut nodes = survey.nodes;
    let root = root.or_else(|| names.lost.get(&InodeNr::ROOT).copied());
    let root = root.unwrap_or_else(|| add_directory(&mut nodes, Some("the root directory is lost")));
    let mut builder =
        Builder { nodes, root, edges: Vec::new(), names, tops: HashMap::new(), escaped: HashMap::new() };
    builder.place_directories();
    builder.place_files();
    builder.place_removed(removed);
    builder.finish()
}

fn add_directory(nodes: &mut Vec<Node>, doubt: Option<&str>) -> usize {
    nodes.push(Node {
        nr: None,
        slot: None,
        kind: Kind::Directory,
        links: 0,
        first_block: 0,
        first_run: 0,
        blocks: 0,
        is_left_out: false,
        extents: None,
        is_removed: false,
        doubts: doubt.into_iter().map(str::to_owned).collect(),
    });
    nodes.len() - 1
}

struct Builder {
    nodes: Vec<Node>,
    root: usize,
    /// Directory, name, node.
    edges: Vec<(usize, Name, usize)>,
    names: Names,
    /// Directories of the root for what has no place.
    tops: HashMap<&'static [u8], usize>,
    escaped: HashMap<usize, Vec<LogicalBlock>>,
}

impl Builder {
    /// Chooses one place for each directory.
    fn place_directories(&mut self) {
        // What a name says of a directory whose inode is lost, and that was found by its blocks.
        let dangling = std::mem::take(&mut self.names.dangling);
        let mut missing: Vec<_> = Vec::new();
        for name in dangling {
            match self.names.lost.get(&name.inode).filter(|_| name.is_directory) {
                Some(child) => {
                    let entry =
                        crate::names::Entry { parent: name.parent, child: *child, name: name.name.clone() };
                    self.names.entries.push(entry);
                }
                None => missing.push(name),
            }
        }
        for name in missing {
            if let Some(node) = self.nodes.get_mut(name.parent)
                && node.doubts.len() < 16
            {
                let shown = String::from_utf8_lossy(&name.name).into_owned();
                node.doubts.push(format!("the inode of its entry {shown:?} is lost ({})", name.inode));
            }
        }
        let mut chosen: HashMap<usize, (usize, Name)> = HashMap::new();
        for entry in &self.names.entries {
            if self.nodes[entry.child].kind != Kind::Directory || entry.child == self.root {
                continue;
            }
            let agrees = |parent: usize| self.names.above.get(&entry.child).copied() == self.nodes[parent].nr;
            match chosen.get(&entry.child) {
                Some((parent, _)) if agrees(*parent) || !agrees(entry.parent) => {}
                _ => drop(chosen.insert(entry.child, (entry.parent, entry.name.clone()))),
            }
        }
        let cut = self.cut_circles(&chosen);
        for at in 0..self.nodes.len() {
            if self.nodes[at].kind != Kind::Directory || at == self.root {
                continue;
            }
            match chosen.remove(&at).filter(|_| !cut.contains(&at)) {
                Some((parent, name)) => self.edges.push((parent, name, at)),
                None => self.keep_in_lost_and_found(at, "no name leads to it"),
            }
        }
    }

    /// One directory of each circle.
    fn cut_circles(&self, chosen: &HashMap<usize, (usize, Name)>) -> HashSet<usize> {
        let mut cut = HashSet::new();
        // 0: not seen; else the number of the walk that came by first.
        let mut seen = vec![0_usize; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut at = start;
            while seen[at] == 0 {
                seen[at] = start + 1;
                match chosen.get(&at).filter(|_| !cut.contains(&at)) {
                    Some((parent, _)) if seen[*parent] == start + 1 => {
                        cut.insert(at);
                        break;
                    }
                    Some((parent, _)) => at = *parent,
                    None => break,
                }
            }
        }
        cut
    }

    fn place_files(&mut self) {
        let mut named = vec![false; self.nodes.len()];
        for entry in std::mem::take(&mut self.names.entries) {
            if self.nodes[entry.child].kind != Kind::Directory {
                named[entry.child] = true;
                self.edges.push((entry.parent, entry.name, entry.child));
            }
        }
        for (at, is_named) in named.into_iter().enumerate() {
            if self.nodes[at].kind != Kind::Directory && !is_named && !self.nodes[at].is_removed {
                self.keep_in_lost_and_found(at, "no name leads to it");
            }
        }
    }

    fn keep_in_lost_and_found(&mut self, at: usize, doubt: &str) {
        self.nodes[at].doubts.push(doubt.to_owned());
        let name = nameless(&self.nodes[at]);
        let directory = self.top_directory(LOST_AND_FOUND);
        // The directory may be among what has no name.
        if directory != at {
            self.edges.push((directory, name.into(), at));
        }
    }

    /// A directory of the root, which is made if there is none.
    fn top_directory(&mut self, name: &'static [u8]) -> usize {
        if let Some(known) = self.tops.get(name) {
            return *known;
        }
        let at = self.find_top_directory(name);
        self.tops.insert(name, at);
        at
    }

    fn find_top_directory(&mut self, name: &[u8]) -> usize {
        let root = self.root;
        let known = self.edges.iter().find(|(parent, own, at)| {
            *parent == root && **own == *name && self.nodes[*at].kind == Kind::Directory
        });
        if let Some((_, _, at)) = known {
            return *at;
        }
        let entry = self.names.entries.iter().find(|entry| entry.parent == root && *entry.name == *name);
        if let Some(entry) = entry.filter(|entry| self.nodes[entry.child].kind == Kind::Directory) {
            return entry.child;
        }
        let at = add_directory(&mut self.nodes, None);
        self.edges.push((root, name.into(), at));
        at
    }

    fn place_removed(&mut self, removed: Vec<Removed>) {
        if removed.is_empty() {
            return;
        }
        let directory = self.top_directory(DELETED);
        for Removed { node, name, escaped } in removed {
            let name = name.unwrap_or_else(|| nameless(&node).into());
            if !escaped.is_empty() {
                self.escaped.insert(self.nodes.len(), escaped);
            }
            self.nodes.push(node);
            self.edges.push((directory, name, self.nodes.len() - 1));
        }
    }

    fn finish(self) -> Tree {
        let Self { nodes, root, edges, escaped, .. } = self;
        let mut by_parent: BTreeMap<usize, Vec<Child>> = BTreeMap::new();
        for (parent, name, child) in edges {
            by_parent.entry(parent).or_default().push((name, child));
        }
        let mut tree = Tree {
            nodes,
            root,
            escaped,
            children: HashMap::new(),
            places: HashMap::new(),
            links: HashMap::new(),
        };
        for (parent, mut children) in by_parent {
            children.sort();
            children.dedup();
            let mut taken = HashSet::new();
            for (name, child) in &mut children {
                let fit = fit_name(name, tree.nodes[*child].nr, &mut taken);
                if fit != *name && !tree.nodes[*child].is_removed {
                    let doubt = format!("its name was {:?}", String::from_utf8_lossy(name));
                    tree.nodes[*child].doubts.push(doubt);
                }
                *name = fit;
                tree.places.entry(*child).or_insert_with(|| (parent, name.clone()));
                *tree.links.entry(*child).or_default() += 1;
            }
            children.sort_by_key(|(_, child)| tree.nodes[*child].first_block);
            tree.children.insert(parent, children);
        }
        tree.doubt_links();
        tree
    }
}

/// A name that any directory can have, and this one does not have yet.
fn fit_name(name: &[u8], nr: Option<InodeNr>, taken: &mut HashSet<Name>) -> Name {
    let mut fit: Vec<u8> =
        name.iter().map(|byte| if matches!(byte, 0 | b'/') { b'_' } else { *byte }).take(NAME_MAX).collect();
    if matches!(&fit[..], b"" | b"." | b"..") {
        fit = b"_".repeat(fit.len().max(1));
    }
    for attempt in 0_u64.. {
        let suffix = match (attempt, nr) {
            (0, _) => String::new(),
            (1, Some(nr)) => format!("~#{nr}"),
            _ => format!("~{attempt}"),
        };
        let keep = fit.len().min(NAME_MAX - suffix.len());
        let candidate: Name = [&fit[..keep], suffix.as_bytes()].concat().into();
        if taken.insert(candidate.clone()) {
            return candidate;
        }
    }
    fit.into()
}

impl Tree {
    /// Notes files of which names are missing.
    fn doubt_links(&mut self) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let names = self.links.get(&at).copied().unwrap_or(0);
            let is_file = node.kind != Kind::Directory && node.slot.is_some() && !node.is_removed;
            if is_file && names > 0 && names < u64::from(node.links) && node.doubts.is_empty() {
                node.doubts.push(format!("it has {names} of {} names", node.links));
            }
        }
    }

    /// The path of a node from the root, in bytes; its first if it has several.
    pub(crate) fn path(&self, at: usize) -> Vec<u8> {
        let mut names = Vec::new();
        let mut node = at;
        while let Some((parent, name)) = self.places.get(&node) {
            names.push(name);
            node = *parent;
            if u64_of(names.len()) > 1 << 20 {
                break;
            }
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_directory_or_comes_twice() {
        let mut taken = HashSet::new();
        let mut fit = |name: &[u8]| fit_name(name, Some(InodeNr::new(7)), &mut taken).to_vec();
        assert_eq!(fit(b"plain"), b"plain");
        assert_eq!(fit(b".."), b"__");
        assert_eq!(fit(b"."), b"_");
        assert_eq!(fit(b"a/../b\0c"), b"a_.._b_c");
        assert_eq!(fit(b"plain"), b"plain~#7");
        assert_eq!(fit(b"plain"), b"plain~2");
        let long = vec![b'n'; 255];
        assert_eq!(fit(&long).len(), 255);
        let second = fit(&long);
        assert!(second.len() == 255 && second.ends_with(b"~#7"));
    }
}
