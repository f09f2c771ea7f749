//! Answers FUSE requests with the engine.
//!
//! One method per request: it calls the engine and sends one answer. The shared parts lie in the modules
//! below, by subject: names ([`names`]), inodes ([`inodes`]), content ([`content`]), writes that the kernel
//! buffers ([`buffering`]), `ioctl` ([`ioctl`]). No state is kept for an open file except that it is open,
//! and which lost writes its handle has been told of ([`crate::node_table`]).
//!
//! Left to the kernel, because it can do it and that saves round trips: locks, permission checks (where there
//! are any), the parts of the umask and of ACLs in `access`, flushing on `close` (the engine has no error to
//! report then that `fsync` does not), and opening directory streams.
//!
//! The server clears set-user-ID and set-group-ID bits on write, truncate and chown (`HANDLE_KILLPRIV_V2`):
//! otherwise the kernel would ask for `security.capability` before every write.

mod buffering;
mod capabilities;
mod content;
mod inodes;
mod ioctl;
mod names;

use crate::attr;
use crate::errno::{Answer, Refusal};
use crate::event_loop::Server;
use crate::node_table::{Node, Nodes, node_id};
use crate::options::{Atime, KEPT, TRANSFER_MAX};
use crate::protocol::NodeId;
use crate::protocol::init::{Features, Wanted};
use crate::protocol::reply::{Reply, Stale, no_entry};
use crate::protocol::request::{Body, Handle, Request, Setattr, Wait};
use crate::protocol::wire::{IoctlOut, OpenOut, SizeOut, StatfsOut};
use crate::request_stats::{Operation, Operations};
use hectare_engine::{Caller, Capabilities, Metadata, NewNode, Volume, on_behalf};
use hectare_units::Bytes;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromZeros;
use zerocopy::native_endian::U64;

/// Background requests (readahead, writeback) that the kernel may have in flight.
const BACKGROUND_MAX: u16 = 64;
/// The inode size that has room for whole seconds only.
const NARROW_INODE: u32 = 128;
/// Nanoseconds of a second.
const SECOND: u32 = 1_000_000_000;
/// Opening a file keeps its cached pages (`FOPEN_KEEP_CACHE`), and opening a directory its cached list, too
/// (`FOPEN_CACHE_DIR`).
const OPEN_KEEPS: u32 = 1 << 1;
const OPENDIR_KEEPS: u32 = OPEN_KEEPS | 1 << 3;
/// What is written to an open file bypasses the kernel's cache (`FOPEN_DIRECT_IO`), and it can't be mapped
/// shared.
const OPEN_DIRECT_IO: u32 = 1 << 0;
/// Permissions of symbolic links, which are never checked.
const LINK_MODE: u32 = 0o777;

/// The configurable part of how requests are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// The volume is read-only.
    pub read_only: bool,
    /// Which reads set the time of last access.
    pub atime: Atime,
    /// Listing a directory updates its access time.
    pub directory_atime: bool,
    /// Access ACLs are enforced where the kernel checks permissions.
    pub acl: bool,
    /// New files get the group of their directory.
    pub directory_groups: bool,
    /// `statfs` counts the blocks of the format's metadata, too.
    pub counts_overhead: bool,
    /// The kernel checks permissions and ACLs; otherwise every user with access to the mount may do
    /// everything.
    pub check_permissions: bool,
    /// The kernel buffers writes and reports success before the server sees the data. Otherwise it sends each
    /// write at once; only writes through shared mappings arrive later in any case.
    pub writeback: bool,
    /// Files are opened without a request; so immutable and append-only files fail only when data is written.
    pub no_open: bool,
    /// Creation times are reported. The kernel gets them by `STATX` requests only, one for each inode of
    /// which a program asks for all attributes, as Rust's standard library always does.
    pub creation_times: bool,
    /// Directories are listed with the attributes of their entries, where that seems useful.
    pub list_attributes: bool,
    /// How long the kernel may cache names and attributes.
    pub kept: Duration,
    /// How long it may cache that a name does not exist.
    pub kept_absent: Duration,
    /// The kernel sends `FLUSH` on every `close`, without effect.
    pub ask_flush: bool,
    /// The kernel sends `OPENDIR` before it lists a directory, without effect.
    pub ask_opendir: bool,
    /// Lookups and listings of one directory run in parallel.
    pub parallel_directories: bool,
    /// The largest read and write, in bytes.
    pub transfer_max: u32,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: Atime::default(),
            directory_atime: true,
            acl: true,
            directory_groups: false,
            counts_overhead: false,
            check_permissions: true,
            writeback: false,
            no_open: false,
            creation_times: false,
            list_attributes: true,
            kept: KEPT,
            kept_absent: KEPT,
            ask_flush: false,
            ask_opendir: false,
            parallel_directories: true,
            transfer_max: TRANSFER_MAX,
        }
    }
}

/// A volume that answers FUSE requests.
pub struct Adapter {
    volume: Volume,
    nodes: Nodes,
    behaviour: Behaviour,
    /// The features that the kernel offers.
    kernel: Features,
    /// The free space below which the kernel must ask before it buffers a write.
    reserve: Bytes,
    operations: Arc<Operations>,
    /// Finds out what a process may do.
    capabilities_of: fn(u32, u32) -> Capabilities,
}

impl Adapter {
    /// Serves a volume, and counts its requests in `operations`.
    ///
    /// # Errors
    /// If the root directory can't be read.
    pub fn new(
        volume: Volume,
        behaviour: Behaviour,
        operations: Arc<Operations>,
    ) -> hectare_engine::Result<Self> {
        let (nodes, kernel) = (Nodes::new(&volume)?, Features::empty());
        let (reserve, capabilities_of) = (buffering::reserve(), capabilities::of_process);
        Ok(Self { nodes, volume, behaviour, kernel, reserve, operations, capabilities_of })
    }

    /// Trusts all callers with everything: for requests that no process makes.
    pub(crate) fn trusting(self) -> Self {
        Self { capabilities_of: |_, _| Capabilities::all(), ..self }
    }

    /// The caller, with what its process may do: for what only capabilities permit.
    fn capable(&self, request: &Request<'_>) -> Caller<'static> {
        Caller { capabilities: (self.capabilities_of)(request.process, request.uid), ..caller(request) }
    }

    fn node(&self, id: NodeId) -> Answer<Arc<Node>> {
        self.nodes.get(id)
    }

    /// The features to request, as far as the kernel offers them.
    fn features(&self) -> Features {
        let mut wanted = features();
        let listing = Features::DO_READDIRPLUS | Features::READDIRPLUS_AUTO;
        wanted.set(listing, self.behaviour.list_attributes);
        wanted.set(Features::PARALLEL_DIROPS, self.behaviour.parallel_directories);
        wanted.set(Features::WRITEBACK_CACHE, self.is_writeback());
        wanted.set(Features::POSIX_ACL, self.behaviour.check_permissions && self.behaviour.acl);
        // Without the writeback cache the kernel does not hold back writeback while `OPEN` truncates: old pages
        // of a shared mapping would come afterwards, and make the file long again. It does for `SETATTR`.
        wanted.set(Features::ATOMIC_O_TRUNC, self.is_writeback());
        wanted
    }

    /// Whether the kernel buffers writes: only if it sends `OPEN`, since some files can't be written, and it
    /// would buffer writes to them, too.
    fn is_writeback(&self) -> bool {
        self.behaviour.writeback
            && !self.behaviour.read_only
            && !self.opens_unasked()
            && self.kernel.contains(Features::WRITEBACK_CACHE)
    }

    /// Whether the kernel opens files without a request, and so does not report when they are closed. On a
    /// read-only mount opening has nothing to refuse.
    fn opens_unasked(&self) -> bool {
        let wanted = self.behaviour.no_open || self.behaviour.read_only;
        wanted && self.kernel.contains(Features::NO_OPEN_SUPPORT)
    }

    /// Whether the kernel lists directories without opening them first.
    fn lists_unasked(&self) -> bool {
        !self.behaviour.ask_opendir && self.kernel.contains(Features::NO_OPENDIR_SUPPORT)
    }
}

/// The features that are requested by default.
///
/// Not `ASYNC_DIO`: with it the kernel drops cached pages before an asynchronous direct write and not after,
/// so that a concurrent reader keeps stale data for good, and any error of such a write is reported as `EIO`.
pub(crate) fn features() -> Features {
    Features::DO_READDIRPLUS
        | Features::READDIRPLUS_AUTO
        | Features::PARALLEL_DIROPS
        | Features::CACHE_SYMLINKS
        | Features::EXPORT_SUPPORT
        | Features::EXPLICIT_INVAL_DATA
        | Features::DONT_MASK
        | Features::HAS_IOCTL_DIR
        | Features::HANDLE_KILLPRIV_V2
}

/// Everything that is requested of the kernel.
pub(crate) fn wanted(features: Features, transfer_max: u32) -> Wanted {
    Wanted { features, transfer_max, background_max: BACKGROUND_MAX, time_step: 1 }
}

/// The answer to an open request, without a handle.
pub(crate) fn open_out(is_directory: bool) -> OpenOut {
    let mut out = OpenOut::new_zeroed();
    out.open_flags.set(if is_directory { OPENDIR_KEEPS } else { OPEN_KEEPS });
    out
}

/// The answer to opening a file.
fn open_file_out(handle: Handle) -> OpenOut {
    let mut out = open_out(false);
    out.fh.set(handle.0);
    out
}

/// The answer that is a size.
pub(crate) fn size_out(size: u32) -> SizeOut {
    let mut out = SizeOut::new_zeroed();
    out.size.set(size);
    out
}

/// The caller, without any capability. The kernel passes neither these nor supplementary groups.
fn caller(request: &Request<'_>) -> Caller<'static> {
    Caller { uid: request.uid, gid: request.gid, groups: &[], capabilities: Capabilities::empty() }
}

/// Whether limits apply: not to writes that the kernel has buffered, and reported as done.
fn is_limited(request: &Request<'_>) -> bool {
    !matches!(request.body, Body::Write { from_cache: true, .. })
}

/// Whether a limit can refuse a request. Others can fail with the same number, of the host's quota, and must not be
/// made again: an error of lost bytes is reported once.
const fn takes_space(body: &Body<'_>) -> bool {
    matches!(
        body,
        Body::Write { .. }
            | Body::Create { .. }
            | Body::Tmpfile { .. }
            | Body::Mknod { .. }
            | Body::Mkdir { .. }
            | Body::Symlink { .. }
            | Body::Link { .. }
            | Body::Rename { .. }
            | Body::Setattr(_)
            | Body::Setxattr { .. }
            | Body::Ioctl { .. }
            | Body::Fallocate { .. }
            | Body::CopyFileRange(_)
    )
}

/// Whether a request was refused before it changed anything.
fn is_refused_before(refusal: Refusal) -> bool {
    matches!(
        refusal.0,
        Errno::PERM | Errno::INVAL | Errno::FBIG | Errno::ROFS | Errno::OPNOTSUPP | Errno::STALE
    )
}

/// What a request that fails may have changed before, of which the kernel would keep what it was: it takes
/// an error for no change. Of a write and of a truncation only attributes: meanwhile the kernel holds the
/// pages.
fn changed_in_part(request: &Request<'_>) -> Option<Stale> {
    match &request.body {
        Body::Write { from_cache: false, .. } | Body::Setattr(Setattr { size: Some(_), .. }) => {
            Some(Stale::Attributes(request.node))
        }
        Body::Fallocate { .. } => Some(Stale::Content(request.node)),
        Body::CopyFileRange(copying) => Some(Stale::Content(copying.to)),
        _ => None,
    }
}

/// Puts a value if it fits into `room`, or its size where `room` is 0.
fn put_value(reply: &mut Reply, value: &[u8], room: u32) -> Answer {
    let len = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    if room == 0 {
        reply.put(&size_out(len));
    } else if len > room {
        return Err(Errno::RANGE.into());
    } else {
        reply.put_bytes(value);
    }
    Ok(())
}

/// The operation that a request counts as; `None` for those that are not passed to the engine.
fn counted(body: &Body<'_>) -> Option<Operation> {
    Some(match body {
        Body::Lookup { .. } => Operation::Lookup,
        Body::Forget { .. } | Body::BatchForget { .. } => Operation::Forget,
        Body::Getattr { .. } => Operation::Getattr,
        Body::Statx => Operation::Statx,
        Body::Setattr(_) => Operation::Setattr,
        Body::Readlink => Operation::Readlink,
        Body::Symlink { .. } => Operation::Symlink,
        Body::Mknod { .. } => Operation::Mknod,
        Body::Mkdir { .. } => Operation::Mkdir,
        Body::Unlink { .. } => Operation::Unlink,
        Body::Rmdir { .. } => Operation::Rmdir,
        Body::Rename { .. } => Operation::Rename,
        Body::Link { .. } => Operation::Link,
        Body::Open(_) => Operation::Open,
        Body::Create { .. } => Operation::Create,
        Body::Tmpfile { .. } => Operation::Tmpfile,
        Body::Read { .. } => Operation::Read,
        Body::Write { .. } => Operation::Write,
        Body::Statfs => Operation::Statfs,
        Body::Release { .. } => Operation::Release,
        Body::Fsync { .. } => Operation::Fsync,
        Body::Fsyncdir => Operation::Fsyncdir,
        Body::Syncfs => Operation::Syncfs,
        Body::Setxattr { .. } => Operation::Setxattr,
        Body::Getxattr { .. } => Operation::Getxattr,
        Body::Listxattr { .. } => Operation::Listxattr,
        Body::Removexattr { .. } => Operation::Removexattr,
        Body::Opendir => Operation::Opendir,
        Body::Readdir { .. } => Operation::Readdir,
        Body::Readdirplus { .. } => Operation::Readdirplus,
        Body::Ioctl { .. } => Operation::Ioctl,
        Body::Fallocate { .. } => Operation::Fallocate,
        Body::Lseek { .. } => Operation::Lseek,
        Body::CopyFileRange(_) => Operation::CopyFileRange,
        Body::Flush | Body::Releasedir | Body::Destroy => return None,
    })
}

impl Server for Adapter {
    fn greet(&mut self, offered: Features) -> Wanted {
        self.kernel = offered;
        let wanted = wanted(self.features(), self.behaviour.transfer_max);
        let is_narrow = self.volume.superblock().geometry().inode_size == NARROW_INODE;
        Wanted { time_step: if is_narrow { SECOND } else { 1 }, ..wanted }
    }

    fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        match request.body {
            // After `ENOSYS` the kernel never sends these again. The engine has no error to report on closing
            // that `fsync` does not.
            Body::Flush if !self.behaviour.ask_flush => return Err(Errno::NOSYS.into()),
            Body::Statx if !self.behaviour.creation_times => return Err(Errno::NOSYS.into()),
            Body::Open(_) if self.opens_unasked() => return Err(Errno::NOSYS.into()),
            Body::Opendir if self.lists_unasked() => return Err(Errno::NOSYS.into()),
            _ => {}
        }
        let Some(operation) = counted(&request.body) else { return Ok(()) };
        let gives_back = matches!(operation, Operation::Forget | Operation::Release);
        if self.volume.is_shut_down() && !gives_back {
            return Err(Errno::IO.into());
        }
        let answer = self.operations.timed(operation, || self.ask_within_limits(request, reply));
        self.guard(request.node, reply);
        match answer {
            Err(Refusal(Errno::NOENT)) if operation == Operation::Lookup => {
                let kept = self.behaviour.kept_absent;
                let expires = self.folds(request.node) || self.may_fold_unseen();
                reply.put(&no_entry(if expires { Duration::ZERO } else { kept }));
                Ok(())
            }
            Err(refusal) => {
                if !is_refused_before(refusal) {
                    changed_in_part(request).into_iter().for_each(|stale| reply.make_stale(stale));
                }
                Err(refusal)
            }
            answered => answered,
        }
    }

    /// The engine's memory can't be trusted any more: none of it may reach the device.
    fn panicked(&self) {
        self.volume.end_changes("answering a request has panicked");
    }

    /// After the last writer has closed the file, the kernel has written everything back, also writes through
    /// shared mappings.
    fn waits(&self, node: NodeId, why: Wait) -> bool {
        match why {
            Wait::Seek => self.nodes.has_writers(node),
            Wait::Write => self.nodes.has_writers(node) && self.is_guarded(),
            // A kernel that buffers writes does that by itself.
            Wait::Times => !self.is_writeback() && (self.opens_unasked() || self.nodes.may_be_mapped(node)),
        }
    }
}

impl Adapter {
    /// Passes a request on. Who may exceed limits is found out when they are exceeded.
    fn ask_within_limits(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let payer = if is_limited(request) { caller(request) } else { Caller::ROOT };
        match on_behalf(&payer, || self.ask_engine(request, reply)) {
            Err(Refusal(Errno::DQUOT)) if takes_space(&request.body) => {
                let caller = self.capable(request);
                if !caller.may(Capabilities::SYS_RESOURCE) {
                    return Err(Refusal(Errno::DQUOT));
                }
                on_behalf(&caller, || self.ask_engine(request, reply))
            }
            answer => answer,
        }
    }

    /// Dispatches a request: first those about names, then those about other subjects.
    fn ask_engine(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let node = request.node;
        let mut opened = None;
        let named = match &request.body {
            Body::Lookup { name } => self.look_up(node, name)?,
            Body::Symlink { name, target } => {
                self.make(request, name, NewNode::Symlink(target), (LINK_MODE, 0))?
            }
            Body::Mknod { mode, device, umask, name } => {
                let kind = attr::new_node(*mode, *device).ok_or(Errno::INVAL)?;
                self.make(request, name, kind, (*mode, *umask))?
            }
            Body::Mkdir { mode, umask, name } => {
                self.make(request, name, NewNode::Directory, (*mode, *umask))?
            }
            Body::Link { node: linked, name } => self.add_link(*linked, node, name)?,
            Body::Create { flags, mode, umask, name } => {
                let (made, handle) = self.create_open(request, name, *flags, (*mode, *umask))?;
                opened = Some(handle);
                made
            }
            Body::Tmpfile { flags, mode, umask } => {
                let (made, handle) = self.create_nameless(request, *flags, (*mode, *umask))?;
                opened = Some(handle);
                made
            }
            _ => return self.ask_about_directory(request, reply),
        };
        let id = node_id(named.inode);
        // The kernel has no attributes of a new file that could be dropped.
        let expires = opened.is_some() && self.needs_guard(id);
        let kept = if expires { Duration::ZERO } else { self.behaviour.kept };
        reply.put(&self.named_in(node, kept, &named));
        if let Some(handle) = opened {
            reply.put(&open_file_out(handle));
        }
        self.guard(id, reply);
        Ok(())
    }

    fn ask_about_directory(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let node = request.node;
        match &request.body {
            Body::Forget { lookups } => self.nodes.forget(node, *lookups),
            Body::BatchForget { forgets } => {
                forgets.iter().for_each(|one| self.nodes.forget(NodeId(one.nodeid.get()), one.nlookup.get()));
            }
            Body::Unlink { name } => self.remove_file(node, name)?,
            Body::Rmdir { name } => self.remove_directory(node, name)?,
            Body::Rename { name, parent, new, flags } => {
                self.rename_entry(&caller(request), (node, name), (*parent, new), *flags, reply)?;
            }
            Body::Opendir => {
                self.node(node)?;
                reply.put(&open_out(true));
            }
            Body::Readdir { from, room, flags } => {
                self.list(node, (*from, *flags), &mut reply.entries((*room).min(TRANSFER_MAX)))?;
            }
            Body::Readdirplus { from, room, flags } => {
                self.list_with_attributes(
                    node,
                    (*from, *flags),
                    &mut reply.entries((*room).min(TRANSFER_MAX)),
                )?;
            }
            _ => return self.ask_about_content(request, reply),
        }
        Ok(())
    }

    fn ask_about_content(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let node = request.node;
        match &request.body {
            Body::Open(opening) => {
                let opened = self.open_file(&caller(request), node, *opening, reply)?;
                reply.put(&opened);
            }
            Body::Read { at, size, flags } => self.read_file(node, *at, *size, *flags, reply)?,
            Body::Write { at, data, from_cache, kills_privileges } => {
                let how = (*from_cache, *kills_privileges);
                let written = self.write_file(&caller(request), node, (*at, data), how, reply)?;
                reply.put(&size_out(written));
            }
            Body::Release { handle } => self.nodes.release(node, *handle),
            Body::Fsync { handle, data_only } => self.sync_file(node, *handle, *data_only)?,
            Body::Fsyncdir => self.sync_directory(node)?,
            Body::Fallocate { at, len, mode } => {
                self.allocate(&self.capable(request), node, (*at, *len), *mode, reply)?;
            }
            Body::Lseek { at, whence } => reply.put(&U64::new(self.seek(node, *at, *whence)?)),
            Body::CopyFileRange(copying) => {
                let copied = self.copy_content(&self.capable(request), node, copying, reply)?;
                if copying.is_wide {
                    reply.put(&U64::new(copied));
                } else {
                    reply.put(&size_out(u32::try_from(copied).unwrap_or(u32::MAX)));
                }
            }
            _ => return self.ask_about_inode(request, reply),
        }
        Ok(())
    }

    fn ask_about_inode(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        let (node, kept) = (request.node, self.behaviour.kept);
        let attributes = |found: &Metadata| attr::attr_out(kept, attr::attributes(found));
        match &request.body {
            Body::Getattr { by_writer } => {
                let node = self.node(node)?;
                if *by_writer {
                    self.check_buffers(&node)?;
                }
                reply.put(&attributes(&node.metadata()?));
            }
            Body::Statx => reply.put(&attr::statx_out(kept, &self.node(node)?.metadata()?)),
            Body::Setattr(set) => {
                // A new owner loses bits that only a capability keeps.
                let owns = set.uid.is_some() || set.gid.is_some();
                let caller = if owns { self.capable(request) } else { caller(request) };
                let left = self.set_attributes(&caller, node, set, reply)?;
                reply.put(&attributes(&left));
            }
            Body::Readlink => reply.put_bytes(&self.read_link(node)?),
            Body::Statfs => reply.put(&self.statfs()?),
            Body::Syncfs => self.volume.sync()?,
            Body::Setxattr { name, value, flags, kills_group } => {
                self.set_attribute(node, (name, value), (*flags, *kills_group))?;
            }
            Body::Getxattr { name, room } => {
                put_value(reply, &self.volume.get_xattr(self.node(node)?.nr(), name)?, *room)?;
            }
            Body::Listxattr { room } => {
                put_value(reply, &self.list_attributes(|| self.capable(request), node)?, *room)?;
            }
            Body::Removexattr { name } => self.volume.remove_xattr(self.node(node)?.nr(), name)?,
            Body::Ioctl { command, input, room } => {
                let folded = self.folds(node);
                let output = self.control(|| self.capable(request), node, *command, input, *room)?;
                if ioctl::changes_attributes(*command) {
                    // The change time, of which the kernel does not think. If it buffers writes, it keeps its
                    // own for files.
                    reply.make_stale(Stale::Attributes(node));
                }
                if self.folds(node) != folded && self.kernel.contains(Features::DROPS_NAMES) {
                    // Names that did not exist may from now on, in another case.
                    reply.make_stale(Stale::Names);
                }
                reply.put(&IoctlOut::new_zeroed());
                reply.put_bytes(&output);
            }
            _ => return Err(Errno::NOSYS.into()),
        }
        Ok(())
    }

    fn statfs(&self) -> Answer<StatfsOut> {
        let fs = self.volume.statfs()?;
        let mut out = StatfsOut::new_zeroed();
        let all = self.volume.superblock().geometry().blocks_count;
        out.blocks.set(if self.behaviour.counts_overhead { all } else { fs.blocks }.get());
        out.bfree.set(fs.free.get());
        out.bavail.set(fs.available.get());
        out.files.set(fs.inodes.into());
        out.ffree.set(fs.free_inodes.into());
        out.bsize.set(fs.block_size.get());
        out.frsize.set(fs.block_size.get());
        out.namelen.set(fs.name_max);
        Ok(out)
    }
}
