//! The node table: inodes that the kernel has looked up and not forgotten, or has open.
//!
//! Every answer that names an inode counts a lookup; the kernel returns lookups in bulk (`FORGET`). An inode
//! is pinned in the engine for as long as it is counted here, so that an unlinked one lives until the kernel
//! has forgotten *and* closed it. An open file is kept open here: for each of its handles, since each is
//! told once of writes that were lost, and once for reading and writing by any of them.
//!
//! Numbers are the volume's, except for the root: 1 for FUSE, 2 for ext4. A number that is not in the table
//! is refused (`ESTALE`), whatever the volume has under it: the kernel uses only numbers that it was given,
//! and some inodes (the journal) are internal.
//!
//! Invariant: nodes are dropped outside the table's locks, since dropping one may free an inode.

use crate::errno::Answer;
use crate::protocol::NodeId;
use crate::protocol::request::Handle;
use hectare_engine::{HeldInode, Metadata, OpenFile, Volume};
use hectare_units::InodeNr;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const SHARDS: u64 = 64;

/// The FUSE number of an inode.
pub(crate) fn node_id(nr: InodeNr) -> NodeId {
    if nr == InodeNr::ROOT { NodeId::ROOT } else { NodeId(nr.get().into()) }
}

/// An inode that the kernel knows.
pub(crate) struct Node {
    held: HeldInode,
    /// Open while the kernel keeps it open.
    file: Mutex<Option<Arc<OpenFile>>>,
    /// The error of the kernel's last writeback; 0 if there was none, or it has been reported.
    failure: AtomicI32,
}

impl Node {
    fn new(held: HeldInode) -> Self {
        Self { held, file: Mutex::default(), failure: AtomicI32::default() }
    }

    pub(crate) fn nr(&self) -> InodeNr {
        self.held.inode()
    }

    pub(crate) fn held(&self) -> &HeldInode {
        &self.held
    }

    pub(crate) fn metadata(&self) -> Answer<Metadata> {
        Ok(self.held.metadata()?)
    }

    /// Notes that data buffered by the kernel could not be written back.
    pub(crate) fn note_failure(&self, errno: Errno) {
        self.failure.store(errno.raw_os_error(), Ordering::Relaxed);
    }

    /// The error of the last failure that has not been reported.
    pub(crate) fn take_failure(&self) -> Option<Errno> {
        match self.failure.swap(0, Ordering::Relaxed) {
            0 => None,
            raw => Some(Errno::from_raw_os_error(raw)),
        }
    }

    /// The open file: the one that is kept open, or one opened for this request.
    pub(crate) fn file(&self) -> Answer<Arc<OpenFile>> {
        match &*self.file.lock() {
            Some(file) => Ok(Arc::clone(file)),
            None => Ok(Arc::new(self.held.open()?)),
        }
    }
}

struct Known {
    node: Arc<Node>,
    lookups: u64,
    handles: HashMap<Handle, Arc<OpenFile>>,
    /// How many of them may write, and by how many the file may be mapped, shared and for writing.
    writers: usize,
    mappers: usize,
}

impl Known {
    fn open(&mut self, handle: Handle, file: Arc<OpenFile>) {
        if self.handles.insert(handle, file).is_none() {
            self.writers += usize::from(handle.may_write());
            self.mappers += usize::from(handle.may_map());
        }
    }

    fn release(&mut self, handle: Handle) -> Option<Arc<OpenFile>> {
        let file = self.handles.remove(&handle)?;
        self.writers -= usize::from(handle.may_write());
        self.mappers -= usize::from(handle.may_map());
        Some(file)
    }
}

/// All inodes that the kernel knows.
pub(crate) struct Nodes {
    root: Arc<Node>,
    shards: Vec<Mutex<HashMap<u64, Known>>>,
    /// How many handles there have been.
    opens: AtomicU64,
}

impl Nodes {
    /// A table that contains the root.
    pub(crate) fn new(volume: &Volume) -> hectare_engine::Result<Self> {
        let root = Node::new(volume.hold_inode(InodeNr::ROOT)?);
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Ok(Self { root: Arc::new(root), shards, opens: AtomicU64::new(0) })
    }

    fn shard(&self, id: NodeId) -> &Mutex<HashMap<u64, Known>> {
        let index = usize::try_from(id.0 % SHARDS).unwrap_or(0);
        &self.shards[index]
    }

    /// The inode with this number.
    pub(crate) fn get(&self, id: NodeId) -> Answer<Arc<Node>> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let shard = self.shard(id).lock();
        shard.get(&id.0).map(|known| Arc::clone(&known.node)).ok_or_else(|| Errno::STALE.into())
    }

    /// Counts a lookup of an inode that an answer names.
    pub(crate) fn remember(&self, held: HeldInode) -> Arc<Node> {
        if held.inode() == InodeNr::ROOT {
            return Arc::clone(&self.root);
        }
        let id = node_id(held.inode());
        let mut surplus = None;
        let node = match self.shard(id).lock().entry(id.0) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.lookups = known.lookups.saturating_add(1);
                surplus = Some(held);
                Arc::clone(&known.node)
            }
            Entry::Vacant(free) => {
                let node = Arc::new(Node::new(held));
                let handles = HashMap::new();
                free.insert(Known { node: Arc::clone(&node), lookups: 1, handles, writers: 0, mappers: 0 });
                node
            }
        };
        drop(surplus);
        node
    }

    /// Returns lookups.
    pub(crate) fn forget(&self, id: NodeId, lookups: u64) {
        self.uncount(id, |known| known.lookups = known.lookups.saturating_sub(lookups));
    }

    /// Opens a file for a new handle.
    pub(crate) fn open(&self, id: NodeId, flags: u32) -> Answer<Handle> {
        let node = self.get(id)?;
        let file = Arc::new(node.held.open()?);
        let handle = Handle::new(self.opens.fetch_add(1, Ordering::Relaxed) + 1, flags);
        if let Some(known) = self.shard(id).lock().get_mut(&id.0) {
            node.file.lock().get_or_insert_with(|| Arc::clone(&file));
            known.open(handle, file);
        }
        Ok(handle)
    }

    /// The file that a handle has open; without one, one opened for this request.
    pub(crate) fn opened(&self, id: NodeId, handle: Handle) -> Answer<Arc<OpenFile>> {
        let opened =
            self.shard(id).lock().get(&id.0).and_then(|known| known.handles.get(&handle).map(Arc::clone));
        opened.map_or_else(|| self.get(id)?.file(), Ok)
    }

    /// Closes the file of a handle.
    pub(crate) fn release(&self, id: NodeId, handle: Handle) {
        // Dropped outside the table's locks, as nodes are.
        let mut closed = None;
        self.uncount(id, |known| closed = known.release(handle));
    }

    /// Whether a file is open for writing.
    pub(crate) fn has_writers(&self, id: NodeId) -> bool {
        self.has(id, |known| known.writers > 0)
    }

    /// Whether a file may be mapped, shared and for writing.
    pub(crate) fn may_be_mapped(&self, id: NodeId) -> bool {
        self.has(id, |known| known.mappers > 0)
    }

    fn has(&self, id: NodeId, has: impl Fn(&Known) -> bool) -> bool {
        self.shard(id).lock().get(&id.0).is_some_and(has)
    }

    fn uncount(&self, id: NodeId, uncount: impl FnOnce(&mut Known)) {
        let (node, closed) = {
            let mut shard = self.shard(id).lock();
            let Entry::Occupied(mut known) = shard.entry(id.0) else { return };
            uncount(known.get_mut());
            let (lookups, is_open) = (known.get().lookups, !known.get().handles.is_empty());
            let closed = if is_open { None } else { known.get().node.file.lock().take() };
            (if lookups == 0 && !is_open { Some(known.remove().node) } else { None }, closed)
        };
        drop(closed);
        drop(node);
    }
}
