//! Content: opens, reads, writes and syncs files, and changes their allocation.
//!
//! With the writeback cache the kernel also reads files that are open for writing only (to complete a page).
//! So nothing here depends on how a file was opened, but on whether the kernel may still buffer data: it has
//! sent all of it when it reports that the last writer has closed the file.

use super::{Adapter, OPEN_DIRECT_IO, TRANSFER_MAX, open_file_out};
use crate::errno::Answer;
use crate::node_table::Node;
use crate::protocol::NodeId;
use crate::protocol::reply::{Reply, Stale};
use crate::protocol::request::{Copying, Handle, Opening};
use crate::protocol::wire::OpenOut;
use hectare_engine::{Caller, Capabilities, FallocateMode, InodeFlags, OpenFile};
use hectare_units::usize_of;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;

/// The `whence` of `lseek` for data and for holes.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// The most bytes that one request copies: its caller can't be killed before it is answered, and asks for
/// the rest.
const COPY_MAX: u64 = 64 << 20;
/// The unit of a file's block count.
const SECTOR: u64 = 512;

impl Adapter {
    pub(super) fn open_file(
        &self,
        caller: &Caller<'_>,
        id: NodeId,
        opening: Opening,
        reply: &mut Reply,
    ) -> Answer<OpenOut> {
        let flags = OFlags::from_bits_retain(opening.flags);
        let (truncates, may_write) = (opening.truncates(), flags & OFlags::RWMODE != OFlags::RDONLY);
        let node = self.node(id)?;
        if may_write || truncates {
            // The kernel's cache accepts writes to an open file, and no error is reported if they can't be
            // kept.
            node.held().check_opens_for_writing(flags.contains(OFlags::APPEND) && !truncates)?;
        }
        let appends = node.metadata()?.flags.contains(InodeFlags::APPEND);
        let handle = self.nodes.open(id, opening.flags)?;
        if truncates {
            let killer = self.killer(opening.kills_privileges, caller);
            let cut = killer
                .map_or(Ok(()), |killer| self.drop_privileges(killer, &node, reply))
                .and_then(|()| empty(&node));
            if cut.is_err() {
                self.nodes.release(id, handle);
            }
            cut?;
        }
        let mut out = open_file_out(handle);
        // The kernel does not know the flag, and lets who may append write elsewhere: what it buffers is not
        // checked.
        if may_write && appends && self.is_writeback() {
            out.open_flags.set(OPEN_DIRECT_IO);
        }
        Ok(out)
    }

    pub(super) fn read_file(&self, id: NodeId, at: u64, size: u32, flags: u32, reply: &mut Reply) -> Answer {
        let node = self.node(id)?;
        let file = node.file()?;
        reply.fill(usize_of(size.min(TRANSFER_MAX)), |out| {
            let read = file.read_at(at, out)?;
            self.operations.add_read(read);
            Ok(read)
        })?;
        self.note_access_by(&node, flags);
        Ok(())
    }

    pub(super) fn write_file(
        &self,
        caller: &Caller<'_>,
        id: NodeId,
        (at, data): (u64, &[u8]),
        (from_cache, kills_privileges): (bool, bool),
        reply: &mut Reply,
    ) -> Answer<u32> {
        let node = self.node(id)?;
        let file = node.file()?;
        if kills_privileges {
            // The kernel has checked that the writer may not keep them, not even after a partial write.
            self.drop_privileges(caller, &node, reply)?;
        }
        let written = if from_cache {
            self.write_back(&file, (at, data)).inspect_err(|refusal| {
                if self.is_writeback() {
                    node.note_failure(refusal.0);
                    reply.make_stale(Stale::Attributes(id)); // so that the next writer asks, and is refused
                }
            })?
        } else if self.is_writeback() && !node.metadata()?.flags.contains(InodeFlags::APPEND) {
            // The kernel stamps the file. One that is append-only is written past its cache ([`Self::open_file`]),
            // and not stamped by it.
            file.write_keeping_times(at, self.within_size(at, data))?
        } else {
            file.write_at(at, self.within_size(at, data))?
        };
        self.operations.add_written(hectare_units::u64_of(written));
        Ok(u32::try_from(written).unwrap_or(u32::MAX))
    }

    /// Writes back pages of the page cache: all of them or an error, since the writer is gone. A kernel that
    /// buffers writes stamps the file itself, and sends the times separately.
    fn write_back(&self, file: &OpenFile, (at, data): (u64, &[u8])) -> Answer<usize> {
        let fits = self.within_size(at, data);
        let written = if self.is_writeback() {
            // The kernel sends whole pages of an append-only file; of one that is immutable by now, earlier
            // writes.
            file.write_from_cache(at, fits)?
        } else {
            file.write_at(at, fits)?
        };
        match (written < fits.len(), fits.len() < data.len()) {
            (true, _) => Err(Errno::NOSPC.into()),
            (_, true) => Err(Errno::FBIG.into()),
            _ => Ok(written),
        }
    }

    /// The part of the data below the maximum file size; all of it if nothing is below.
    fn within_size<'d>(&self, at: u64, data: &'d [u8]) -> &'d [u8] {
        let room = usize::try_from(self.volume.file_size_max().saturating_sub(at)).unwrap_or(usize::MAX);
        if room == 0 { data } else { &data[..data.len().min(room)] }
    }

    /// Makes a directory durable.
    pub(super) fn sync_directory(&self, id: NodeId) -> Answer {
        Ok(self.volume.sync_inode(self.node(id)?.nr())?)
    }

    /// Makes a file durable; its handle has heard of other errors than the other handles of the file.
    pub(super) fn sync_file(&self, id: NodeId, handle: Handle, data_only: bool) -> Answer {
        let file = self.nodes.opened(id, handle)?;
        let synced = if data_only { file.sync_data() } else { file.sync() };
        Ok(synced?)
    }

    pub(super) fn allocate(
        &self,
        caller: &Caller<'_>,
        id: NodeId,
        (at, len): (u64, u64),
        mode: u32,
        reply: &mut Reply,
    ) -> Answer {
        let mode = FallocateMode::from_flags(mode)?;
        let last = match mode {
            FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => {
                self.check_room(id, (at, len))?;
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
        let file = self.file_to_change(caller, id, reply)?;
        // A kernel that buffers writes has stamped the file, and sends the time only if it has changed.
        let keeps_times = self.is_writeback();
        [Some(first), last].into_iter().flatten().try_for_each(|mode| {
            Ok(if keeps_times {
                file.fallocate_keeping_times(mode, at, len)
            } else {
                file.fallocate(mode, at, len)
            }?)
        })
    }

    /// Refuses an allocation larger than the free space before any of it is made: otherwise there would be no
    /// space for the data that the kernel buffers, whose writers are long gone.
    fn check_room(&self, id: NodeId, (at, len): (u64, u64)) -> Answer {
        if at.saturating_add(len) > self.volume.file_size_max() {
            return Err(Errno::FBIG.into());
        }
        let (has, fs) = (self.node(id)?.metadata()?.sectors, self.volume.statfs()?);
        let room = fs.usable.get().saturating_mul(fs.block_size.bytes().get());
        let needs = len.saturating_sub(has.saturating_mul(SECTOR));
        if needs > room { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    /// The file for allocation or copying by a caller: its privileges are dropped, as after a write, unless
    /// the caller may keep them. For these requests the kernel does not say whether it may.
    fn file_to_change(&self, caller: &Caller<'_>, id: NodeId, reply: &mut Reply) -> Answer<Arc<OpenFile>> {
        let node = self.node(id)?;
        if !caller.may(Capabilities::FSETID) {
            self.drop_privileges(caller, &node, reply)?;
        }
        node.file()
    }

    /// Copies bytes between files of the volume. The kernel has written back what it buffers of both before
    /// it asks; if it buffers writes, it also stamps the file.
    pub(super) fn copy_content(
        &self,
        caller: &Caller<'_>,
        from: NodeId,
        copy: &Copying,
        reply: &mut Reply,
    ) -> Answer<u64> {
        let &Copying { from_at, to, to_at, len, .. } = copy;
        let len = len.min(COPY_MAX);
        let (source, target) = (self.node(from)?.file()?, self.file_to_change(caller, to, reply)?);
        Ok(if self.is_writeback() {
            source.copy_range_keeping_times(from_at, &target, to_at, len)?
        } else {
            source.copy_range(from_at, &target, to_at, len)?
        })
    }

    /// Looks for data or a hole. The kernel has written back what it buffers of the file before
    /// ([`Server::waits`](crate::event_loop::Server::waits)).
    pub(super) fn seek(&self, id: NodeId, at: i64, whence: u32) -> Answer<u64> {
        if self.opens_unasked() && !self.behaviour.read_only {
            // Data that the kernel still buffers is unknown here: it would look like a hole and be left out
            // of copies. The kernel then treats everything as data, and does not ask again.
            return Err(Errno::NOSYS.into());
        }
        let at = u64::try_from(at).map_err(|_| Errno::NXIO)?;
        let file = self.node(id)?.file()?;
        let found = match whence {
            SEEK_DATA => file.seek_data(at)?,
            SEEK_HOLE => file.seek_hole(at)?,
            _ => return Err(Errno::INVAL.into()),
        };
        found.ok_or_else(|| Errno::NXIO.into())
    }
}

/// Truncates a file to nothing for its opener, which only a kernel that buffers writes leaves to the server. It
/// sends the times, unless its coarser clock still shows the old ones: then the server's would stay, unknown to
/// the kernel.
fn empty(node: &Node) -> Answer {
    Ok(node.file()?.set_len_keeping_times(0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Behaviour;
    use crate::event_loop::Server;
    use crate::node_table::node_id;
    use crate::protocol::init::Features;
    use hectare_device::MemoryDevice;
    use hectare_engine::{Changes, Creation, OpenOptions, Overwrite, Timestamp, Volume};
    use hectare_mkfs::FormatOptions;
    use hectare_units::Bytes;

    /// The kernel holds back writeback while `OPEN` truncates only if it buffers writes: otherwise a page of a
    /// shared mapping, written back meanwhile, made the file long again.
    #[test]
    fn regression_opening_truncates_only_where_the_kernel_holds_back_writeback() {
        for writeback in [true, false] {
            let device = Arc::new(MemoryDevice::new(Bytes::mib(16)));
            let (format, open) = (FormatOptions::default(), OpenOptions::default());
            let volume = Volume::format(device, &format, Overwrite::Refuse, open).unwrap();
            let behaviour = Behaviour { writeback, ..Behaviour::default() };
            let mut adapter = Adapter::new(volume, behaviour, Arc::default()).unwrap();
            let wanted = adapter.greet(Features::all()).features;
            assert_eq!(wanted.contains(Features::ATOMIC_O_TRUNC), writeback);
        }
    }

    /// They were set back afterwards, over those that the kernel had sent meanwhile.
    #[test]
    fn regression_times_are_the_kernels_if_it_gathers_while_content_changes() {
        for (writeback, stay) in [(true, true), (false, false)] {
            let (format, open) = (FormatOptions::default(), OpenOptions::default());
            let device = Arc::new(MemoryDevice::new(Bytes::mib(16)));
            let volume = Volume::format(device, &format, Overwrite::Refuse, open).unwrap();
            for name in ["source", "target"] {
                volume.create_file(name, Creation::default()).unwrap().write_all_at(0, b"text").unwrap();
            }
            let behaviour = Behaviour { writeback, ..Behaviour::default() };
            let mut adapter = Adapter::new(volume, behaviour, Arc::default()).unwrap();
            adapter.greet(Features::all());
            let found = |name| node_id(adapter.look_up(NodeId::ROOT, name).unwrap().inode);
            let (source, id, past) = (found(b"source"), found(b"target"), Timestamp::from_seconds(1));
            let copy = Copying { from_at: 0, to: id, to_at: 2, len: 4, is_wide: true };
            let reply = || Reply::default();
            let copied = || adapter.copy_content(&Caller::ROOT, source, &copy, &mut reply()).map(drop);
            let allocate = |mode| adapter.allocate(&Caller::ROOT, id, (0, 70_000), mode, &mut reply());
            let opening = Opening { flags: (OFlags::WRONLY | OFlags::TRUNC).bits(), kills_privileges: false };
            let emptied = || adapter.open_file(&Caller::ROOT, id, opening, &mut reply()).map(drop);
            let modes: [&dyn Fn() -> Answer; 3] = [&|| allocate(0), &|| allocate(3), &|| allocate(16)];
            let opened = writeback.then_some(&emptied as &dyn Fn() -> Answer);
            for change in [&copied as &dyn Fn() -> Answer].into_iter().chain(opened).chain(modes) {
                let changes = Changes { mtime: Some(past), ctime: Some(past), ..Changes::default() };
                adapter.volume.change(adapter.node(id).unwrap().nr(), &changes).unwrap();
                change().unwrap();
                let found = adapter.node(id).unwrap().metadata().unwrap();
                assert_eq!((found.mtime == past, found.ctime == past), (stay, stay));
            }
        }
    }
}
