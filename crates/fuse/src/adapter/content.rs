//! Content: opening, reading, writing, syncing, and the space of files.
//!
//! With the writeback cache the kernel reads files that are open for writing only (to complete a page), and
//! writes after the file was closed; so nothing here depends on how a file was opened.

use super::{Adapter, TRANSFER_MAX};
use crate::errno::{Answer, Refusal};
use crate::operations::Operation;
use fuser::{Errno, INodeNo, OpenAccMode, OpenFlags, ReplyData, WriteFlags};
use hectare_engine::{Caller, Capabilities, Changes, FallocateMode, InodeFlags, Kind, OpenFile};
use rustix::fs::OFlags;
use std::cell::RefCell;

/// The `whence` of `lseek` for data and for holes.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// What the space of files is counted in.
const SECTOR: u64 = 512;

thread_local! {
    /// What is read, on its way to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    pub(super) fn open_file(&self, id: INodeNo, flags: OpenFlags, uid: u32) -> Answer {
        let has = |flag: OFlags| flags.0.cast_unsigned() & flag.bits() != 0;
        let truncates = has(OFlags::TRUNC);
        let node = self.node(id)?;
        if flags.acc_mode() != OpenAccMode::O_RDONLY || truncates {
            let found = node.metadata()?;
            let append_only = found.flags.contains(InodeFlags::APPEND) && (truncates || !has(OFlags::APPEND));
            if found.flags.contains(InodeFlags::IMMUTABLE) || append_only {
                return Err(Errno::EPERM.into());
            }
            if self.behaviour.read_only {
                return Err(Errno::EROFS.into());
            }
        }
        self.nodes.open(id)?;
        if truncates {
            let cut = self.change(id, Changes { size: Some(0), ..Changes::default() }, uid);
            if cut.is_err() {
                self.nodes.release(id);
            }
            cut?;
        }
        Ok(())
    }

    pub(super) fn read_file(&self, id: INodeNo, at: u64, size: u32, flags: OpenFlags, reply: ReplyData) {
        let size = usize::try_from(size.min(TRANSFER_MAX)).unwrap_or(0);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.timed(Operation::Read, || self.read_into(id, at, &mut buffer[..size], flags)) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(Refusal(errno)) => reply.error(errno),
            }
        });
    }

    fn read_into(&self, id: INodeNo, at: u64, out: &mut [u8], flags: OpenFlags) -> Answer<usize> {
        let node = self.node(id)?;
        let read = node.file()?.read_at(at, out)?;
        if flags.0.cast_unsigned() & OFlags::NOATIME.bits() == 0 {
            self.note_access(&node);
        }
        self.operations.add_read(read);
        Ok(read)
    }

    pub(super) fn write_file(
        &self,
        caller: &Caller<'_>,
        id: INodeNo,
        at: u64,
        data: &[u8],
        how: WriteFlags,
    ) -> Answer<u64> {
        let node = self.node(id)?;
        let file = node.file()?;
        // A kernel that gathers writes stamps the file for all of them, and sends the times by themselves.
        let written = if self.gathers() && how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            // Of an append-only file it brings whole pages; of one that is immutable by now, what was before.
            file.write_from_cache(at, data)?
        } else if self.gathers() {
            file.write_keeping_times(at, data)?
        } else {
            file.write_at(at, data)?
        };
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            // The kernel has seen that whoever writes may not keep them.
            let caller = Caller { capabilities: Capabilities::empty(), ..*caller };
            self.volume.drop_privileges(node.nr(), &caller)?;
        }
        // Whoever gave the kernel's cache these bytes is long gone: all or an error to keep for them.
        if written < data.len() && how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            return Err(Errno::ENOSPC.into());
        }
        let written = hectare_units::u64_of(written);
        self.operations.add_written(written);
        Ok(written)
    }

    pub(super) fn sync_node(&self, id: INodeNo, data_only: bool) -> Answer {
        let node = self.node(id)?;
        if node.metadata()?.kind != Kind::File {
            return Ok(self.volume.sync_inode(node.nr())?);
        }
        let file = node.file()?;
        let synced = if data_only { file.sync_data() } else { file.sync() };
        Ok(synced?)
    }

    pub(super) fn allocate(&self, id: INodeNo, at: u64, len: u64, mode: i32) -> Answer {
        let mode = FallocateMode::from_flags(mode.cast_unsigned())?;
        let last = match mode {
            FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => {
                self.check_room(id, len)?;
                (!keep_size).then_some(FallocateMode::Allocate { keep_size })
            }
            _ => None,
        };
        // To the kernel a file that did not get all it asked for is as long as before. So it grows last, when
        // everything is mapped.
        let first = match mode {
            FallocateMode::Allocate { .. } => FallocateMode::Allocate { keep_size: true },
            FallocateMode::ZeroRange { .. } => FallocateMode::ZeroRange { keep_size: true },
            other => other,
        };
        self.keeping_times(id, |file| {
            file.fallocate(first, at, len)?;
            last.map_or(Ok(()), |last| file.fallocate(last, at, len))
        })
    }

    /// Refuses to give a file more space than there is, before it gets any: what the kernel has gathered of
    /// files would find no place any more, and its writers are long gone.
    fn check_room(&self, id: INodeNo, len: u64) -> Answer {
        let (has, fs) = (self.node(id)?.metadata()?.sectors, self.volume.statfs()?);
        let room = fs.usable.get().saturating_mul(fs.block_size.bytes().get());
        let needs = len.saturating_sub(has.saturating_mul(SECTOR));
        if needs > room { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }

    /// Changes the content of a file for a kernel that gathers writes: it has stamped the file, and sends
    /// that only if it is news; ours would differ.
    fn keeping_times<T>(
        &self,
        id: INodeNo,
        change: impl FnOnce(&OpenFile) -> hectare_engine::Result<T>,
    ) -> Answer<T> {
        let node = self.node(id)?;
        let before = node.metadata()?;
        let done = change(&*node.file()?);
        if self.gathers() {
            let times =
                Changes { mtime: Some(before.mtime), ctime: Some(before.ctime), ..Changes::default() };
            self.change(id, times, 0)?;
        }
        Ok(done?)
    }

    /// Copies bytes of one file into another inside the volume. What the kernel has gathered of either it has
    /// written back before it asks.
    pub(super) fn copy_content(
        &self,
        (from, from_at): (INodeNo, u64),
        (to, to_at): (INodeNo, u64),
        len: u64,
    ) -> Answer<u64> {
        let source = self.node(from)?.file()?;
        self.keeping_times(to, |target| source.copy_range(from_at, target, to_at, len))
    }

    pub(super) fn seek(&self, id: INodeNo, at: i64, whence: i32) -> Answer<i64> {
        if self.gathers() {
            // The kernel asks without writing back what it has gathered, which would look like a hole and be
            // left out of copies. It goes on as if all were data, and does not ask again.
            return Err(Errno::ENOSYS.into());
        }
        let at = u64::try_from(at).map_err(|_| Errno::ENXIO)?;
        let file = self.node(id)?.file()?;
        let found = match whence {
            SEEK_DATA => file.seek_data(at)?,
            SEEK_HOLE => file.seek_hole(at)?,
            _ => return Err(Errno::EINVAL.into()),
        };
        found.and_then(|at| i64::try_from(at).ok()).ok_or_else(|| Errno::ENXIO.into())
    }
}
