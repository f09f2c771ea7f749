//! The tree under construction: nodes and entries in the order they are met, later layers over earlier ones.
//!
//! An entry remembers the layer that last touched it. A whiteout turns entries of earlier layers into
//! tombstones; an opaque directory only gets a *floor*, and everything below it that no layer from the floor
//! on has touched is hidden ([`visible`](super::visible)). So the order inside one layer does not matter, which
//! both archives (any order) and the parallel scan of directories (no order) need. Replaced or removed nodes
//! stay behind unreachable until `finish` drops them.
//!
//! The index from (directory, name) to entry is kept only where names can meet: archives, and every layer but
//! the first. Its hash is keyed at random: archives are untrusted.

use super::names::{Whiteout, name_fault, target_fault, whiteout};
use super::options::Options;
use super::visible::{Dir, GONE, RawEntry};
use super::xattr_sets::XattrSets;
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use crate::time::PackedTime;
use crate::tree::{
    Arena, DENSE, FileData, HostFile, Meta, Node, NodeId, NodeKind, SegmentLists, SourceDevice, Xattr,
};
use hashbrown::HashTable;
use hectare_ext4::inode::DeviceNumber;
use hectare_host::Identity;
use hectare_units::{low16, u64_of, usize_of};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Directories that an archive may imply without having them, and how many more for each entry that it has: a
/// path of some kilobytes can imply thousands, of which each takes a block of the image.
const IMPLIED_MAX: u64 = 4096;
const IMPLIED_EACH: u64 = 16;
/// What a directory counts for in the size of everything: a block.
const DIRECTORY_SIZE: u64 = 4096;

/// What a layer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LayerKind {
    /// A directory: no name comes twice.
    Folder,
    /// An archive.
    Archive,
    /// A layer of a container image: an archive that may be empty, in which whiteouts have their meaning.
    ImageLayer,
}

/// Where the data of a file to be added lies.
#[derive(Debug)]
pub(crate) enum DraftData {
    Folder { identity: Identity, mtime: PackedTime },
    Archive { at: u64 },
    Host(HostFile),
}

/// The kind of a node to be added.
#[derive(Debug)]
pub(crate) enum DraftKind {
    Directory,
    /// `segments` are (offset, length), in order, apart, not empty; `None` for a dense file.
    File {
        size: u64,
        data: DraftData,
        segments: Option<Vec<(u64, u64)>>,
    },
    Symlink(Vec<u8>),
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
    Socket,
}

/// A node to be added, as described by its source.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) kind: DraftKind,
    pub(crate) meta: Meta,
    pub(crate) xattrs: Vec<Xattr>,
}

/// The tree under construction.
pub(crate) struct Builder<'o> {
    pub(crate) options: &'o Options,
    pub(crate) nodes: Vec<Node>,
    pub(crate) entries: Vec<RawEntry>,
    pub(crate) arena: Arena,
    pub(crate) xattr_sets: XattrSets,
    pub(crate) files: Vec<FileData>,
    pub(crate) host_files: Vec<HostFile>,
    /// Paths in their directories of files that later layers link.
    pub(crate) linked: HashMap<u32, Box<[u8]>>,
    pub(crate) lists: SegmentLists,
    pub(crate) sources: Vec<SourceHandle>,
    pub(crate) places: Vec<SourceDevice>,
    place_numbers: HashMap<SourceDevice, u16>,
    pub(crate) left_out: BTreeMap<Box<[u8]>, u64>,
    pub(crate) warnings: Vec<String>,
    /// How the last container image is to be run.
    pub(crate) image_config: Option<String>,
    /// Bytes of everything added: data, directories, attributes.
    size: u64,
    /// Directories added because entries lie below them.
    implied: u64,
    /// Directories whose content from layers before this one is hidden.
    pub(crate) floors: HashMap<NodeId, u16>,
    index: Option<HashTable<u32>>,
    hasher: RandomState,
    /// Whether there are several sources.
    several: bool,
    /// Whether the current layer is a container image's.
    image_layer: bool,
}

impl<'o> Builder<'o> {
    /// A tree with a root directory that no source describes.
    pub(crate) fn new(options: &'o Options, several: bool) -> Self {
        let mut builder = Self {
            options,
            nodes: Vec::new(),
            entries: Vec::new(),
            arena: Arena::default(),
            xattr_sets: XattrSets::default(),
            files: Vec::new(),
            host_files: Vec::new(),
            linked: HashMap::new(),
            lists: SegmentLists::default(),
            sources: Vec::new(),
            places: Vec::new(),
            place_numbers: HashMap::new(),
            left_out: BTreeMap::new(),
            warnings: Vec::new(),
            image_config: None,
            size: 0,
            implied: 0,
            floors: HashMap::new(),
            index: None,
            hasher: RandomState::new(),
            several,
            image_layer: false,
        };
        let kind = NodeKind::Directory { first: 0, count: 0 };
        let root = builder.node_of(kind, options.root_meta(options.default_directory()), 0);
        builder.nodes.push(root);
        builder
    }

    /// Starts the next layer.
    pub(crate) fn begin_layer(&mut self, source: SourceHandle, kind: LayerKind) -> Result<(), Error> {
        if self.sources.len() == usize::from(u16::MAX) {
            return Err(Error::TooMany { what: "sources", limit: u64::from(u16::MAX) });
        }
        let first = self.sources.is_empty();
        self.sources.push(source);
        self.image_layer = kind == LayerKind::ImageLayer;
        let indexed = kind != LayerKind::Folder;
        if self.index.is_none() && (indexed || !first) {
            let mut index = HashTable::with_capacity(self.entries.len());
            for at in 0..self.entries.len() {
                let hash = |at: &u32| hash_of(&self.hasher, &self.arena, &self.entries[usize_of(*at)]);
                let at = number(at, "names")?;
                index.insert_unique(hash(&at), at, hash);
            }
            self.index = Some(index);
        }
        Ok(())
    }

    /// Drops what is only needed to add more: the index would count at the moment of peak memory use.
    pub(crate) fn close(&mut self) {
        self.index = None;
    }

    /// The source of the current layer.
    pub(crate) fn source(&self) -> &SourceHandle {
        self.sources.last().expect("a layer is begun before anything is added to it")
    }

    fn layer(&self) -> u16 {
        low16(u64_of(self.sources.len())) - 1
    }

    /// An error about an entry of the current source.
    pub(crate) fn refused(&self, path: &[u8], reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Refused { path: self.source().shown(path), reason: reason.into() }
    }

    /// The entry of `name` in `dir`, even if it is hidden or removed.
    fn find_entry(&self, dir: NodeId, name: &[u8]) -> Option<usize> {
        let hash = self.hasher.hash_one((dir.get(), name));
        let same = |at: &u32| {
            let entry = &self.entries[usize_of(*at)];
            entry.parent == dir.get() && self.arena.name(entry.name) == name
        };
        self.index.as_ref()?.find(hash, same).map(|at| usize_of(*at))
    }

    /// The root directory.
    pub(crate) fn root(&self) -> Dir {
        Dir::new(NodeId::ROOT, 0, &self.floors)
    }

    /// A directory that is an entry of `dir`.
    pub(crate) fn below(&self, dir: Dir, node: NodeId) -> Dir {
        dir.below(node, &self.floors)
    }

    fn visible(&self, dir: Dir, name: &[u8]) -> Option<&RawEntry> {
        self.find_entry(dir.node, name).map(|at| &self.entries[at]).filter(|entry| dir.shows(entry))
    }

    /// The node of `name` in `dir`.
    pub(crate) fn lookup(&self, dir: Dir, name: &[u8]) -> Option<NodeId> {
        self.visible(dir, name).map(|entry| NodeId::new(entry.node))
    }

    /// Whether no entry of the current layer has described `name` in `dir`.
    pub(crate) fn is_from_below(&self, dir: Dir, name: &[u8]) -> bool {
        self.visible(dir, name).is_some_and(|entry| entry.layer < self.layer())
    }

    /// Where in its archive the data of a file of the current layer starts, and its size.
    pub(crate) fn own_file(&self, dir: Dir, name: &[u8]) -> Option<(u64, u64)> {
        let node = self.lookup(dir, name).filter(|_| !self.is_from_below(dir, name))?;
        let NodeKind::File { size, data } = self.nodes[node.index()].kind else { return None };
        match self.files[usize_of(data)] {
            FileData::Archive { at, segments: DENSE, .. } => Some((at, size)),
            _ => None,
        }
    }

    /// Marks the entry as part of the current layer.
    pub(crate) fn touch(&mut self, dir: Dir, name: &[u8]) {
        if let Some(at) = self.find_entry(dir.node, name) {
            self.entries[at].layer = self.layer();
        }
    }

    /// Adds a warning about an entry of the current source.
    pub(crate) fn warn(&mut self, path: &[u8], text: &str) {
        self.warnings.push(format!("{}: {text}", self.source().shown(path)));
    }

    pub(crate) fn is_directory(&self, node: NodeId) -> bool {
        self.nodes[node.index()].is_directory()
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, node: NodeId) -> Option<&[u8]> {
        match self.nodes[node.index()].kind {
            NodeKind::Symlink { at, len } => {
                Some(&self.arena.0[usize_of(at)..usize_of(at) + usize::from(len)])
            }
            _ => None,
        }
    }

    /// Adds `draft` to `dir` or merges it with the directory that is there; `path` is for errors.
    pub(crate) fn put(&mut self, dir: Dir, name: &[u8], path: &[u8], draft: Draft) -> Result<NodeId, Error> {
        if let Some(fault) = name_fault(name) {
            return Err(self.refused(path, fault));
        }
        if let (DraftKind::Directory, Some(old)) = (&draft.kind, self.lookup(dir, name))
            && self.is_directory(old)
        {
            self.describe_directory(old, draft)?;
            self.touch(dir, name);
            return Ok(old);
        }
        let node = self.add_node(path, draft)?;
        self.set_entry(dir, name, node)?;
        Ok(node)
    }

    /// Gives a node one more name.
    pub(crate) fn link(&mut self, dir: Dir, name: &[u8], path: &[u8], node: NodeId) -> Result<(), Error> {
        if let Some(fault) = name_fault(name) {
            return Err(self.refused(path, fault));
        }
        self.set_entry(dir, name, node)
    }

    /// Keeps the path of a file that may get another name: that may be the one that comes first in the tree, and
    /// the file of a directory stays where it is.
    pub(crate) fn keep_path(&mut self, node: NodeId, path: &[u8]) {
        if let NodeKind::File { data, .. } = self.nodes[node.index()].kind
            && matches!(self.files[usize_of(data)], FileData::Folder { .. })
        {
            self.linked.entry(data).or_insert_with(|| path.into());
        }
    }

    fn set_entry(&mut self, dir: Dir, name: &[u8], node: NodeId) -> Result<(), Error> {
        let layer = self.layer();
        if let Some(at) = self.find_entry(dir.node, name) {
            (self.entries[at].node, self.entries[at].layer) = (node.get(), layer);
            return Ok(());
        }
        let stored = self.store_name(name)?;
        let at = number(self.entries.len(), "names")?;
        self.entries.push(RawEntry { parent: dir.node.get(), name: stored, node: node.get(), layer });
        if let Some(index) = &mut self.index {
            let hash = |at: &u32| hash_of(&self.hasher, &self.arena, &self.entries[usize_of(*at)]);
            index.insert_unique(hash(&at), at, hash);
        }
        Ok(())
    }

    /// Gives a directory the metadata of `draft`, whose kind is ignored.
    pub(crate) fn describe_directory(&mut self, dir: NodeId, draft: Draft) -> Result<(), Error> {
        let mut meta = draft.meta;
        match dir == NodeId::ROOT {
            true => meta = self.options.root_meta(meta),
            false => self.options.adjust(&mut meta, true, false),
        }
        let xattrs = self.xattr_set(draft.xattrs, meta.mode)?;
        let old = &self.nodes[dir.index()];
        let mut node = self.node_of(old.kind, meta, xattrs);
        (node.parent, node.name) = (old.parent, old.name);
        self.nodes[dir.index()] = node;
        Ok(())
    }

    /// Adds a directory that the source implies but does not describe.
    pub(crate) fn put_default_directory(
        &mut self,
        dir: Dir,
        name: &[u8],
        path: &[u8],
    ) -> Result<NodeId, Error> {
        self.implied += 1;
        if self.implied > IMPLIED_MAX + IMPLIED_EACH * u64_of(self.entries.len()).saturating_sub(self.implied)
        {
            let reason = "too many directories are implied by paths, and not in the archive themselves";
            return Err(self.refused(path, reason));
        }
        let draft =
            Draft { kind: DraftKind::Directory, meta: self.options.default_directory(), xattrs: Vec::new() };
        self.put(dir, name, path, draft)
    }

    /// Adds a node without a name.
    pub(crate) fn add_node(&mut self, path: &[u8], draft: Draft) -> Result<NodeId, Error> {
        let id = number(self.nodes.len(), "files and directories")?;
        let mut meta = draft.meta;
        let (is_directory, is_symlink) =
            (matches!(draft.kind, DraftKind::Directory), matches!(draft.kind, DraftKind::Symlink(_)));
        self.options.adjust(&mut meta, is_directory, is_symlink);
        self.count(path, &draft.kind)?;
        self.check_device(path, &draft.kind)?;
        let kind = match draft.kind {
            DraftKind::Directory => NodeKind::Directory { first: 0, count: 0 },
            DraftKind::File { size, data, segments } => {
                NodeKind::File { size, data: self.store_data(data, segments)? }
            }
            DraftKind::Symlink(target) => self.store_target(path, &target)?,
            DraftKind::CharDevice(major, minor) => NodeKind::CharDevice { major, minor },
            DraftKind::BlockDevice(major, minor) => NodeKind::BlockDevice { major, minor },
            DraftKind::Fifo => NodeKind::Fifo,
            DraftKind::Socket => NodeKind::Socket,
        };
        let xattrs = self.xattr_set(draft.xattrs, meta.mode)?;
        let node = self.node_of(kind, meta, xattrs);
        self.nodes.push(node);
        Ok(NodeId::new(id))
    }

    /// Refuses a number of a device that an inode would cut: archives have room for larger ones.
    fn check_device(&self, path: &[u8], kind: &DraftKind) -> Result<(), Error> {
        let (&DraftKind::CharDevice(major, minor) | &DraftKind::BlockDevice(major, minor)) = kind else {
            return Ok(());
        };
        if (DeviceNumber { major, minor }).fits() {
            return Ok(());
        }
        let DeviceNumber { major: majors, minor: minors } = DeviceNumber::LARGEST;
        let reason =
            format!("an inode has no room for the device {major}:{minor}, but up to {majors}:{minors}");
        Err(self.refused(path, reason))
    }

    /// Adds to the total size, and compares it with the limit.
    fn count(&mut self, path: &[u8], kind: &DraftKind) -> Result<(), Error> {
        let more = match kind {
            DraftKind::Directory => DIRECTORY_SIZE,
            DraftKind::File { segments: Some(segments), .. } => {
                segments.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len))
            }
            DraftKind::File { size, .. } => *size,
            _ => 0,
        };
        self.size = self.size.saturating_add(more);
        match self.options.max_size {
            Some(limit) if self.size > limit.get() => {
                Err(Error::TooLarge { path: self.source().shown(path), limit })
            }
            _ => Ok(()),
        }
    }

    /// The metadata of what nothing describes.
    pub(crate) fn default_directory(&self) -> Meta {
        self.options.default_directory()
    }

    fn node_of(&self, kind: NodeKind, meta: Meta, xattrs: u32) -> Node {
        Node {
            kind,
            atime: PackedTime::new(meta.atime),
            mtime: PackedTime::new(meta.mtime),
            ctime: PackedTime::new(meta.ctime),
            crtime: meta.crtime.map_or(PackedTime::NONE, PackedTime::new),
            parent: 0,
            name: 0,
            uid: meta.uid,
            gid: meta.gid,
            xattrs,
            links: 0,
            mode: meta.mode,
        }
    }

    fn store_name(&mut self, name: &[u8]) -> Result<u32, Error> {
        let at = number(self.arena.0.len(), "bytes of names")?;
        // `name_fault` has bounded the length.
        self.arena.0.push(u8::try_from(name.len()).expect("a name has at most 255 bytes"));
        self.arena.0.extend_from_slice(name);
        Ok(at)
    }

    fn store_target(&mut self, path: &[u8], target: &[u8]) -> Result<NodeKind, Error> {
        if let Some(fault) = target_fault(target) {
            return Err(self.refused(path, fault));
        }
        let at = number(self.arena.0.len(), "bytes of names")?;
        self.arena.0.extend_from_slice(target);
        let len = u16::try_from(target.len()).expect("a target has at most 4095 bytes");
        Ok(NodeKind::Symlink { at, len })
    }

    fn store_data(&mut self, data: DraftData, segments: Option<Vec<(u64, u64)>>) -> Result<u32, Error> {
        let segments = match segments {
            None => DENSE,
            Some(list) => {
                let id = number(self.lists.ends.len(), "sparse files")?;
                self.lists.segments.extend_from_slice(&list);
                self.lists.ends.push(self.lists.segments.len());
                id
            }
        };
        let source = self.layer();
        let id = number(self.files.len(), "files")?;
        let data = match data {
            DraftData::Folder { identity: Identity { device, inode }, mtime } => FileData::Folder {
                inode,
                mtime,
                segments,
                place: self.place(SourceDevice { source, device })?,
            },
            DraftData::Archive { at } => FileData::Archive { at, segments, source },
            DraftData::Host(file) => {
                let at = number(self.host_files.len(), "files")?;
                self.host_files.push(file);
                FileData::Host { at, segments }
            }
        };
        self.files.push(data);
        Ok(id)
    }

    /// The number of a place.
    fn place(&mut self, place: SourceDevice) -> Result<u16, Error> {
        if let Some(known) = self.place_numbers.get(&place) {
            return Ok(*known);
        }
        let limit = u64::from(u16::MAX);
        let next = u16::try_from(self.places.len()).map_err(|_| Error::TooMany { what: "devices", limit })?;
        self.places.push(place);
        self.place_numbers.insert(place, next);
        Ok(next)
    }

    /// The stored form of the set of a node with a mode, without what ext4 can't store.
    fn xattr_set(&mut self, mut xattrs: Vec<Xattr>, mode: u16) -> Result<u32, Error> {
        if self.options.no_attributes {
            return Ok(0);
        }
        xattrs.retain(|xattr| {
            let fits = super::xattr::fits_ext4(&xattr.name);
            if !fits {
                *self.left_out.entry(xattr.name.clone()).or_default() += 1;
            }
            fits
        });
        let stored = self.xattr_sets.store(xattrs)?;
        self.xattr_sets.chmod(stored, mode)
    }

    /// Applies `name` in `dir` if it is a whiteout; returns false if it is an ordinary name.
    pub(crate) fn whiteout(&mut self, dir: Dir, name: &[u8]) -> bool {
        if !self.honours_whiteouts() {
            return false;
        }
        let layer = self.layer();
        match whiteout(name) {
            None => return false,
            Some(Whiteout::Ignore) => {}
            Some(Whiteout::Opaque) => {
                self.floors.insert(dir.node, layer);
            }
            Some(Whiteout::Remove(name)) => match self.find_entry(dir.node, name) {
                Some(at) if self.entries[at].layer < layer => self.entries[at].node = GONE,
                // This layer has the name too: entries of earlier layers below it are removed, those of this
                // layer stay.
                Some(at) if self.entries[at].node != GONE => {
                    self.floors.insert(NodeId::new(self.entries[at].node), layer);
                }
                _ => {}
            },
        }
        true
    }

    /// Whether whiteouts are honoured.
    pub(crate) fn honours_whiteouts(&self) -> bool {
        self.several || self.image_layer
    }

    /// Whether the current layer is one of a container image.
    pub(crate) fn is_image_layer(&self) -> bool {
        self.image_layer
    }

    /// How an entry of the current source is named in errors.
    pub(crate) fn shown(&self, path: &[u8]) -> ShownPath {
        self.source().shown(path)
    }
}

fn hash_of(hasher: &RandomState, arena: &Arena, entry: &RawEntry) -> u64 {
    hasher.hash_one((entry.parent, arena.name(entry.name)))
}

/// A count as the number of the next thing; the last value is kept for "none".
fn number(count: usize, what: &'static str) -> Result<u32, Error> {
    u32::try_from(count)
        .ok()
        .filter(|n| *n < u32::MAX)
        .ok_or(Error::TooMany { what, limit: u64::from(u32::MAX) - 1 })
}
