//! Opens paths below a directory, without following a link anywhere on the way.
//!
//! `openat2` does it in one call. Where it is missing (before Linux 5.6), or a system call filter does not
//! know it, each name is opened in the directory before it. The same is done under a program that emulates
//! root: some of those have to see every directory being opened, and know nothing of `openat2`.

use crate::fakeroot::{Pretence, pretence};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The longest path passed to one system call; `PATH_MAX` is 4096 with the final NUL.
const PATH_PIECE_MAX: usize = 4000;

/// The flags of an intermediate directory.
const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `path` below `top`; an empty path is `top` itself. The path may be of any length and has no `.` and
/// no empty names.
///
/// # Errors
/// The system's error; `ELOOP` or `ENOTDIR` if there is a symbolic link in the path, `EXDEV` for a `..`.
pub fn open_below(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.is_empty() {
        return open_name(top, b".", flags);
    }
    if matches!(pretence(), Pretence::None) {
        match open_at_once(top, path, flags) {
            // It may be the filter's answer; the file system's own error comes again below.
            Err(Errno::NOSYS | Errno::PERM) => {}
            result => return result,
        }
    }
    open_by_name(top, path, flags)
}

fn open_name(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn open_at_once(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let open = |from: BorrowedFd<'_>, path: &[u8], flags: OFlags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(from, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    let mut base: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > PATH_PIECE_MAX {
        // A name has at most 255 bytes, so there is a slash in every piece.
        let cut = rest[..PATH_PIECE_MAX].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        base = Some(open(base.as_ref().map_or(top, AsFd::as_fd), &rest[..cut], PASSED)?);
        rest = &rest[cut + 1..];
    }
    open(base.as_ref().map_or(top, AsFd::as_fd), rest, flags)
}

fn open_by_name(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let (parents, last) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[][..], path),
    };
    if path.split(|byte| *byte == b'/').any(|name| name == b"..") {
        return Err(Errno::XDEV);
    }
    let mut base: Option<OwnedFd> = None;
    for name in parents.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        base = Some(open_name(base.as_ref().map_or(top, AsFd::as_fd), name, PASSED)?);
    }
    open_name(base.as_ref().map_or(top, AsFd::as_fd), last, flags)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::fs;

    type Way = fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd, Errno>;

    #[test]
    fn neither_way_follows_a_link_or_leaves() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("top/a/b")).unwrap();
        fs::write(folder.path().join("top/a/b/f"), "x").unwrap();
        fs::write(folder.path().join("secret"), "x").unwrap();
        for (target, link) in [("a", "top/l"), ("a/b/f", "top/f"), ("..", "top/up"), ("/", "top/root")] {
            std::os::unix::fs::symlink(target, folder.path().join(link)).unwrap();
        }
        let top = rustix::fs::open(folder.path().join("top"), OFlags::PATH, Mode::empty()).unwrap();
        for way in [open_at_once as Way, open_by_name, open_below] {
            let open = |path: &[u8]| way(top.as_fd(), path, OFlags::RDONLY).map(drop);
            assert_eq!(open(b"a/b/f"), Ok(()));
            assert_eq!(open(b"a/b"), Ok(()));
            for path in [&b"l/b/f"[..], b"f", b"up/secret", b"root/etc/passwd", b"l"] {
                assert!(matches!(open(path), Err(Errno::LOOP | Errno::NOTDIR)), "{}", path.escape_ascii());
            }
            assert_eq!(open(b"../secret"), Err(Errno::XDEV));
            assert_eq!(open(b"a/none"), Err(Errno::NOENT));
        }
    }

    #[test]
    fn paths_of_any_length_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let top = rustix::fs::open(folder.path(), OFlags::PATH, Mode::empty()).unwrap();
        let name = "d".repeat(250);
        let (mut at, mut path) = (top.try_clone().unwrap(), Vec::new());
        for _ in 0..40 {
            rustix::fs::mkdirat(&at, &*name, Mode::RWXU).unwrap();
            at = open_name(at.as_fd(), name.as_bytes(), PASSED).unwrap();
            path.extend_from_slice(format!("/{name}").as_bytes());
        }
        for way in [open_at_once as Way, open_by_name] {
            way(top.as_fd(), &path[1..], OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        }
    }
}
