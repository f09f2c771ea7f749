//! Labels the nodes of a finished tree.
//!
//! Every node gets the label of its path, the root and lost+found too, and keeps what it has where there is
//! none for it. A file with several names gets the label of the first one; a warning names another that has a
//! different label.

use super::builder::{Builder, Draft, DraftKind};
use super::file_contexts::FileContexts;
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use crate::tree::{NodeId, Tree, Xattr};
use hectare_units::{low32, u64_of};
use std::collections::HashMap;

const ATTRIBUTE: &[u8] = b"security.selinux";
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Adds the directory that every volume has, so that it can have a label.
pub(crate) fn add_lost_and_found(builder: &mut Builder<'_>) -> Result<(), Error> {
    builder.settle(SourceHandle::List { name: (*b"labels").into() })?;
    if builder.lookup(builder.root(), LOST_AND_FOUND).is_some() {
        return Ok(());
    }
    let meta = builder.default_directory();
    let draft = Draft { kind: DraftKind::Directory, meta, xattrs: Vec::new() };
    let node = builder.put(builder.root(), LOST_AND_FOUND, LOST_AND_FOUND, draft)?;
    let node = &mut builder.nodes[node.index()];
    (node.mode, node.uid, node.gid) = (0o700, 0, 0);
    Ok(())
}

/// Gives every node its label.
pub(crate) fn label(tree: &mut Tree, contexts: &FileContexts) {
    let labels = labels(tree, contexts);
    let mut sets = Sets::default();
    let old = std::mem::take(&mut tree.xattr_sets);
    for (node, label) in tree.nodes.iter_mut().zip(labels) {
        let set = node.xattrs.checked_sub(1);
        let before = set.map_or(&[][..], |set| &old[hectare_units::usize_of(set)]);
        node.xattrs = sets.get(before, label);
    }
    tree.xattr_sets = sets.all;
}

/// The label of each node.
fn labels<'c>(tree: &mut Tree, contexts: &'c FileContexts) -> Vec<Option<&'c [u8]>> {
    let mut labels: Vec<Option<&[u8]>> = vec![None; tree.len()];
    let mut known = vec![false; tree.len()];
    labels[0] = contexts.label(b"/", &tree.kind(NodeId::ROOT));
    let mut warnings = Vec::new();
    for dir in tree.ids().filter(|id| matches!(tree.kind(*id), crate::Kind::Directory)) {
        let mut path = [b"/", &*tree.path(dir)].concat();
        if dir != NodeId::ROOT {
            path.push(b'/');
        }
        let len = path.len();
        for (name, node) in tree.children(dir) {
            path.truncate(len);
            path.extend_from_slice(name);
            let label = contexts.label(&path, &tree.kind(node));
            if !std::mem::replace(&mut known[node.index()], true) {
                labels[node.index()] = label;
            } else if labels[node.index()] != label {
                let (path, first) = (ShownPath::new(&path), ShownPath::new(&tree.path(node)));
                warnings.push(format!("{path}: it is the same file as /{first}, whose label it gets"));
            }
        }
    }
    tree.warnings.extend(warnings);
    labels
}

/// Sets of attributes with labels, in the order in which nodes use them.
#[derive(Default)]
struct Sets {
    all: Vec<Box<[Xattr]>>,
    numbers: HashMap<Box<[Xattr]>, u32>,
}

impl Sets {
    /// The stored form of a set with a label.
    fn get(&mut self, before: &[Xattr], label: Option<&[u8]>) -> u32 {
        let mut set: Vec<Xattr> = before.to_vec();
        if let Some(label) = label {
            set.retain(|xattr| *xattr.name != *ATTRIBUTE);
            set.push(Xattr { name: ATTRIBUTE.into(), value: label.into() });
            set.sort_unstable();
        }
        if set.is_empty() {
            return 0;
        }
        if let Some(known) = self.numbers.get(&*set) {
            return *known;
        }
        let set: Box<[Xattr]> = set.into();
        self.all.push(set.clone());
        let stored = low32(u64_of(self.all.len())); // no more sets than nodes
        self.numbers.insert(set, stored);
        stored
    }
}
