//! A file system that answers every request at once: the upper limit of any server behind this session, for
//! benchmarking.
//!
//! Names and sizes are kept in memory, so that programs find the files they created; content is not, and
//! reads as whatever the buffer holds. It requests the same of the kernel as [`Adapter`](crate::Adapter), so
//! that both get the same requests.
//!
//! What it is not: correct. Permissions, times, links and renames over existing files are not kept, and
//! nothing is ever written anywhere.

use crate::adapter::{features, open_out, size_out, wanted};
use crate::attr::attr_out;
use crate::errno::Answer;
use crate::event_loop::Server;
use crate::options::{KEPT, TRANSFER_MAX};
use crate::protocol::NodeId;
use crate::protocol::init::{Features, Wanted};
use crate::protocol::reply::{Reply, entry, no_entry};
use crate::protocol::request::{Body, Request};
use crate::protocol::wire::{Attr, EntryOut, StatfsOut};
use hectare_engine::Kind;
use hectare_units::usize_of;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

/// What `statfs` reports: 4 TiB in blocks of 4 KiB.
const BLOCKS: u64 = 1 << 30;
const GENERATION: u32 = 0;

struct Node {
    kind: Kind,
    size: AtomicU64,
    names: Mutex<Names>,
}

/// A directory's names. A removed name leaves its position empty, so that a listing in progress can continue.
#[derive(Default)]
struct Names {
    places: HashMap<Vec<u8>, usize>,
    list: Vec<Option<(Vec<u8>, NodeId)>>,
}

impl Names {
    fn get(&self, name: &[u8]) -> Option<NodeId> {
        Some(self.list[*self.places.get(name)?].as_ref()?.1)
    }

    fn add(&mut self, name: &[u8], id: NodeId) {
        self.places.insert(name.to_owned(), self.list.len());
        self.list.push(Some((name.to_owned(), id)));
    }

    fn remove(&mut self, name: &[u8]) -> Option<NodeId> {
        let place = self.places.remove(name)?;
        Some(self.list[place].take()?.1)
    }
}

/// The file system.
pub(crate) struct Null {
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    next: AtomicU64,
    kernel: Features,
}

impl Null {
    pub(crate) fn new() -> Self {
        let root = Arc::new(Node::new(Kind::Directory));
        let nodes = RwLock::new(HashMap::from([(NodeId::ROOT.0, root)]));
        Self { nodes, next: AtomicU64::new(NodeId::ROOT.0 + 1), kernel: Features::empty() }
    }

    /// The node of a request.
    fn node(&self, id: NodeId) -> Answer<Arc<Node>> {
        self.nodes.read().get(&id.0).map(Arc::clone).ok_or_else(|| Errno::STALE.into())
    }

    fn make(&self, parent: NodeId, name: &[u8], kind: Kind) -> Answer<EntryOut> {
        let parent = self.node(parent)?;
        let (id, node) = (NodeId(self.next.fetch_add(1, Ordering::Relaxed)), Arc::new(Node::new(kind)));
        let made = node.entry(id);
        self.nodes.write().insert(id.0, node);
        parent.names.lock().add(name, id);
        Ok(made)
    }

    fn find(&self, parent: NodeId, name: &[u8]) -> Answer<Option<EntryOut>> {
        let found = self.node(parent)?.names.lock().get(name);
        found.map(|id| Ok(self.node(id)?.entry(id))).transpose()
    }

    fn remove(&self, parent: NodeId, name: &[u8]) -> Answer {
        self.node(parent)?.names.lock().remove(name).map(drop).ok_or_else(|| Errno::NOENT.into())
    }

    fn move_name(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) -> Answer {
        let id = self.node(from.0)?.names.lock().remove(from.1).ok_or(Errno::NOENT)?;
        let parent = self.node(to.0)?;
        let mut names = parent.names.lock();
        names.remove(to.1);
        names.add(to.1, id);
        Ok(())
    }

    /// Calls `add` with each name from a position on, its node, and the next position, until it returns that
    /// there is no more room.
    fn list(
        &self,
        id: NodeId,
        from: u64,
        mut add: impl FnMut(&EntryOut, u64, Kind, &[u8]) -> bool,
    ) -> Answer {
        let directory = self.node(id)?;
        let names = directory.names.lock();
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        for (place, entry) in (1..).zip(&names.list).skip(from) {
            let Some((name, id)) = entry else { continue };
            let node = self.node(*id)?;
            if !add(&node.entry(*id), place, node.kind, name) {
                break;
            }
        }
        Ok(())
    }
}

impl Node {
    fn new(kind: Kind) -> Self {
        Self { kind, size: AtomicU64::new(0), names: Mutex::default() }
    }

    fn entry(&self, id: NodeId) -> EntryOut {
        let size = self.size.load(Ordering::Relaxed);
        let mut attr = Attr::new_zeroed();
        attr.ino.set(id.0);
        attr.size.set(size);
        attr.blocks.set(size.div_ceil(512));
        attr.mode.set(u32::from(self.kind.mode_bits()) | 0o777);
        attr.nlink.set(1);
        attr.blksize.set(4096);
        entry(id, GENERATION, KEPT, attr)
    }
}

impl Server for Null {
    fn greet(&mut self, offered: Features) -> Wanted {
        self.kernel = offered;
        wanted(features() | Features::WRITEBACK_CACHE | Features::ATOMIC_O_TRUNC, TRANSFER_MAX)
    }

    fn panicked(&self) {}

    fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let id = request.node;
        match &request.body {
            Body::Lookup { name } => {
                reply.put(&self.find(id, name)?.unwrap_or_else(|| no_entry(KEPT)));
            }
            Body::Getattr { .. } => reply.put(&attr_out(KEPT, self.node(id)?.entry(id).attr)),
            Body::Setattr(set) => {
                let node = self.node(id)?;
                if let Some(size) = set.size {
                    node.size.store(size, Ordering::Relaxed);
                }
                reply.put(&attr_out(KEPT, node.entry(id).attr));
            }
            Body::Mknod { name, .. } => reply.put(&self.make(id, name, Kind::File)?),
            Body::Mkdir { name, .. } => reply.put(&self.make(id, name, Kind::Directory)?),
            Body::Symlink { name, .. } => reply.put(&self.make(id, name, Kind::Symlink)?),
            Body::Create { name, .. } => {
                reply.put(&self.make(id, name, Kind::File)?);
                reply.put(&open_out(false));
            }
            Body::Unlink { name } | Body::Rmdir { name } => self.remove(id, name)?,
            Body::Rename { name, parent, new, .. } => self.move_name((id, name), (*parent, new))?,
            Body::Open(_) => reply.put(&open_out(false)),
            Body::Opendir if !self.kernel.contains(Features::NO_OPENDIR_SUPPORT) => {
                reply.put(&open_out(true));
            }
            Body::Readdir { from, room, .. } => {
                let mut list = reply.entries(*room);
                self.list(id, *from, |entry, next, kind, name| {
                    list.add(entry.nodeid.get(), next, kind, name)
                })?;
            }
            Body::Readdirplus { from, room, .. } => {
                let mut list = reply.entries(*room);
                self.list(id, *from, |entry, next, kind, name| list.add_with(entry, next, kind, name))?;
            }
            _ => return self.answer_about_content(request, reply),
        }
        Ok(())
    }
}

impl Null {
    fn answer_about_content(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        match &request.body {
            Body::Read { at, size, .. } => {
                let end = self.node(request.node)?.size.load(Ordering::Relaxed);
                let len = u32::try_from(end.saturating_sub(*at)).unwrap_or(u32::MAX).min(*size);
                // The content of a file is what the last answer left in the buffer.
                reply.fill(usize_of(len.min(TRANSFER_MAX)), |out| Ok(out.len()))?;
            }
            Body::Write { at, data, .. } => {
                let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
                let end = at.saturating_add(written.into());
                self.node(request.node)?.size.fetch_max(end, Ordering::Relaxed);
                reply.put(&size_out(written));
            }
            Body::Statfs => {
                let mut out = StatfsOut::new_zeroed();
                for count in
                    [&mut out.blocks, &mut out.bfree, &mut out.bavail, &mut out.files, &mut out.ffree]
                {
                    count.set(BLOCKS);
                }
                out.bsize.set(4096);
                out.frsize.set(4096);
                out.namelen.set(255);
                reply.put(&out);
            }
            Body::Forget { .. }
            | Body::BatchForget { .. }
            | Body::Release { .. }
            | Body::Releasedir
            | Body::Fsync { .. }
            | Body::Fsyncdir
            | Body::Destroy => {}
            _ => return Err(Errno::NOSYS.into()),
        }
        Ok(())
    }
}
