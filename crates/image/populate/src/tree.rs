//! The tree: the content of an image, without the data of its files.
//!
//! A million entries have to fit beside everything else in 256 MiB, so nodes are fixed records of 80 bytes in
//! one vector, names lie in one arena behind a length byte, a directory is a run of 8-byte entries sorted by
//! name, and equal sets of extended attributes are stored once. A dense file has no list of segments.
//!
//! Invariants: node 0 is the root and a directory; every node is reachable from it; a directory has one name,
//! other nodes may have many (hard links) and remember the first; ids follow from the content alone.
//!
//! A tree is finished: there is no way to change one. Merging layers is the builder's job.

mod duplicates;

pub(crate) use duplicates::Duplicates;

use crate::handle::SourceHandle;
use crate::time::{PackedTime, Timestamp};
use hectare_host::Identity;
use hectare_units::{Bytes, u64_of, usize_of};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A file, directory or other object of a tree; 0 is the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

impl NodeId {
    /// The root directory of every tree.
    pub const ROOT: Self = Self(0);

    pub(crate) const fn new(n: u32) -> Self {
        Self(n)
    }
    /// The raw number, counted from 0.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        usize_of(self.0)
    }
}

/// Mode, owner and times of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Permission bits, set-id bits and the sticky bit: at most 0o7777, without the file type.
    pub mode: u16,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the metadata.
    pub ctime: Timestamp,
    /// Creation, where the source knows it.
    pub crtime: Option<Timestamp>,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<'t> {
    /// A directory; see [`Tree::children`].
    Directory,
    /// A regular file; see [`Tree::segments`] and [`Tree::opener`].
    File {
        /// Its length, holes included.
        size: Bytes,
    },
    /// A symbolic link.
    Symlink {
        /// What it points at: 1 to 4095 bytes, no NUL among them.
        target: &'t [u8],
    },
    /// A character device.
    CharDevice {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// One extended attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Xattr {
    /// Its full name ("user.comment", "system.posix_acl_access").
    pub name: Box<[u8]>,
    /// Its value as `getxattr` gives it; for an ACL this is the system-call form, not ext4's.
    pub value: Box<[u8]>,
}

/// A set of extended attributes; nodes with equal sets have equal ids. Counted from 0 without gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct XattrSetId(u32);

impl XattrSetId {
    /// The id as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        usize_of(self.0)
    }
}

/// A run of data in a file; what lies between segments is a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it starts in the file.
    pub at: Bytes,
    /// How long it is; never 0.
    pub len: Bytes,
    /// Where its bytes start in what [`Opener::open`](crate::Opener::open) opens.
    pub source: Bytes,
}

/// How much a tree holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Directories, the root included.
    pub directories: u64,
    /// Regular files, hard links counted once.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub special: u64,
    /// Directory entries without `.` and `..`.
    pub names: u64,
    /// Bytes of file data, holes not counted.
    pub data: Bytes,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeKind {
    Directory { first: u32, count: u32 },
    File { size: u64, data: u32 },
    Symlink { at: u32, len: u16 },
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
    Socket,
}

/// A node as stored. `parent` and `name` are those of its first directory entry.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) atime: PackedTime,
    pub(crate) mtime: PackedTime,
    pub(crate) ctime: PackedTime,
    pub(crate) crtime: PackedTime,
    pub(crate) parent: u32,
    pub(crate) name: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 for none, else one more than the set's id.
    pub(crate) xattrs: u32,
    pub(crate) links: u32,
    pub(crate) mode: u16,
}

// A million nodes take 80 MB; a larger record breaks the memory budget of 256 MiB for a million entries
// (80 + 24 for the data reference + 8 for the entry + a name of about 17).
const _: () = assert!(size_of::<Node>() == 80);
const _: () = assert!(size_of::<FileData>() == 24);

impl Node {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.kind, NodeKind::Directory { .. })
    }
}

/// Where a file's bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileData {
    /// In a directory, under the node's own path or one that was kept ([`Tree::linked`]).
    /// Inode, device and time show whether it is still the same
    /// file.
    Folder { inode: u64, mtime: PackedTime, segments: u32, place: u16 },
    /// In an archive, from byte `at` on, segments one after the other.
    Archive { at: u64, segments: u32, source: u16 },
    /// A file of the host that was named by itself; `at` is its index among those.
    Host { at: u32, segments: u32 },
}

/// A file of the host that was named by itself, as it was when it was added.
#[derive(Clone, Debug)]
pub(crate) struct HostFile {
    pub(crate) path: Box<[u8]>,
    pub(crate) identity: Identity,
    pub(crate) mtime: PackedTime,
}

/// The location of a directory's files: a source and a device in it. Stored once, to keep [`FileData`] small.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SourceDevice {
    pub(crate) source: u16,
    pub(crate) device: u64,
}

/// The `segments` of a file without holes.
pub(crate) const DENSE: u32 = u32::MAX;

/// A directory entry as stored: where its name lies in the arena, and the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: u32,
    pub(crate) node: u32,
}

/// Names behind a length byte, and link targets.
#[derive(Debug, Default)]
pub(crate) struct Arena(pub(crate) Vec<u8>);

impl Arena {
    /// The name stored at `at`.
    pub(crate) fn name(&self, at: u32) -> &[u8] {
        let at = usize_of(at);
        let len = usize::from(self.0[at]);
        &self.0[at + 1..at + 1 + len]
    }

    fn slice(&self, at: u32, len: u16) -> &[u8] {
        &self.0[usize_of(at)..usize_of(at) + usize::from(len)]
    }
}

/// Lists of data segments: (offset in the file, length), list after list.
#[derive(Debug, Default)]
pub(crate) struct SegmentLists {
    pub(crate) segments: Vec<(u64, u64)>,
    /// Where each list ends in `segments`.
    pub(crate) ends: Vec<usize>,
}

impl SegmentLists {
    fn list(&self, id: u32) -> &[(u64, u64)] {
        let id = usize_of(id);
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.segments[start..self.ends[id]]
    }
}

/// The content of an image. See the [crate] documentation.
#[derive(Debug)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) arena: Arena,
    pub(crate) xattr_sets: Vec<Box<[Xattr]>>,
    pub(crate) files: Vec<FileData>,
    pub(crate) host_files: Vec<HostFile>,
    /// Paths in their directories, by their data, of files that later layers linked.
    pub(crate) linked: HashMap<u32, Box<[u8]>>,
    pub(crate) lists: SegmentLists,
    pub(crate) sources: Vec<SourceHandle>,
    pub(crate) places: Vec<SourceDevice>,
    pub(crate) left_out: BTreeMap<Box<[u8]>, u64>,
    pub(crate) warnings: Vec<String>,
    pub(crate) image_config: Option<String>,
    /// The files to be sealed by fs-verity.
    pub(crate) sealed: BTreeSet<u32>,
    /// Files with the content of others.
    pub(crate) duplicates: Duplicates,
}

impl Tree {
    /// How many nodes there are; ids run from 0 to one less.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Always false: a tree has a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether a file is to be sealed.
    pub(crate) fn is_sealed(&self, id: NodeId) -> bool {
        self.sealed.contains(&id.get())
    }

    /// The files to be sealed.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.sealed.iter().map(|id| NodeId(*id))
    }

    /// All nodes. A directory comes before everything in it, and what is in one directory comes together.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        // The builder refuses more than 2^32 - 1 nodes.
        let count = u32::try_from(self.nodes.len()).expect("the builder counts nodes in 32 bits");
        (0..count).map(NodeId)
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// What a node is.
    ///
    /// # Panics
    /// If the id is of another tree. So do the other functions that take one.
    #[must_use]
    pub fn kind(&self, id: NodeId) -> Kind<'_> {
        match self.node(id).kind {
            NodeKind::Directory { .. } => Kind::Directory,
            NodeKind::File { size, .. } => Kind::File { size: Bytes::new(size) },
            NodeKind::Symlink { at, len } => Kind::Symlink { target: self.arena.slice(at, len) },
            NodeKind::CharDevice { major, minor } => Kind::CharDevice { major, minor },
            NodeKind::BlockDevice { major, minor } => Kind::BlockDevice { major, minor },
            NodeKind::Fifo => Kind::Fifo,
            NodeKind::Socket => Kind::Socket,
        }
    }

    /// Mode, owner and times of a node.
    #[must_use]
    pub fn meta(&self, id: NodeId) -> Meta {
        let node = self.node(id);
        let time = |packed: PackedTime| packed.get().unwrap_or_default();
        Meta {
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            atime: time(node.atime),
            mtime: time(node.mtime),
            ctime: time(node.ctime),
            crtime: node.crtime.get(),
        }
    }

    /// The extended attributes of a node, sorted by name.
    #[must_use]
    pub fn xattrs(&self, id: NodeId) -> &[Xattr] {
        self.xattr_set(id).map_or(&[], |set| &self.xattr_sets[set.index()])
    }

    /// Which set of extended attributes a node has; `None` if it has none.
    #[must_use]
    pub fn xattr_set(&self, id: NodeId) -> Option<XattrSetId> {
        self.node(id).xattrs.checked_sub(1).map(XattrSetId)
    }

    /// All distinct sets of extended attributes; an [`XattrSetId`] is an index into it.
    #[must_use]
    pub fn xattr_sets(&self) -> &[Box<[Xattr]>] {
        &self.xattr_sets
    }

    /// The link count: the number of names of a node; for a directory 2 more than its subdirectories.
    #[must_use]
    pub fn links(&self, id: NodeId) -> u32 {
        self.node(id).links
    }

    /// The directory that holds the first name of a node; the root is its own parent.
    #[must_use]
    pub fn parent(&self, id: NodeId) -> NodeId {
        NodeId(self.node(id).parent)
    }

    /// The first name of a node; empty for the root.
    #[must_use]
    pub fn name(&self, id: NodeId) -> &[u8] {
        if id == NodeId::ROOT { &[] } else { self.arena.name(self.node(id).name) }
    }

    /// The path of a node by its first name, from the root, without a leading `/`; empty for the root.
    #[must_use]
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = id;
        while at != NodeId::ROOT {
            names.push(self.name(at));
            at = self.parent(at);
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The entries of a directory, sorted by the bytes of their names; nothing for other nodes.
    #[must_use]
    pub fn children(&self, id: NodeId) -> Children<'_> {
        let entries = match self.node(id).kind {
            NodeKind::Directory { first, count } => {
                &self.entries[usize_of(first)..usize_of(first) + usize_of(count)]
            }
            _ => &[],
        };
        Children { arena: &self.arena, entries: entries.iter() }
    }

    /// The node at a path from the root, without a leading slash; links are not followed.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let mut at = NodeId::ROOT;
        for name in names {
            let NodeKind::Directory { first, count } = self.node(at).kind else { return None };
            let entries = &self.entries[usize_of(first)..usize_of(first) + usize_of(count)];
            let found = entries.binary_search_by(|entry| self.arena.name(entry.name).cmp(name)).ok()?;
            at = NodeId(entries[found].node);
        }
        Some(at)
    }

    /// The runs of data in a regular file, in order; nothing for other nodes and for files that are all hole.
    #[must_use]
    pub fn segments(&self, id: NodeId) -> Segments<'_> {
        let NodeKind::File { size, data } = self.node(id).kind else {
            return Segments { list: List::Dense(None), source: Source::AsInFile };
        };
        let (segments, source) = match self.files[usize_of(data)] {
            FileData::Folder { segments, .. } | FileData::Host { segments, .. } => {
                (segments, Source::AsInFile)
            }
            FileData::Archive { at, segments, .. } => (segments, Source::Packed(at)),
        };
        let list = match segments {
            DENSE => List::Dense((size > 0).then_some((0, size))),
            id => List::Sparse(self.lists.list(id).iter()),
        };
        Segments { list, source }
    }

    /// How much there is of everything.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { names: u64_of(self.entries.len()), ..Totals::default() };
        for id in self.ids() {
            match self.kind(id) {
                Kind::Directory => totals.directories += 1,
                Kind::Symlink { .. } => totals.symlinks += 1,
                Kind::File { .. } => {
                    totals.files += 1;
                    for segment in self.segments(id) {
                        // Sizes come from outside; a sum beyond 2^64 only has to stay too large.
                        totals.data = Bytes::new(totals.data.get().saturating_add(segment.len.get()));
                    }
                }
                _ => totals.special += 1,
            }
        }
        totals
    }

    /// The warnings about the sources, a line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How the container image among the sources is to be run, as JSON: the `config` object of the OCI image
    /// configuration (entry point, environment, user, working directory ...). Of several images the last's;
    /// `None` if there is none among the sources.
    #[must_use]
    pub fn image_config(&self) -> Option<&str> {
        self.image_config.as_deref()
    }

    /// Extended attributes that ext4 can't store and that were therefore left out: full name, and the number
    /// of nodes with it.
    pub fn left_out(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.left_out.iter().map(|(name, count)| (&**name, *count))
    }
}

/// The entries of a directory: name and node, sorted by name.
#[derive(Clone, Debug)]
pub struct Children<'t> {
    arena: &'t Arena,
    entries: std::slice::Iter<'t, Entry>,
}

impl<'t> Iterator for Children<'t> {
    type Item = (&'t [u8], NodeId);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|entry| (self.arena.name(entry.name), NodeId(entry.node)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Children<'_> {}

#[derive(Clone, Debug)]
enum List<'t> {
    Dense(Option<(u64, u64)>),
    Sparse(std::slice::Iter<'t, (u64, u64)>),
}

/// Where the bytes of the next segment lie in the source.
#[derive(Clone, Debug)]
enum Source {
    AsInFile,
    Packed(u64),
}

/// The runs of data in a file, in order and apart from each other.
#[derive(Clone, Debug)]
pub struct Segments<'t> {
    list: List<'t>,
    source: Source,
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let (at, len) = match &mut self.list {
            List::Dense(segment) => segment.take()?,
            List::Sparse(list) => *list.next()?,
        };
        let source = match &mut self.source {
            Source::AsInFile => at,
            Source::Packed(next) => {
                let source = *next;
                *next += len; // the archive's reader has checked that all of it lies in the archive
                source
            }
        };
        Some(Segment { at: Bytes::new(at), len: Bytes::new(len), source: Bytes::new(source) })
    }
}
