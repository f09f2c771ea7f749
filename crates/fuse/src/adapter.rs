//! FUSE requests answered by the engine.
//!
//! One method a request, each of which asks the engine and sends one answer; what they share by subject lies
//! in the modules below: names ([`names`]), inodes ([`inodes`]), content ([`content`]), `ioctl` ([`ioctl`]).
//! Nothing is kept for an open file but that it is open ([`crate::nodes`]): handles are all 0.
//!
//! What the kernel is asked to do itself, because it can and that saves round trips: locks, permissions
//! (where they are checked at all), the umask's and ACLs' part in `access`, flushing on `close` (the engine
//! has nothing to tell then that `fsync` does not), and what a directory's stream needs to be opened.
//!
//! Set-user-ID and set-group-ID bits are ours to clear on writing, truncating and changing owners
//! (`HANDLE_KILLPRIV_V2`): otherwise the kernel would ask for `security.capability` before every write.

mod content;
mod inodes;
mod ioctl;
mod names;

use crate::attr;
use crate::burst::Pace;
use crate::errno::{Answer, Refusal};
use crate::nodes::{Node, Nodes};
use crate::operations::{Operation, Operations};
use crate::options::Atime;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use hectare_engine::{Caller, Metadata, Volume};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long the kernel may keep names, their absence, and attributes, unless told otherwise: it hears of
/// every change.
pub(crate) const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The largest read and write, unless told otherwise, and the largest there can be.
pub(crate) const TRANSFER_MAX: u32 = 1 << 20;
/// Requests the kernel may have under way in the background (read-ahead, writeback).
const BACKGROUND_MAX: u16 = 64;
/// Open files and directories are all called so.
pub(crate) const HANDLE: FileHandle = FileHandle(0);
/// What an inode of this size has room for: whole seconds.
const NARROW_INODE: u32 = 128;

/// How requests are answered, where there is a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// The volume takes no change.
    pub read_only: bool,
    /// Which reads set the time of last access.
    pub atime: Atime,
    /// The kernel checks permissions and ACLs; otherwise whoever can reach the mount may do everything.
    pub check_permissions: bool,
    /// The kernel gathers writes.
    pub writeback: bool,
    /// Files are opened without a request: then the flags of immutable and append-only files show only when
    /// data is written.
    pub no_open: bool,
    /// Directories are listed with the attributes of what they name, where that seems of use.
    pub list_attributes: bool,
    /// How long the kernel may keep names, their absence, and attributes.
    pub kept: Duration,
    /// The largest read and write, in bytes.
    pub transfer_max: u32,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: Atime::default(),
            check_permissions: true,
            writeback: true,
            no_open: false,
            list_attributes: true,
            kept: KEPT,
            transfer_max: TRANSFER_MAX,
        }
    }
}

/// A volume that answers FUSE requests.
pub struct Adapter {
    volume: Volume,
    nodes: Nodes,
    behaviour: Behaviour,
    /// What the kernel can do.
    kernel: InitFlags,
    operations: Arc<Operations>,
    pace: Arc<Pace>,
}

impl Adapter {
    /// Answers for a volume, and counts what it answers.
    ///
    /// # Errors
    /// If the root directory can't be read.
    pub fn new(
        volume: Volume,
        behaviour: Behaviour,
        operations: Arc<Operations>,
    ) -> hectare_engine::Result<Self> {
        let (nodes, kernel) = (Nodes::new(&volume)?, InitFlags::empty());
        Ok(Self { nodes, volume, behaviour, kernel, operations, pace: Arc::default() })
    }

    /// The same, telling how quickly requests come.
    pub(crate) fn with_pace(self, pace: Arc<Pace>) -> Self {
        Self { pace, ..self }
    }

    fn node(&self, id: INodeNo) -> Answer<Arc<Node>> {
        self.nodes.get(id)
    }

    /// Finds the answer to a request, which is counted.
    fn timed<T>(&self, operation: Operation, answer: impl FnOnce() -> Answer<T>) -> Answer<T> {
        self.pace.request();
        self.operations.timed(operation, answer)
    }

    /// What the kernel is to do for us, as far as it can.
    fn wanted(&self) -> InitFlags {
        let mut wanted = features();
        let listing = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        wanted.set(listing, self.behaviour.list_attributes);
        wanted.set(InitFlags::FUSE_WRITEBACK_CACHE, self.gathers());
        wanted.set(InitFlags::FUSE_POSIX_ACL, self.behaviour.check_permissions);
        // Whoever opens without asking can't have the file cut by that.
        wanted.set(InitFlags::FUSE_ATOMIC_O_TRUNC, !self.opens_unasked());
        wanted
    }

    /// What a name leads to: attributes under FUSE's number.
    fn answer_entry(&self, reply: ReplyEntry, answer: Answer<Metadata>) {
        match answer {
            Ok(found) => {
                reply.entry(&self.behaviour.kept, &attr::entry(&found), attr::generation(&found));
            }
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn answer_attr(&self, reply: ReplyAttr, answer: Answer<Metadata>) {
        match answer {
            Ok(found) => reply.attr(&self.behaviour.kept, &attr::attributes(&found)),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    /// Whether the kernel gathers writes.
    fn gathers(&self) -> bool {
        self.behaviour.writeback
            && !self.behaviour.read_only
            && self.kernel.contains(InitFlags::FUSE_WRITEBACK_CACHE)
    }

    /// Whether the kernel opens files without a request, and so without telling when they are closed. Where
    /// nothing can be written, there is nothing that opening would have to refuse.
    fn opens_unasked(&self) -> bool {
        let wanted = self.behaviour.no_open || self.behaviour.read_only;
        wanted && self.kernel.contains(InitFlags::FUSE_NO_OPEN_SUPPORT)
    }
}

/// What the kernel is always to do for us.
pub(crate) fn features() -> InitFlags {
    InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_EXPORT_SUPPORT
        | InitFlags::FUSE_EXPLICIT_INVAL_DATA
        | InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_HAS_IOCTL_DIR
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
}

/// Asks the kernel for what it can do of `wanted`, and for large transfers.
pub(crate) fn agree(kernel: &mut KernelConfig, wanted: InitFlags, transfer_max: u32) {
    // One by one: a kernel that lacks one still has the others.
    for capability in (wanted & kernel.capabilities()).iter() {
        let _ = kernel.add_capabilities(capability);
    }
    let _ = kernel.set_max_write(transfer_max);
    if let Err(most) = kernel.set_max_readahead(transfer_max) {
        let _ = kernel.set_max_readahead(most);
    }
    let _ = kernel.set_max_background(BACKGROUND_MAX);
}

/// Who asks. Of other groups and of single capabilities the kernel does not tell.
fn caller(request: &Request) -> Caller<'static> {
    Caller::user(request.uid(), request.gid(), &[])
}

fn answer_empty(reply: ReplyEmpty, answer: Answer) {
    match answer {
        Ok(()) => reply.ok(),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

fn answer_data(reply: ReplyData, answer: Answer<Vec<u8>>) {
    match answer {
        Ok(data) => reply.data(&data),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

/// A value and its length, if there is room for it; where `room` is 0, only the length is asked for.
fn fitting(value: Vec<u8>, room: u32) -> Answer<(Vec<u8>, u32)> {
    let len = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
    if room != 0 && len > room {
        return Err(Errno::ERANGE.into());
    }
    Ok((value, len))
}

/// Sends a value, or how large it is where `room` is 0.
fn answer_value(reply: ReplyXattr, answer: Answer<(Vec<u8>, u32)>, room: u32) {
    match answer {
        Ok((_, len)) if room == 0 => reply.size(len),
        Ok((value, _)) => reply.data(&value),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

fn answer_count(reply: ReplyWrite, answer: Answer<u64>) {
    match answer {
        Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> std::io::Result<()> {
        self.kernel = kernel.capabilities();
        agree(kernel, self.wanted(), self.behaviour.transfer_max);
        if self.volume.superblock().geometry().inode_size == NARROW_INODE {
            let _ = kernel.set_time_granularity(Duration::from_secs(1));
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.timed(Operation::Lookup, || self.look_up(parent, name.as_bytes())) {
            Err(Refusal(Errno::ENOENT)) => {
                // Number 0 and a time to keep it: that there is no such name.
                reply.entry(
                    &self.behaviour.kept,
                    &attr::bare(0, fuser::FileType::RegularFile),
                    fuser::Generation(0),
                );
            }
            answer => self.answer_entry(reply, answer),
        }
    }

    fn forget(&self, _: &Request, id: INodeNo, lookups: u64) {
        // Nobody waits for it, and it can't fail.
        let _ = self.timed(Operation::Forget, || {
            self.nodes.forget(id, lookups);
            Ok(())
        });
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer_attr(reply, self.timed(Operation::Getattr, || self.node(id)?.metadata()));
    }

    fn setattr(
        &self,
        request: &Request,
        id: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = hectare_engine::Changes {
            permissions: mode.map(attr::permissions),
            uid,
            gid,
            size,
            atime: atime.map(attr::time_or_now),
            mtime: mtime.map(attr::time_or_now),
            ctime: ctime.map(attr::timestamp),
            crtime: None,
        };
        self.answer_attr(reply, self.timed(Operation::Setattr, || self.change(id, changes, request.uid())));
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        answer_data(reply, self.timed(Operation::Readlink, || self.read_link(id)));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let answer = self.timed(Operation::Mknod, || {
            let node = attr::new_node(mode, rdev).ok_or(Errno::EINVAL)?;
            self.make(request, parent, name.as_bytes(), node, mode, umask)
        });
        self.answer_entry(reply, answer);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let node = hectare_engine::NewNode::Directory;
        let make = || self.make(request, parent, name.as_bytes(), node, mode, umask);
        self.answer_entry(reply, self.timed(Operation::Mkdir, make));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.timed(Operation::Unlink, || self.remove_file(parent, name.as_bytes())));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.timed(Operation::Rmdir, || self.remove_directory(parent, name.as_bytes())));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let node = hectare_engine::NewNode::Symlink(target.as_os_str().as_bytes());
        let make = || self.make(request, parent, name.as_bytes(), node, 0o777, 0);
        self.answer_entry(reply, self.timed(Operation::Symlink, make));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent, name.as_bytes()), (new_parent, new.as_bytes()));
        answer_empty(reply, self.timed(Operation::Rename, || self.rename_entry(from, to, flags)));
    }

    fn link(&self, _: &Request, id: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer_entry(reply, self.timed(Operation::Link, || self.add_link(id, parent, name.as_bytes())));
    }

    fn open(&self, request: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.opens_unasked() {
            return reply.error(Errno::ENOSYS);
        }
        match self.timed(Operation::Open, || self.open_file(id, flags, request.uid())) {
            Ok(()) => reply.opened(HANDLE, FopenFlags::FOPEN_KEEP_CACHE),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        at: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.read_file(id, at, size, flags, reply);
    }

    fn write(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        how: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = || self.write_file(&caller(request), id, at, data, how);
        answer_count(reply, self.timed(Operation::Write, write));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let release = || {
            self.nodes.release(id);
            Ok(())
        };
        answer_empty(reply, self.timed(Operation::Release, release));
    }

    fn fsync(&self, _: &Request, id: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer_empty(reply, self.timed(Operation::Fsync, || self.sync_node(id, data_only)));
    }

    fn opendir(&self, _: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.kernel.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT) {
            return reply.error(Errno::ENOSYS);
        }
        match self.timed(Operation::Opendir, || self.node(id)) {
            Ok(_) => reply.opened(HANDLE, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn readdir(&self, _: &Request, id: INodeNo, _: FileHandle, from: u64, mut reply: ReplyDirectory) {
        match self.timed(Operation::Readdir, || self.list(id, from, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn readdirplus(&self, _: &Request, id: INodeNo, _: FileHandle, from: u64, mut reply: ReplyDirectoryPlus) {
        match self.timed(Operation::Readdirplus, || self.list_with_attributes(id, from, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn fsyncdir(&self, _: &Request, id: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer_empty(reply, self.timed(Operation::Fsyncdir, || self.sync_node(id, data_only)));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.timed(Operation::Statfs, || Ok(self.volume.statfs()?)) {
            Ok(fs) => {
                let block = fs.block_size.get();
                let (inodes, free_inodes) = (fs.inodes.into(), fs.free_inodes.into());
                let (all, free, available) = (fs.blocks.get(), fs.free.get(), fs.available.get());
                reply.statfs(all, free, available, inodes, free_inodes, block, fs.name_max, block);
            }
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        id: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = || self.set_attribute(id, name.as_bytes(), value, flags);
        answer_empty(reply, self.timed(Operation::Setxattr, set));
    }

    fn getxattr(&self, _: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let get = || fitting(self.volume.get_xattr(self.node(id)?.nr(), name.as_bytes())?, size);
        answer_value(reply, self.timed(Operation::Getxattr, get), size);
    }

    fn listxattr(&self, _: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        let list = || fitting(self.list_attributes(id)?, size);
        answer_value(reply, self.timed(Operation::Listxattr, list), size);
    }

    fn removexattr(&self, _: &Request, id: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || Ok(self.volume.remove_xattr(self.node(id)?.nr(), name.as_bytes())?);
        answer_empty(reply, self.timed(Operation::Removexattr, remove));
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // Asked only where the kernel does not check permissions; then nobody does.
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let create = || self.create_open(request, parent, name.as_bytes(), mode, umask);
        match self.timed(Operation::Create, create) {
            Ok(made) => {
                let generation = attr::generation(&made);
                reply.created(
                    &self.behaviour.kept,
                    &attr::entry(&made),
                    generation,
                    HANDLE,
                    FopenFlags::FOPEN_KEEP_CACHE,
                );
            }
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn ioctl(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        input: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        let control = || self.control(&caller(request), id, command, input, room);
        match self.timed(Operation::Ioctl, control) {
            Ok(output) => reply.ioctl(0, &output),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        at: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer_empty(reply, self.timed(Operation::Fallocate, || self.allocate(id, at, len, mode)));
    }

    fn lseek(&self, _: &Request, id: INodeNo, _: FileHandle, at: i64, whence: i32, reply: ReplyLseek) {
        match self.timed(Operation::Lseek, || self.seek(id, at, whence)) {
            Ok(at) => reply.offset(at),
            Err(Refusal(errno)) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _: FileHandle,
        from_at: u64,
        to: INodeNo,
        _: FileHandle,
        to_at: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copy = || self.copy_content((from, from_at), (to, to_at), len);
        answer_count(reply, self.timed(Operation::CopyFileRange, copy));
    }
}
