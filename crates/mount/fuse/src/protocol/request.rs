//! Requests: decodes messages.
//!
//! Every size in a request is checked here: names end with a zero byte, data is as long as announced. Inode
//! numbers, offsets and flags are passed on as they are.

use super::NodeId;
use super::wire::{
    BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, ForgetOne, FsyncIn, GetattrIn, GetxattrIn,
    InHeader, IoctlIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In, SetattrIn,
    SetxattrExt, SetxattrIn, WriteIn,
};
use crate::errno::Answer;
use hectare_engine::Timestamp;
use hectare_units::usize_of;
use rustix::fs::OFlags;
use rustix::io::Errno;
use zerocopy::native_endian::U64;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The operation that begins a session.
pub(crate) const INIT: u32 = 26;

/// The bits of `SETATTR` that select what to set.
const SET_MODE: u32 = 1 << 0;
const SET_UID: u32 = 1 << 1;
const SET_GID: u32 = 1 << 2;
const SET_SIZE: u32 = 1 << 3;
const SET_ATIME: u32 = 1 << 4;
const SET_MTIME: u32 = 1 << 5;
/// The request has the handle of a file that the caller has open; for times alone, only the kernel itself
/// sends it.
const OF_FILE: u32 = 1 << 6;
const SET_ATIME_NOW: u32 = 1 << 7;
const SET_MTIME_NOW: u32 = 1 << 8;
const SET_CTIME: u32 = 1 << 10;
/// Set-ID bits are to be cleared: by `SETATTR`, by opening, and by `WRITE`.
const SETATTR_KILL_PRIVILEGES: u32 = 1 << 11;
const OPEN_KILL_PRIVILEGES: u32 = 1 << 0;
const WRITE_KILL_PRIVILEGES: u32 = 1 << 2;
/// A write from the page cache, some time after it was made.
const WRITE_FROM_CACHE: u32 = 1 << 0;
/// The set-group-ID bit is to be cleared when an ACL is set.
const SETXATTR_KILL_GROUP: u32 = 1 << 0;
/// The request has a handle.
const GETATTR_OF_HANDLE: u32 = 1 << 0;
/// Only data is to be synced.
const SYNC_DATA_ONLY: u32 = 1 << 0;

const NANOSECONDS: u32 = 1_000_000_000;

/// A request: the caller, the inode and the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) node: NodeId,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The caller's process, or thread; 0 if the server can't see it.
    pub(crate) process: u32,
    pub(crate) body: Body<'a>,
}

/// The operations. Names are those of the protocol, whose documentation describes each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    Lookup { name: &'a [u8] },
    Forget { lookups: u64 },
    BatchForget { forgets: &'a [ForgetOne] },
    Getattr { by_writer: bool },
    Statx,
    Setattr(Setattr),
    Readlink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    Mknod { mode: u32, device: u32, umask: u32, name: &'a [u8] },
    Mkdir { mode: u32, umask: u32, name: &'a [u8] },
    Unlink { name: &'a [u8] },
    Rmdir { name: &'a [u8] },
    Rename { name: &'a [u8], parent: NodeId, new: &'a [u8], flags: u32 },
    Link { node: NodeId, name: &'a [u8] },
    Open(Opening),
    Create { flags: u32, mode: u32, umask: u32, name: &'a [u8] },
    Tmpfile { flags: u32, mode: u32, umask: u32 },
    Read { at: u64, size: u32, flags: u32 },
    Write { at: u64, data: &'a [u8], from_cache: bool, kills_privileges: bool },
    Statfs,
    Release { handle: Handle },
    Flush,
    Fsync { handle: Handle, data_only: bool },
    Fsyncdir,
    Syncfs,
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32, kills_group: bool },
    Getxattr { name: &'a [u8], room: u32 },
    Listxattr { room: u32 },
    Removexattr { name: &'a [u8] },
    Opendir,
    Readdir { from: u64, room: u32, flags: u32 },
    Readdirplus { from: u64, room: u32, flags: u32 },
    Releasedir,
    Ioctl { command: u32, input: &'a [u8], room: u32 },
    Fallocate { at: u64, len: u64, mode: u32 },
    Lseek { at: i64, whence: u32 },
    CopyFileRange(Copying),
    Destroy,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// The flags of `open(2)`.
    pub(crate) flags: u32,
    pub(crate) kills_privileges: bool,
}

/// The changes to an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setattr {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<Timestamp>,
    pub(crate) mtime: Option<Timestamp>,
    pub(crate) ctime: Option<Timestamp>,
    pub(crate) kills_privileges: bool,
    /// Access and modification time are set to the present.
    accessed_now: bool,
    modified_now: bool,
    /// The request has the handle of a file that is open for writing.
    of_writer: bool,
}

/// The meaning of a change of times alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Times {
    /// Both to the present: permitted with write access to the file.
    Touch,
    /// The times with which a kernel that buffers writes has stamped a file that is open for writing.
    Written,
    /// The same times of a file that nobody has open for writing. A kernel that buffers writes has sent the
    /// modification time when the last writer closed the file, so that only the change time is its own; a
    /// program that sets the modification time looks the same, except for the value.
    WrittenOrSet,
}

/// A range of one file to be copied into another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    pub(crate) from_at: u64,
    pub(crate) to: NodeId,
    pub(crate) to_at: u64,
    pub(crate) len: u64,
    /// The answer has room for a 64-bit length.
    pub(crate) is_wide: bool,
}

/// The handle of an open file: a number of its own, and how it was opened. All bits are 0 where files are
/// opened without a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    const WRITES: u64 = 1 << 0;
    const READS: u64 = 1 << 1;
    const FIRST: u64 = 1 << 2;

    /// The handle with this number of a file opened with these flags.
    pub(crate) fn new(number: u64, flags: u32) -> Self {
        let mode = match OFlags::from_bits_retain(flags) & OFlags::RWMODE {
            OFlags::RDONLY => Self::READS,
            OFlags::WRONLY => Self::WRITES,
            _ => Self::READS | Self::WRITES,
        };
        Self(number.wrapping_mul(Self::FIRST) | mode)
    }

    pub(crate) fn may_write(self) -> bool {
        self.0 & Self::WRITES != 0
    }

    /// Whether the file may be written through a shared mapping.
    pub(crate) fn may_map(self) -> bool {
        const BOTH: u64 = Handle::READS | Handle::WRITES;
        self.0 & BOTH == BOTH
    }
}

/// The header of a message, if it is long enough to have one.
pub(crate) fn header(message: &[u8]) -> Option<(&InHeader, &[u8])> {
    InHeader::ref_from_prefix(message).ok()
}

/// Whether an operation has an answer, even an error.
pub(crate) fn is_answered(operation: u32) -> bool {
    !matches!(operation, operation::FORGET | operation::BATCH_FORGET)
}

/// Why a request may have to wait until the kernel has written back what it buffers of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// It looks for data or for a hole.
    Seek,
    /// It comes before a write that goes to the page cache.
    Write,
    /// It sets the modification time, which data that comes later would set to the present.
    Times,
}

/// Whether a request may have to wait, and why.
pub(crate) fn may_wait(header: &InHeader, body: &[u8]) -> Option<Wait> {
    match header.opcode.get() {
        operation::LSEEK => Some(Wait::Seek),
        operation::GETATTR => GetattrIn::ref_from_bytes(body).is_ok_and(is_by_writer).then_some(Wait::Write),
        operation::SETATTR => SetattrIn::ref_from_bytes(body).is_ok_and(sets_mtime).then_some(Wait::Times),
        _ => None,
    }
}

/// Whether the modification time is set, to another than the present. While the kernel truncates, it writes
/// nothing back.
fn sets_mtime(setattr: &SetattrIn) -> bool {
    setattr.valid.get() & (SET_MTIME | SET_MTIME_NOW | SET_SIZE) == SET_MTIME
}

/// Whether a handle that may write asks for attributes. The kernel passes a handle only before a read or
/// write, never for `stat`.
fn is_by_writer(getattr: &GetattrIn) -> bool {
    getattr.getattr_flags.get() & GETATTR_OF_HANDLE != 0 && Handle(getattr.fh.get()).may_write()
}

mod operation {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const CREATE: u32 = 35;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
    pub(super) const SYNCFS: u32 = 50;
    pub(super) const TMPFILE: u32 = 51;
    pub(super) const STATX: u32 = 52;
    pub(super) const COPY_FILE_RANGE_64: u32 = 53;
}

/// The rest of a body.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn record<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Answer<&'a T> {
        let (record, rest) = T::ref_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(record)
    }

    fn quad(&mut self) -> Answer<u64> {
        Ok(self.record::<U64>()?.get())
    }

    /// Bytes up to the next zero byte.
    fn name(&mut self) -> Answer<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    fn bytes(&mut self, len: u32) -> Answer<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize_of(len)).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl<'a> Request<'a> {
    /// Decodes a message from its header and the other bytes. `has_xattr_flags` says that `SETXATTR` has
    /// flags of its own.
    pub(crate) fn parse(header: &InHeader, rest: &'a [u8], has_xattr_flags: bool) -> Answer<Self> {
        if usize_of(header.len.get()) != size_of::<InHeader>() + rest.len() {
            return Err(Errno::INVAL.into());
        }
        let body = Body::parse(header.opcode.get(), Fields(rest), has_xattr_flags)?;
        let (uid, gid, process) = (header.uid.get(), header.gid.get(), header.pid.get());
        Ok(Self { node: NodeId(header.nodeid.get()), uid, gid, process, body })
    }
}

impl<'a> Body<'a> {
    fn parse(operation: u32, mut fields: Fields<'a>, has_xattr_flags: bool) -> Answer<Self> {
        Ok(match operation {
            operation::LOOKUP => Self::Lookup { name: fields.name()? },
            operation::FORGET => Self::Forget { lookups: fields.quad()? },
            operation::BATCH_FORGET => Self::batch_forget(fields)?,
            operation::GETATTR => Self::getattr(fields)?,
            operation::STATX => Self::Statx,
            operation::SETATTR => Self::Setattr(Setattr::parse(fields.record()?)?),
            operation::READLINK => Self::Readlink,
            operation::SYMLINK => Self::Symlink { name: fields.name()?, target: fields.name()? },
            operation::MKNOD => {
                let MknodIn { mode, rdev, umask, .. } = fields.record()?;
                let (mode, device, umask) = (mode.get(), rdev.get(), umask.get());
                Self::Mknod { mode, device, umask, name: fields.name()? }
            }
            operation::MKDIR => {
                let MkdirIn { mode, umask } = fields.record()?;
                Self::Mkdir { mode: mode.get(), umask: umask.get(), name: fields.name()? }
            }
            operation::UNLINK => Self::Unlink { name: fields.name()? },
            operation::RMDIR => Self::Rmdir { name: fields.name()? },
            operation::RENAME => {
                let parent = NodeId(fields.quad()?);
                Self::Rename { parent, name: fields.name()?, new: fields.name()?, flags: 0 }
            }
            operation::RENAME2 => {
                let Rename2In { newdir, flags, .. } = fields.record()?;
                let (parent, flags) = (NodeId(newdir.get()), flags.get());
                Self::Rename { parent, name: fields.name()?, new: fields.name()?, flags }
            }
            operation::LINK => Self::Link { node: NodeId(fields.quad()?), name: fields.name()? },
            operation::OPEN => Self::Open(Opening::parse(fields.record()?)),
            operation::CREATE => {
                let CreateIn { flags, mode, umask, .. } = fields.record()?;
                let (flags, mode, umask) = (flags.get(), mode.get(), umask.get());
                Self::Create { flags, mode, umask, name: fields.name()? }
            }
            operation::TMPFILE => {
                let CreateIn { flags, mode, umask, .. } = fields.record()?;
                Self::Tmpfile { flags: flags.get(), mode: mode.get(), umask: umask.get() }
            }
            operation::READ => {
                let ReadIn { offset, size, flags, .. } = fields.record()?;
                Self::Read { at: offset.get(), size: size.get(), flags: flags.get() }
            }
            operation::WRITE => Self::write(fields)?,
            operation::STATFS => Self::Statfs,
            operation::RELEASE => Self::Release { handle: Handle(fields.record::<ReleaseIn>()?.fh.get()) },
            operation::FLUSH => Self::Flush,
            operation::FSYNC => {
                let FsyncIn { fh, fsync_flags, .. } = fields.record()?;
                let data_only = fsync_flags.get() & SYNC_DATA_ONLY != 0;
                Self::Fsync { handle: Handle(fh.get()), data_only }
            }
            operation::FSYNCDIR => Self::Fsyncdir,
            operation::SYNCFS => Self::Syncfs,
            operation::SETXATTR => Self::set_xattr(fields, has_xattr_flags)?,
            operation::GETXATTR => {
                let GetxattrIn { size, .. } = fields.record()?;
                Self::Getxattr { room: size.get(), name: fields.name()? }
            }
            operation::LISTXATTR => Self::Listxattr { room: fields.record::<GetxattrIn>()?.size.get() },
            operation::REMOVEXATTR => Self::Removexattr { name: fields.name()? },
            operation::OPENDIR => Self::Opendir,
            operation::READDIR => {
                let ReadIn { offset, size, flags, .. } = fields.record()?;
                Self::Readdir { from: offset.get(), room: size.get(), flags: flags.get() }
            }
            operation::READDIRPLUS => {
                let ReadIn { offset, size, flags, .. } = fields.record()?;
                Self::Readdirplus { from: offset.get(), room: size.get(), flags: flags.get() }
            }
            operation::RELEASEDIR => Self::Releasedir,
            operation::IOCTL => {
                let IoctlIn { cmd, in_size, out_size, .. } = fields.record()?;
                let (command, room) = (cmd.get(), out_size.get());
                Self::Ioctl { command, room, input: fields.bytes(in_size.get())? }
            }
            operation::FALLOCATE => {
                let FallocateIn { offset, length, mode, .. } = fields.record()?;
                Self::Fallocate { at: offset.get(), len: length.get(), mode: mode.get() }
            }
            operation::LSEEK => {
                let LseekIn { offset, whence, .. } = fields.record()?;
                Self::Lseek { at: offset.get(), whence: whence.get() }
            }
            operation::COPY_FILE_RANGE => Self::CopyFileRange(Copying::parse(fields.record()?, false)),
            operation::COPY_FILE_RANGE_64 => Self::CopyFileRange(Copying::parse(fields.record()?, true)),
            operation::DESTROY => Self::Destroy,
            _ => return Err(Errno::NOSYS.into()),
        })
    }

    fn batch_forget(mut fields: Fields<'a>) -> Answer<Self> {
        let BatchForgetIn { count, .. } = fields.record()?;
        let (forgets, _) = <[ForgetOne]>::ref_from_prefix_with_elems(fields.0, usize_of(count.get()))
            .map_err(|_| Errno::INVAL)?;
        Ok(Self::BatchForget { forgets })
    }

    fn getattr(mut fields: Fields<'a>) -> Answer<Self> {
        let getattr: &GetattrIn = fields.record()?;
        Ok(Self::Getattr { by_writer: is_by_writer(getattr) })
    }

    fn write(mut fields: Fields<'a>) -> Answer<Self> {
        let WriteIn { offset, size, write_flags, .. } = fields.record()?;
        let has = |flag| write_flags.get() & flag != 0;
        Ok(Self::Write {
            at: offset.get(),
            data: fields.bytes(size.get())?,
            from_cache: has(WRITE_FROM_CACHE),
            kills_privileges: has(WRITE_KILL_PRIVILEGES),
        })
    }

    fn set_xattr(mut fields: Fields<'a>, has_flags: bool) -> Answer<Self> {
        let SetxattrIn { size, flags } = fields.record()?;
        let own = if has_flags { fields.record::<SetxattrExt>()?.setxattr_flags.get() } else { 0 };
        Ok(Self::Setxattr {
            name: fields.name()?,
            value: fields.bytes(size.get())?,
            flags: flags.get(),
            kills_group: own & SETXATTR_KILL_GROUP != 0,
        })
    }
}

impl Opening {
    fn parse(open: &OpenIn) -> Self {
        let kills_privileges = open.open_flags.get() & OPEN_KILL_PRIVILEGES != 0;
        Self { flags: open.flags.get(), kills_privileges }
    }

    /// Whether opening empties the file.
    pub(crate) fn truncates(self) -> bool {
        OFlags::from_bits_retain(self.flags).contains(OFlags::TRUNC)
    }
}

impl Setattr {
    fn parse(of: &SetattrIn) -> Answer<Self> {
        let has = |flag| of.valid.get() & flag != 0;
        let time = |set, now, seconds: i64, nanoseconds: u32| -> Answer<Option<Timestamp>> {
            match () {
                () if has(now) => Ok(Some(Timestamp::now())),
                () if !has(set) => Ok(None),
                () if nanoseconds >= NANOSECONDS => Err(Errno::INVAL.into()),
                () => Ok(Some(Timestamp { seconds, nanoseconds })),
            }
        };
        Ok(Self {
            mode: has(SET_MODE).then(|| of.mode.get()),
            uid: has(SET_UID).then(|| of.uid.get()),
            gid: has(SET_GID).then(|| of.gid.get()),
            size: has(SET_SIZE).then(|| of.size.get()),
            atime: time(SET_ATIME, SET_ATIME_NOW, of.atime.get(), of.atimensec.get())?,
            mtime: time(SET_MTIME, SET_MTIME_NOW, of.mtime.get(), of.mtimensec.get())?,
            ctime: time(SET_CTIME, 0, of.ctime.get(), of.ctimensec.get())?,
            kills_privileges: has(SETATTR_KILL_PRIVILEGES),
            accessed_now: has(SET_ATIME_NOW),
            modified_now: has(SET_MTIME_NOW),
            of_writer: has(OF_FILE),
        })
    }

    /// The meaning of a change of times alone, unless a program sets them.
    pub(crate) fn times(&self) -> Option<Times> {
        let Self { mode, uid, gid, size, atime, mtime, ctime, .. } = *self;
        if mode.or(uid).or(gid).is_some() || size.is_some() {
            return None;
        }
        // A kernel that owns these times says when the present is: at the moment of the change.
        if self.accessed_now && (self.modified_now || mtime.is_some() && mtime == ctime) {
            return Some(Times::Touch);
        }
        let is_kernels = atime.is_none() && mtime.is_some() && ctime.is_some();
        is_kernels.then_some(if self.of_writer { Times::Written } else { Times::WrittenOrSet })
    }
}

impl Copying {
    fn parse(of: &CopyFileRangeIn, is_wide: bool) -> Self {
        Self {
            from_at: of.off_in.get(),
            to: NodeId(of.nodeid_out.get()),
            to_at: of.off_out.get(),
            len: of.len.get(),
            is_wide,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Refusal;

    fn parse(operation: u32, body: &[u8]) -> Answer<Body<'_>> {
        Body::parse(operation, Fields(body), true)
    }

    fn refused(operation: u32, body: &[u8]) -> bool {
        matches!(parse(operation, body), Err(Refusal(Errno::INVAL)))
    }

    fn with_word(len: usize, at: usize, value: u32) -> Vec<u8> {
        let mut body = vec![0; len];
        body[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        body
    }

    #[test]
    fn names_end_with_a_zero() {
        assert!(matches!(parse(operation::LOOKUP, b"name\0"), Ok(Body::Lookup { name: b"name" })));
        assert!(refused(operation::LOOKUP, b"name"));
        let two = parse(operation::SYMLINK, b"name\0to\0");
        assert!(matches!(two, Ok(Body::Symlink { name: b"name", target: b"to" })));
        assert!(refused(operation::SYMLINK, b"name\0to"));
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        for (operation, body, passes) in [
            (operation::WRITE, with_word(45, 16, 5), true),
            (operation::WRITE, with_word(45, 16, 6), false),
            (operation::WRITE, with_word(45, 16, u32::MAX), false),
            (operation::WRITE, vec![9; 20], false),
            (operation::SETXATTR, [&with_word(16, 0, 2)[..], b"user.a\0xy"].concat(), true),
            (operation::SETXATTR, [&with_word(16, 0, 3)[..], b"user.a\0xy"].concat(), false),
            (operation::IOCTL, with_word(36, 24, 4), true),
            (operation::IOCTL, with_word(36, 24, 5), false),
            (operation::BATCH_FORGET, with_word(24, 0, 1), true),
            (operation::BATCH_FORGET, with_word(24, 0, 2), false),
            (operation::BATCH_FORGET, with_word(24, 0, u32::MAX), false),
        ] {
            let found = parse(operation, &body);
            assert_eq!(found.is_ok(), passes, "{operation} {body:?}: {found:?}");
            assert!(passes || refused(operation, &body));
        }
    }

    #[test]
    fn a_header_that_lies_about_the_length_is_refused() {
        let mut message = with_word(40, 0, 40);
        message[4] = 17;
        let request = |message: &[u8]| {
            let (header, rest) = header(message).unwrap();
            Request::parse(header, rest, true).map(|_| ())
        };
        assert_eq!(request(&message), Ok(()));
        message[0] = 41;
        assert_eq!(request(&message), Err(Errno::INVAL.into()));
        assert!(header(&message[..39]).is_none());
    }

    #[test]
    fn set_xattr_has_flags_only_where_that_was_agreed() {
        let old = [&with_word(8, 0, 2)[..], b"user.a\0xy"].concat();
        let found = Body::parse(operation::SETXATTR, Fields(&old), false);
        assert!(matches!(
            found,
            Ok(Body::Setxattr { name: b"user.a", value: b"xy", flags: 0, kills_group: false })
        ));
        let new = [&with_word(8, 0, 1)[..], &with_word(8, 0, 1), b"user.b\0z"].concat();
        let found = parse(operation::SETXATTR, &new);
        assert!(matches!(
            found,
            Ok(Body::Setxattr { name: b"user.b", value: b"z", flags: 0, kills_group: true })
        ));
    }

    #[test]
    fn times_are_those_that_were_sent() {
        let mut body = with_word(88, 0, SET_ATIME | SET_CTIME);
        body[32..40].copy_from_slice(&(-86_400_i64).to_ne_bytes());
        body[48..56].copy_from_slice(&i64::MIN.to_ne_bytes());
        body[56..60].copy_from_slice(&250_000_000_u32.to_ne_bytes());
        let Ok(Body::Setattr(found)) = parse(operation::SETATTR, &body) else { panic!("it is sound") };
        assert_eq!(found.atime, Some(Timestamp { seconds: -86_400, nanoseconds: 250_000_000 }));
        assert_eq!(found.ctime, Some(Timestamp { seconds: i64::MIN, nanoseconds: 0 }));
        assert_eq!((found.mtime, found.size), (None, None));
        body[64..68].copy_from_slice(&NANOSECONDS.to_ne_bytes());
        assert!(refused(operation::SETATTR, &body));
        body[0..4].copy_from_slice(&SET_ATIME.to_ne_bytes());
        assert!(!refused(operation::SETATTR, &body), "not given, not looked at");
    }

    #[test]
    fn what_is_not_known_is_never_asked_again() {
        for operation in [0, 7, 19, 31, 36, 37, 40, 54, 4096, u32::MAX] {
            assert!(matches!(parse(operation, &[0; 100]), Err(Refusal(Errno::NOSYS))), "{operation}");
        }
    }
}
