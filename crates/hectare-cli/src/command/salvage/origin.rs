//! What was salvaged as the origin of a copy.

use crate::copy::host::Below;
use crate::copy::{Content, Meta, Named, Origin, Reason, Xattrs};
use hectare_engine::{Kind, Volume};
use hectare_host::{FileType, Identity};
use hectare_salvage::{File, Metadata, NodeId, Salvage};
use hectare_units::InodeNr;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The tree that was found.
pub(super) struct Found {
    salvage: Arc<Salvage>,
    /// What is in the target already.
    complete: HashSet<NodeId>,
}

impl Found {
    /// All of it.
    pub(super) fn all(salvage: Arc<Salvage>) -> Self {
        Self { salvage, complete: HashSet::new() }
    }

    /// Without the files that are complete in a directory. A file gets its time when all its content was
    /// written, so one with the right size and time is. Files with several names are always copied again.
    pub(super) fn without_complete(salvage: Arc<Salvage>, path: &Path) -> std::io::Result<Self> {
        let top = Below::open(path)?;
        let is_complete = |node: &NodeId| {
            let meta = salvage.metadata(*node);
            meta.kind == Kind::File && meta.links == 1 && has(&top, &salvage.path(*node), &meta)
        };
        let complete = salvage.nodes().filter(is_complete).collect();
        Ok(Self { salvage, complete })
    }

    pub(super) fn root(&self) -> NodeId {
        self.salvage.root()
    }
}

/// Whether a file with that size and time is below a directory.
fn has(top: &Below, path: &[u8], meta: &Metadata) -> bool {
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[][..], path),
    };
    top.stat(parent, name).is_some_and(|there| {
        let time = (there.mtime.seconds, there.mtime.nanoseconds);
        let is_file = there.file_type == FileType::RegularFile;
        is_file && there.size == meta.size && time == (meta.mtime.seconds, meta.mtime.nanoseconds)
    })
}

impl Content for File {
    fn size(&self) -> u64 {
        Self::size(self)
    }

    fn ranges(&self) -> Result<Vec<(u64, u64)>, Reason> {
        Ok(Self::ranges(self))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, Reason> {
        Ok(Self::read_at(self, at, buffer))
    }
}

impl Origin for Found {
    const ORDERED: bool = true;
    type Node = NodeId;
    type File = File;
    type Children = std::vec::IntoIter<Named<NodeId>>;

    fn meta(&self, node: &NodeId, _follow: bool) -> Result<Meta, Reason> {
        let meta = self.salvage.metadata(*node);
        Ok(Meta {
            kind: meta.kind,
            mode: meta.permissions,
            uid: meta.uid,
            gid: meta.gid,
            atime: meta.atime,
            mtime: meta.mtime,
            links: meta.links,
            id: Identity { device: 0, inode: node.get() },
            device: meta.device,
        })
    }

    fn children(&self, node: &NodeId, _meta: &Meta) -> Result<Self::Children, Reason> {
        let wanted = self.salvage.children(*node).filter(|(_, child)| !self.complete.contains(child));
        let named: Vec<_> = wanted.map(|(name, child)| (name.to_vec(), child)).collect();
        Ok(named.into_iter())
    }

    fn next_child(&self, children: &mut Self::Children) -> Option<Result<Named<NodeId>, Reason>> {
        children.next().map(Ok)
    }

    fn open(&self, node: &NodeId, _follow: bool, _meta: &Meta) -> Result<File, Reason> {
        match self.salvage.left_out(*node) {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(self.salvage.open(*node)),
        }
    }

    fn read_link(&self, node: &NodeId) -> Result<Vec<u8>, Reason> {
        let target = self.salvage.read_link(*node);
        if target.is_empty() { Err("the target of the link is lost".to_owned()) } else { Ok(target) }
    }

    fn xattrs(&self, node: &NodeId, _follow: bool) -> Result<Xattrs, Reason> {
        Ok(self.salvage.xattrs(*node))
    }

    fn inode_in(&self, _node: &NodeId, _volume: &Volume) -> Option<InodeNr> {
        None
    }

    fn show(&self, path: &[u8]) -> String {
        format!("/{}", crate::name::shown(path))
    }

    fn is_plain_file(&self, node: &NodeId) -> bool {
        self.salvage.is_plain_file(*node)
    }

    fn place(&self, node: &NodeId) -> (u64, u64) {
        self.salvage.place(*node).unwrap_or_default()
    }

    fn read_ahead(&self, range: Range<u64>) {
        self.salvage.read_ahead(range);
    }
}
