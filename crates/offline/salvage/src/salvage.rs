//! The survey of a damaged volume, and the tree that comes of it.
//!
//! What a node holds is read in `content` and `attributes`.

use crate::deleted;
use crate::names::{self, Names};
use crate::node::NodeId;
use crate::open::open;
use crate::options::{Error, Options};
use crate::report::{Deleted, Doubtful, Report, Unreadable};
use crate::survey::{self, Survey};
use crate::tree::{self, Tree};
use crate::volume::Volume;
use crate::watch::Watch;
use hectare_device::Device;
use hectare_units::{Bytes, InodeNr, u64_of};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How many times the bytes of the device the values of attributes with inodes of their own may be in all:
/// many files may share one.
const VALUES_MAX: u64 = 8;

/// A damaged volume, and the tree of what can be had of it.
pub struct Salvage {
    pub(crate) volume: Volume,
    pub(crate) tree: Tree,
    content_len: u64,
    deleted: Vec<(usize, Deleted)>,
    /// Bytes of attributes with inodes of their own that may still be read.
    pub(crate) value_room: AtomicU64,
    /// What was found doubtful while content was read.
    found: Mutex<BTreeMap<usize, Vec<String>>>,
}

impl Salvage {
    /// Finds out what there is. Reads metadata, and where something is missing, all that belongs to nobody.
    ///
    /// # Errors
    /// If there is no superblock, or one of a volume that can't be read.
    pub fn survey(device: Arc<dyn Device>, options: &Options, watch: &dyn Watch) -> Result<Self, Error> {
        let volume = open(device, options)?;
        let mut survey = survey::survey(&volume, watch);
        survey.settle(&volume);
        let mut names = names::read(&volume, &mut survey, options.deleted, watch);
        let mut removed = deleted::Search::default();
        if options.deleted {
            removed.read_log(&volume, &survey, &mut names, watch);
        }
        if options.deleted || misses_names(&survey, &names) {
            let mut budget = survey.budget;
            names::scan(&volume, &mut survey, &mut names, watch, &mut |nr, block| {
                removed.take_block(&volume, nr, block, options.deleted, &mut budget);
            });
        }
        let (removed, ranked) = removed.finish(&volume, &survey, &names);
        let content_len = survey.content_blocks() << volume.geometry().block_size.shift();
        let tree = tree::build(survey, names, removed);
        let first = tree.nodes.len() - ranked.len();
        let deleted = (first..).zip(ranked).collect();
        let value_room = AtomicU64::new(volume.source.len().saturating_mul(VALUES_MAX));
        Ok(Self { volume, tree, content_len, deleted, value_room, found: Mutex::default() })
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId(self.tree.root)
    }

    /// What a directory holds, in the order in which the content lies on the device.
    pub fn children(&self, node: NodeId) -> impl ExactSizeIterator<Item = (&[u8], NodeId)> {
        let children = self.tree.children.get(&node.0).map_or(&[][..], Vec::as_slice);
        children.iter().map(|(name, child)| (&**name, NodeId(*child)))
    }

    /// The path of a node from the root; the first, if it has several.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Vec<u8> {
        self.tree.path(node.0)
    }

    /// Bytes of the device.
    #[must_use]
    pub fn device_len(&self) -> Bytes {
        Bytes::new(self.volume.source.len())
    }

    /// Bytes of content in all, without holes.
    #[must_use]
    pub fn content_len(&self) -> Bytes {
        Bytes::new(self.content_len)
    }

    /// Every node with a name, each once, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.tree.places.keys().copied().map(NodeId)
    }

    /// What was found; doubts about content only of what has been read.
    #[must_use]
    pub fn report(&self) -> Report {
        let found = self.found.lock();
        let path = |at: usize| String::from_utf8_lossy(&self.tree.path(at)).into_owned();
        let mut doubts: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let deleted: Vec<_> = self.deleted.iter().map(|(at, deleted)| (*at, deleted.clone())).collect();
        for (at, node) in self.tree.nodes.iter().enumerate() {
            let is_placed = self.tree.places.contains_key(&at) || at == self.tree.root;
            let more = found.get(&at).cloned().unwrap_or_default();
            let all: Vec<String> = node.doubts.iter().cloned().chain(more).collect();
            if is_placed && !node.is_removed && !all.is_empty() {
                doubts.insert(at, all);
            }
        }
        let mut doubtful: Vec<Doubtful> = doubts
            .iter()
            .map(|(at, all)| Doubtful {
                path: path(*at),
                inode: self.tree.nodes[*at].nr.map(InodeNr::get),
                doubts: all.clone(),
            })
            .collect();
        doubtful.sort();
        let of_removed = |at: usize, deleted: Deleted| {
            let more = found.get(&at).cloned().unwrap_or_default();
            let doubts = self.tree.nodes[at].doubts.iter().cloned().chain(more).collect();
            Deleted { path: path(at), doubts, ..deleted }
        };
        let nodes = u64_of(self.tree.places.len()) + 1;
        Report {
            volume: self.volume.notes.clone(),
            nodes,
            whole: nodes.saturating_sub(u64_of(doubtful.len())),
            doubtful,
            deleted: deleted.into_iter().map(|(at, deleted)| of_removed(at, deleted)).collect(),
            unreadable: self
                .volume
                .source
                .unreadable()
                .into_iter()
                .map(|range| Unreadable { at: range.start, len: range.end - range.start })
                .collect(),
        }
    }

    /// Whether nothing is known to be doubtful about a node.
    #[must_use]
    pub fn is_whole(&self, node: NodeId) -> bool {
        self.tree.nodes[node.0].doubts.is_empty() && !self.found.lock().contains_key(&node.0)
    }

    /// Adds a doubt about a node.
    pub(crate) fn doubt(&self, node: usize, what: String) {
        let mut found = self.found.lock();
        let doubts = found.entry(node).or_default();
        if doubts.len() < 16 && !doubts.contains(&what) {
            doubts.push(what);
        }
    }
}

/// Whether anything in use has no name, or a name leads to nothing.
fn misses_names(survey: &Survey, names: &Names) -> bool {
    let named: HashSet<usize> = names.entries.iter().map(|entry| entry.child).collect();
    let root = survey.find(InodeNr::ROOT);
    let nameless = (0..survey.nodes.len()).any(|at| Some(at) != root && !named.contains(&at));
    root.is_none() || nameless
}
