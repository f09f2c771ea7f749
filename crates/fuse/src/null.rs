//! A file system that answers every request at once: the limit of what any server behind this session can
//! reach, for measuring.
//!
//! Names and sizes are kept in memory, so that programs find what they made; content is not, and reads as
//! zeros. It asks the kernel for what [`Adapter`](crate::Adapter) asks for, so that both get the same
//! requests.
//!
//! What it is not: correct. Permissions, times, links and renames onto something are not kept, and nothing is
//! ever written anywhere.

use crate::adapter::{HANDLE, KEPT, TRANSFER_MAX, agree, features};
use crate::attr;
use crate::burst::Pace;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// What every file holds.
static ZEROS: [u8; TRANSFER_MAX as usize] = [0; TRANSFER_MAX as usize];
/// What `statfs` tells: 4 TiB in blocks of 4 KiB.
const BLOCKS: u64 = 1 << 30;
const GENERATION: Generation = Generation(0);

struct Node {
    kind: FileType,
    size: AtomicU64,
    names: Mutex<Names>,
}

/// A directory's names. What was removed leaves its place, so that whoever lists the rest goes on where he
/// was.
#[derive(Default)]
struct Names {
    places: HashMap<OsString, usize>,
    list: Vec<Option<(OsString, INodeNo)>>,
}

impl Names {
    fn get(&self, name: &OsStr) -> Option<INodeNo> {
        Some(self.list[*self.places.get(name)?].as_ref()?.1)
    }

    fn add(&mut self, name: &OsStr, id: INodeNo) {
        self.places.insert(name.to_owned(), self.list.len());
        self.list.push(Some((name.to_owned(), id)));
    }

    fn remove(&mut self, name: &OsStr) -> Option<INodeNo> {
        let place = self.places.remove(name)?;
        Some(self.list[place].take()?.1)
    }
}

/// The file system.
pub(crate) struct Null {
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    next: AtomicU64,
    kernel: InitFlags,
    pace: Arc<Pace>,
}

impl Null {
    pub(crate) fn new(pace: Arc<Pace>) -> Self {
        let root = Arc::new(Node::new(FileType::Directory));
        let nodes = RwLock::new(HashMap::from([(INodeNo::ROOT.0, root)]));
        Self { nodes, next: AtomicU64::new(INodeNo::ROOT.0 + 1), kernel: InitFlags::empty(), pace }
    }

    /// What a request is about; each asks for one, few for two.
    fn node(&self, id: INodeNo) -> Result<Arc<Node>, Errno> {
        self.pace.request();
        self.nodes.read().get(&id.0).map(Arc::clone).ok_or(Errno::ESTALE)
    }

    fn make(&self, parent: INodeNo, name: &OsStr, kind: FileType) -> Result<FileAttr, Errno> {
        let parent = self.node(parent)?;
        let (id, node) = (INodeNo(self.next.fetch_add(1, Ordering::Relaxed)), Arc::new(Node::new(kind)));
        let made = node.attributes(id);
        self.nodes.write().insert(id.0, node);
        parent.names.lock().add(name, id);
        Ok(made)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<Option<FileAttr>, Errno> {
        let found = self.node(parent)?.names.lock().get(name);
        found.map(|id| Ok(self.node(id)?.attributes(id))).transpose()
    }

    fn remove(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        self.node(parent)?.names.lock().remove(name).map(drop).ok_or(Errno::ENOENT)
    }

    fn move_name(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr)) -> Result<(), Errno> {
        let id = self.node(from.0)?.names.lock().remove(from.1).ok_or(Errno::ENOENT)?;
        let parent = self.node(to.0)?;
        let mut names = parent.names.lock();
        names.remove(to.1);
        names.add(to.1, id);
        Ok(())
    }

    /// Calls `add` with each name from a place on, what it names, and the place after it, until it says that
    /// there is no more room.
    fn list(
        &self,
        id: INodeNo,
        from: u64,
        mut add: impl FnMut(&FileAttr, u64, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let directory = self.node(id)?;
        let names = directory.names.lock();
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        for (place, entry) in (1..).zip(&names.list).skip(from) {
            let Some((name, id)) = entry else { continue };
            if add(&self.node(*id)?.attributes(*id), place, name) {
                break;
            }
        }
        Ok(())
    }
}

impl Node {
    fn new(kind: FileType) -> Self {
        Self { kind, size: AtomicU64::new(0), names: Mutex::default() }
    }

    fn attributes(&self, id: INodeNo) -> FileAttr {
        let size = self.size.load(Ordering::Relaxed);
        let (blocks, perm) = (size.div_ceil(512), 0o777);
        FileAttr { size, blocks, perm, nlink: 1, blksize: 4096, ..attr::bare(id.0, self.kind) }
    }
}

fn answer_entry(reply: ReplyEntry, answer: Result<FileAttr, Errno>) {
    match answer {
        Ok(found) => reply.entry(&KEPT, &found, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

fn answer_empty(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> std::io::Result<()> {
        self.kernel = kernel.capabilities();
        let wanted = features() | InitFlags::FUSE_WRITEBACK_CACHE | InitFlags::FUSE_ATOMIC_O_TRUNC;
        agree(kernel, wanted, TRANSFER_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.find(parent, name);
        answer_entry(reply, found.map(|found| found.unwrap_or(attr::bare(0, FileType::RegularFile))));
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(id) {
            Ok(node) => reply.attr(&KEPT, &node.attributes(id)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        id: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = match self.node(id) {
            Ok(node) => node,
            Err(errno) => return reply.error(errno),
        };
        if let Some(size) = size {
            node.size.store(size, Ordering::Relaxed);
        }
        reply.attr(&KEPT, &node.attributes(id));
    }

    fn mknod(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        answer_entry(reply, self.make(parent, name, FileType::RegularFile));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        answer_entry(reply, self.make(parent, name, FileType::Directory));
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, _: &Path, reply: ReplyEntry) {
        answer_entry(reply, self.make(parent, name, FileType::Symlink));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.remove(parent, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.remove(parent, name));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.move_name((parent, name), (new_parent, new)));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(HANDLE, FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        at: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = self.node(id).map_or(0, |node| node.size.load(Ordering::Relaxed));
        let len = end.saturating_sub(at).min(size.min(TRANSFER_MAX).into());
        reply.data(&ZEROS[..usize::try_from(len).unwrap_or(0)]);
    }

    fn write(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if let Ok(node) = self.node(id) {
            node.size.fetch_max(at.saturating_add(written.into()), Ordering::Relaxed);
        }
        reply.written(written);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.kernel.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT) {
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(HANDLE, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn readdir(&self, _: &Request, id: INodeNo, _: FileHandle, from: u64, mut reply: ReplyDirectory) {
        match self.list(id, from, |found, next, name| reply.add(found.ino, next, found.kind, name)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(&self, _: &Request, id: INodeNo, _: FileHandle, from: u64, mut reply: ReplyDirectoryPlus) {
        let add =
            |found: &FileAttr, next, name: &OsStr| reply.add(found.ino, next, name, &KEPT, found, GENERATION);
        match self.list(id, from, add) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, 4096, 255, 4096);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        match self.make(parent, name, FileType::RegularFile) {
            Ok(made) => reply.created(&KEPT, &made, GENERATION, HANDLE, FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(errno),
        }
    }
}
