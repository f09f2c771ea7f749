//! A folder of the host as either side of a copy.
//!
//! Everything below the top is reached from its open parent directory, never by a long path and never through
//! a symbolic link. Attributes of what can't be opened (links, devices) are reached through `/proc/self/fd`.
//!
//! Keeping owners needs root; where that is refused, the owner stays as it is, as with `cp -a`. The same goes
//! for attributes that the host's file system or a right does not allow; they are counted and told once.

use super::{Content, First, Meta, Origin, Reason, Special, Target, Xattrs};
use crate::failure::tell;
use crate::name::{join, shown};
use crate::output::reason as io_reason;
use hectare_engine::{DeviceNumber, Kind, Timestamp, Volume};
use hectare_units::InodeNr;
use rustix::fs::{
    self as sys, AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The host, from a folder on; paths in messages are below it.
pub(crate) struct Local {
    top: Option<Arc<OwnedFd>>,
    shown: PathBuf,
    /// Attributes that could not be kept.
    lost: AtomicUsize,
}

/// A name in an open directory; without one, a path from the working directory.
pub(crate) struct Node {
    dir: Option<Arc<OwnedFd>>,
    name: OsString,
}

impl Node {
    /// Something named by the user.
    pub(crate) fn at(path: &Path) -> Self {
        Self { dir: None, name: path.as_os_str().to_owned() }
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, Reason> {
        sys::openat(self.dir(), &self.name, flags | OFlags::CLOEXEC, Mode::empty()).map_err(errno)
    }

    /// A path for calls that take no directory.
    fn path(&self) -> PathBuf {
        match &self.dir {
            Some(dir) => through(dir, self.name.as_bytes()),
            None => PathBuf::from(&self.name),
        }
    }
}

fn through(dir: &OwnedFd, name: &[u8]) -> PathBuf {
    Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(OsStr::from_bytes(name))
}

fn errno(error: Errno) -> Reason {
    io_reason(&error.into())
}

impl Local {
    /// The host as an origin: messages name paths as they were given.
    pub(crate) fn origin() -> Self {
        Self { top: None, shown: PathBuf::new(), lost: AtomicUsize::new(0) }
    }

    /// The host as a target: everything goes into this directory.
    ///
    /// # Errors
    /// If it can't be opened.
    pub(crate) fn target(folder: &Path) -> Result<(Self, Arc<OwnedFd>), Reason> {
        let top = Arc::new(Node::at(folder).open(OFlags::RDONLY | OFlags::DIRECTORY)?);
        let local = Self { top: Some(Arc::clone(&top)), shown: folder.to_owned(), lost: AtomicUsize::new(0) };
        Ok((local, top))
    }

    /// Tells what could not be kept.
    pub(crate) fn tell_lost(&self) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > 0 {
            let folder = shown(self.shown.as_os_str().as_bytes());
            tell(format_args!("{folder}: note: {lost} extended attributes can't be kept there"));
        }
    }

    fn set_xattrs(&self, path: &Path, xattrs: &Xattrs) -> Result<(), Reason> {
        for (name, value) in xattrs {
            match sys::lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(error) if is_lost(error) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(())
    }

    fn finish(&self, fd: BorrowedFd<'_>, meta: &Meta, xattrs: &Xattrs) -> Result<(), Reason> {
        allow_refused(sys::fchown(fd, Some(uid(meta.uid)), Some(gid(meta.gid))))?;
        let path = Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string());
        // Through the magic link, so it is followed.
        for (name, value) in xattrs {
            match sys::setxattr(&path, OsStr::from_bytes(name), value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(error) if is_lost(error) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(errno(error)),
            }
        }
        sys::fchmod(fd, mode_of(meta.mode)).map_err(errno)?;
        sys::futimens(fd, &times(meta)).map_err(errno)
    }
}

fn is_lost(error: Errno) -> bool {
    matches!(
        error,
        Errno::OPNOTSUPP
            | Errno::PERM
            | Errno::ACCESS
            | Errno::NOSPC
            | Errno::RANGE
            | Errno::TOOBIG
            | Errno::INVAL
    )
}

/// Only root may give files away; without root the owner stays.
fn allow_refused(result: rustix::io::Result<()>) -> Result<(), Reason> {
    match result {
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        other => other.map_err(errno),
    }
}

fn uid(raw: u32) -> rustix::process::Uid {
    rustix::process::Uid::from_raw(raw)
}

fn gid(raw: u32) -> rustix::process::Gid {
    rustix::process::Gid::from_raw(raw)
}

fn mode_of(mode: u16) -> Mode {
    Mode::from_raw_mode(mode.into())
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

fn kind_of(mode: u32) -> Result<Kind, Reason> {
    Ok(match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return Err("it is of a kind that is not known".to_owned()),
    })
}

/// An open file of the host, with its size when it was opened.
pub(crate) struct Opened {
    file: File,
    size: u64,
}

impl Content for Opened {
    fn size(&self) -> u64 {
        self.size
    }

    fn ranges(&self) -> Result<Vec<(u64, u64)>, Reason> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < self.size {
            let start = match sys::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start.min(self.size),
                Err(Errno::NXIO) => break,
                // No such question on this file system: all of it is data.
                Err(_) if at == 0 => return Ok(vec![(0, self.size)]),
                Err(error) => return Err(errno(error)),
            };
            let end = sys::seek(&self.file, SeekFrom::Hole(start)).map_err(errno)?.min(self.size);
            if end <= start {
                break;
            }
            ranges.push((start, end - start));
            at = end;
        }
        Ok(ranges)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, Reason> {
        self.file.read_at(buffer, at).map_err(|error| io_reason(&error))
    }
}

impl Origin for Local {
    type Node = Node;
    type File = Opened;

    fn meta(&self, node: &Node, follow: bool) -> Result<Meta, Reason> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = sys::statat(node.dir(), &node.name, flags).map_err(errno)?;
        let time = |seconds: i64, nanoseconds: u64| Timestamp {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
        };
        Ok(Meta {
            kind: kind_of(stat.st_mode)?,
            mode: hectare_units::low16(u64::from(stat.st_mode & 0o7777)),
            uid: stat.st_uid,
            gid: stat.st_gid,
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            links: stat.st_nlink,
            id: (stat.st_dev, stat.st_ino),
            device: DeviceNumber { major: sys::major(stat.st_rdev), minor: sys::minor(stat.st_rdev) },
        })
    }

    fn children(&self, node: &Node) -> Result<Vec<(Vec<u8>, Node)>, Reason> {
        // The top may be a link that the user named; below it none is followed.
        let follow = if node.dir.is_none() { OFlags::empty() } else { OFlags::NOFOLLOW };
        let dir = Arc::new(node.open(OFlags::RDONLY | OFlags::DIRECTORY | follow)?);
        let mut children = Vec::new();
        for entry in sys::Dir::read_from(&dir).map_err(errno)? {
            let name = entry.map_err(errno)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                let os_name = OsStr::from_bytes(&name).to_owned();
                children.push((name, Node { dir: Some(Arc::clone(&dir)), name: os_name }));
            }
        }
        children.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(children)
    }

    fn open(&self, node: &Node, follow: bool) -> Result<Opened, Reason> {
        // Not to wait for the other end, should it have become a pipe.
        let follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let file = File::from(node.open(OFlags::RDONLY | OFlags::NONBLOCK | follow)?);
        let meta = file.metadata().map_err(|error| io_reason(&error))?;
        if !meta.is_file() {
            return Err("it is no regular file any more".to_owned());
        }
        Ok(Opened { file, size: meta.len() })
    }

    fn read_link(&self, node: &Node) -> Result<Vec<u8>, Reason> {
        Ok(sys::readlinkat(node.dir(), &node.name, Vec::new()).map_err(errno)?.into_bytes())
    }

    fn xattrs(&self, node: &Node, follow: bool) -> Result<Xattrs, Reason> {
        let path = node.path();
        let names = match list(&path, follow) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(errno(error)),
        };
        let mut xattrs = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| is_kept(name)) {
            match value(&path, name, follow) {
                Ok(value) => xattrs.push((name.to_vec(), value)),
                // It went away meanwhile, or was never there for this user.
                Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => {}
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(xattrs)
    }

    fn inode_in(&self, _node: &Node, _volume: &Volume) -> Option<InodeNr> {
        None
    }

    fn show(&self, path: &[u8]) -> String {
        shown(path)
    }
}

/// What can be stored in a volume.
fn is_kept(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security."].iter().any(|prefix| name.starts_with(prefix))
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
}

/// The most bytes the system has for a list of names, or for a value.
const XATTR_MAX: usize = 1 << 16;

fn list(path: &Path, follow: bool) -> rustix::io::Result<Vec<u8>> {
    let get = |buffer: &mut Vec<u8>| match follow {
        true => sys::listxattr(path, &mut buffer[..]),
        false => sys::llistxattr(path, &mut buffer[..]),
    };
    grown(get)
}

fn value(path: &Path, name: &[u8], follow: bool) -> rustix::io::Result<Vec<u8>> {
    let name = OsStr::from_bytes(name);
    let get = |buffer: &mut Vec<u8>| match follow {
        true => sys::getxattr(path, name, &mut buffer[..]),
        false => sys::lgetxattr(path, name, &mut buffer[..]),
    };
    grown(get)
}

/// Calls with a small buffer, and with the largest if that was too small.
fn grown(get: impl Fn(&mut Vec<u8>) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 512];
    let n = match get(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(XATTR_MAX, 0);
            get(&mut buffer)?
        }
        other => other?,
    };
    buffer.truncate(n);
    Ok(buffer)
}

impl Target for Local {
    type Dir = Arc<OwnedFd>;
    type File = File;

    fn find(&self, dir: &Arc<OwnedFd>, name: &[u8]) -> Result<Option<Kind>, Reason> {
        match sys::statat(&**dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => kind_of(stat.st_mode).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    fn enter(&self, dir: &Arc<OwnedFd>, name: &[u8]) -> Result<Arc<OwnedFd>, Reason> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        sys::openat(&**dir, OsStr::from_bytes(name), flags, Mode::empty()).map(Arc::new).map_err(errno)
    }

    fn make_dir(&self, dir: &Arc<OwnedFd>, name: &[u8], _mode: u16) -> Result<Arc<OwnedFd>, Reason> {
        // Its mode comes last: until then it must be possible to put things into it.
        sys::mkdirat(&**dir, OsStr::from_bytes(name), mode_of(0o700)).map_err(errno)?;
        self.enter(dir, name)
    }

    fn make_file(&self, dir: &Arc<OwnedFd>, name: &[u8], mode: u16, there: bool) -> Result<File, Reason> {
        let how = if there { OFlags::TRUNC } else { OFlags::CREATE | OFlags::EXCL };
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
        let file =
            sys::openat(&**dir, OsStr::from_bytes(name), flags, mode_of(mode & 0o777)).map_err(errno)?;
        Ok(file.into())
    }

    fn make_special(
        &self,
        dir: &Arc<OwnedFd>,
        name: &[u8],
        special: &Special,
        mode: u16,
        attributes: Option<&(Meta, Xattrs)>,
    ) -> Result<Option<InodeNr>, Reason> {
        let os_name = OsStr::from_bytes(name);
        match special {
            Special::Symlink(target) => {
                sys::symlinkat(OsStr::from_bytes(target), &**dir, os_name).map_err(errno)?;
            }
            Special::Node(kind, number) => {
                let file_type = match kind {
                    Kind::CharDevice => FileType::CharacterDevice,
                    Kind::BlockDevice => FileType::BlockDevice,
                    Kind::Fifo => FileType::Fifo,
                    _ => FileType::Socket,
                };
                let number = sys::makedev(number.major, number.minor);
                sys::mknodat(&**dir, os_name, file_type, mode_of(mode & 0o777), number).map_err(errno)?;
            }
        }
        let Some((meta, xattrs)) = attributes else { return Ok(None) };
        let owners = (Some(uid(meta.uid)), Some(gid(meta.gid)));
        allow_refused(sys::chownat(&**dir, os_name, owners.0, owners.1, AtFlags::SYMLINK_NOFOLLOW))?;
        self.set_xattrs(&through(dir, name), xattrs)?;
        if meta.kind != Kind::Symlink {
            sys::chmodat(&**dir, os_name, mode_of(meta.mode), AtFlags::empty()).map_err(errno)?;
        }
        sys::utimensat(&**dir, os_name, &times(meta), AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        Ok(None)
    }

    fn link(&self, first: &First, dir: &Arc<OwnedFd>, name: &[u8]) -> Result<(), Reason> {
        let top = self.top.as_ref().ok_or("there is no target folder")?;
        let path = OsStr::from_bytes(&first.path);
        sys::linkat(&**top, path, &**dir, OsStr::from_bytes(name), AtFlags::empty()).map_err(errno)
    }

    fn remove(&self, dir: &Arc<OwnedFd>, name: &[u8]) -> Result<(), Reason> {
        sys::unlinkat(&**dir, OsStr::from_bytes(name), AtFlags::empty()).map_err(errno)
    }

    fn inode(&self, _file: &File) -> Option<InodeNr> {
        None
    }

    fn dir_inode(&self, _dir: &Arc<OwnedFd>) -> Option<(&Volume, InodeNr)> {
        None
    }

    fn write_at(&self, file: &File, at: u64, data: &[u8]) -> Result<(), Reason> {
        file.write_all_at(data, at).map_err(|error| io_reason(&error))
    }

    fn set_len(&self, file: &File, size: u64) -> Result<(), Reason> {
        file.set_len(size).map_err(|error| io_reason(&error))
    }

    fn finish_file(&self, file: &File, meta: &Meta, xattrs: &Xattrs) -> Result<(), Reason> {
        self.finish(file.as_fd(), meta, xattrs)
    }

    fn finish_dir(&self, dir: &Arc<OwnedFd>, mode: u16, kept: Option<&(Meta, Xattrs)>) -> Result<(), Reason> {
        match kept {
            Some((meta, xattrs)) => self.finish(dir.as_fd(), meta, xattrs),
            None => sys::fchmod(&**dir, mode_of(mode)).map_err(errno),
        }
    }

    fn show(&self, path: &[u8]) -> String {
        shown(&join(self.shown.as_os_str().as_bytes(), path))
    }
}
