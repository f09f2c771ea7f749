//! A directory of the host as the origin of a copy.
//!
//! The operand is opened as its user named it, links included if they are to be followed; everything below is
//! reached from there and must be what the copy examined before. A file that changes while it is read is
//! copied up to its size when it was opened.

use super::{c_name, errno, failed, meta_of, place};
use crate::copy::ends::{Content, Meta, Named, Origin, Reason, Xattrs};
use crate::name::shown;
use hectare_engine::Volume;
use hectare_host::{Dir, Stat, Walk, replaced, stat, stat_open};
use hectare_units::InodeNr;
use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::vec::IntoIter;

/// The host as an origin: messages name paths as they were given.
#[derive(Default)]
pub(crate) struct LocalOrigin {
    /// Below the directory that the copy began with, if it is one.
    walk: OnceLock<Walk>,
}

/// A name in a directory of the walk; without one, a path from the working directory.
#[derive(Clone)]
pub(crate) struct Node {
    dir: Option<Dir>,
    name: OsString,
}

impl Node {
    /// A file or directory named by the user.
    pub(crate) fn at(path: &Path) -> Self {
        Self { dir: None, name: path.as_os_str().to_owned() }
    }
}

/// A name with the open directory it lies in.
struct Opened<'n> {
    dir: Option<Arc<OwnedFd>>,
    name: &'n OsStr,
}

impl Opened<'_> {
    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
    }

    fn stat(&self, follow: bool) -> Result<Stat, Reason> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        stat(self.dir(), &c_name(self.name.as_bytes())?, flags).map_err(errno)
    }

    fn open(&self, flags: OFlags, follow: bool) -> Result<OwnedFd, Reason> {
        let follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        sys::openat(self.dir(), self.name, flags | follow | OFlags::CLOEXEC, Mode::empty()).map_err(errno)
    }

    /// A path for calls that take no directory.
    fn path(&self) -> PathBuf {
        self.dir.as_ref().map_or_else(|| PathBuf::from(self.name), |dir| place(dir.as_fd()).join(self.name))
    }
}

/// An open file of the host, with its size when it was opened.
pub(crate) struct OpenedFile {
    file: File,
    size: u64,
}

impl Content for OpenedFile {
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
                // The file system does not support SEEK_DATA: all of it is data.
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
        self.file.read_at(buffer, at).map_err(failed)
    }
}

impl LocalOrigin {
    fn at<'n>(&self, node: &'n Node) -> Result<Opened<'n>, Reason> {
        let dir = match (&node.dir, self.walk.get()) {
            (Some(dir), Some(walk)) => Some(walk.open(dir).map_err(failed)?),
            _ => None,
        };
        Ok(Opened { dir, name: &node.name })
    }

    /// A directory and a descriptor to list it.
    fn enter(&self, node: &Node, meta: &Meta) -> Result<(Dir, OwnedFd), Reason> {
        if let (Some(dir), Some(walk)) = (&node.dir, self.walk.get()) {
            let dir = walk.enter(dir, node.name.as_bytes(), Some(meta.id)).map_err(failed)?;
            let list = walk.open_to_read(&dir).map_err(failed)?;
            return Ok((dir, list));
        }
        // The top may be a link that the user named; below it none is followed.
        let top = self.at(node)?.open(OFlags::RDONLY | OFlags::DIRECTORY, true)?;
        let list = top.try_clone().map_err(failed)?;
        let walk = Walk::new(top).map_err(failed)?;
        if walk.top().identity() != meta.id {
            return Err(failed(replaced()));
        }
        let walk = self.walk.get_or_init(|| walk);
        Ok((walk.top().clone(), list))
    }
}

impl Origin for LocalOrigin {
    type Node = Node;
    type File = OpenedFile;
    type Children = IntoIter<Named<Node>>;

    fn meta(&self, node: &Node, follow: bool) -> Result<Meta, Reason> {
        let stat = self.at(node)?.stat(follow)?;
        meta_of(&stat, stat.identity)
    }

    fn children(&self, node: &Node, meta: &Meta) -> Result<IntoIter<Named<Node>>, Reason> {
        let (dir, list) = self.enter(node, meta)?;
        let mut children: Vec<Named<Node>> = Vec::new();
        for entry in sys::Dir::read_from(&list).map_err(errno)? {
            let name = entry.map_err(errno)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                let os_name = OsStr::from_bytes(&name).to_owned();
                children.push((name, Node { dir: Some(dir.clone()), name: os_name }));
            }
        }
        children.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(children.into_iter())
    }

    fn next_child(&self, children: &mut IntoIter<Named<Node>>) -> Option<Result<Named<Node>, Reason>> {
        children.next().map(Ok)
    }

    fn open(&self, node: &Node, follow: bool, meta: &Meta) -> Result<OpenedFile, Reason> {
        // O_NONBLOCK: don't wait for the other end if the file has become a pipe.
        let file = self.at(node)?.open(OFlags::RDONLY | OFlags::NONBLOCK, follow)?;
        let stat = stat_open(file.as_fd()).map_err(errno)?;
        if stat.identity != meta.id || stat.file_type != FileType::RegularFile {
            return Err(failed(replaced()));
        }
        Ok(OpenedFile { file: file.into(), size: stat.size })
    }

    fn read_link(&self, node: &Node) -> Result<Vec<u8>, Reason> {
        let opened = self.at(node)?;
        Ok(sys::readlinkat(opened.dir(), opened.name, Vec::new()).map_err(errno)?.into_bytes())
    }

    fn xattrs(&self, node: &Node, follow: bool) -> Result<Xattrs, Reason> {
        let opened = self.at(node)?;
        let path = opened.path();
        let names = match list(&path, follow) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(errno(error)),
        };
        let mut xattrs = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| is_kept(name)) {
            match value(&path, name, follow) {
                Ok(value) => xattrs.push((name.to_vec(), value)),
                // It was removed meanwhile, or this user may not read it.
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

/// Whether a volume can store the attribute.
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
