//! The directories of one walk, of which a bounded number is open at a time.
//!
//! A [`Dir`] remembers its parent, its name and its identity, not a descriptor. Its descriptor is kept among
//! the [`OPEN_MAX`] last used ones, and reopened when it is needed: from a child that is still open by `..`,
//! else by name from the nearest open directory above. The opened directory must have the same identity, so
//! one that was moved or replaced meanwhile is an error, and so the way up can't lead out.
//!
//! Hazard: the chain of parents can be as long as a tree is deep. It is dropped in a loop, since dropping it
//! by recursion would overflow the stack.

use crate::beneath::open_below;
use crate::stat::{Identity, stat_open};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// The limit of open directories.
const OPEN_MAX: usize = 32;

/// Enough to reach the entries of a directory, without the right to list it.
const REACHED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// A directory of a [`Walk`]; a clone is the same directory.
#[derive(Clone, Debug)]
pub struct Dir(Arc<Node>);

#[derive(Debug)]
struct Node {
    /// Its parent directory and its name there; `None` for the top.
    place: Option<(Dir, Box<[u8]>)>,
    identity: Identity,
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut place = self.place.take();
        while let Some((Dir(parent), _)) = place {
            place = Arc::try_unwrap(parent).ok().and_then(|mut node| node.place.take());
        }
    }
}

impl Dir {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn parent(&self) -> Option<&Self> {
        self.0.place.as_ref().map(|(parent, _)| parent)
    }

    /// Which directory it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.0.identity
    }
}

/// The walk of a directory tree.
#[derive(Debug)]
pub struct Walk {
    top: Dir,
    top_fd: Arc<OwnedFd>,
    /// The last used at the end.
    open: Mutex<Vec<(Dir, Arc<OwnedFd>)>>,
}

impl Walk {
    /// Begins a walk at an open directory.
    ///
    /// # Errors
    /// If its metadata can't be read.
    pub fn new(top: OwnedFd) -> io::Result<Self> {
        let identity = stat_open(top.as_fd())?.identity;
        let dir = Dir(Arc::new(Node { place: None, identity }));
        Ok(Self { top: dir, top_fd: Arc::new(top), open: Mutex::new(Vec::new()) })
    }

    /// Where the walk began.
    #[must_use]
    pub fn top(&self) -> &Dir {
        &self.top
    }

    /// The directory `name` in `dir`, which must be `expected` if that is given.
    ///
    /// # Errors
    /// If it is no directory, can't be reached, or is another one.
    pub fn enter(&self, dir: &Dir, name: &[u8], expected: Option<Identity>) -> io::Result<Dir> {
        let fd = open_below(self.open(dir)?.as_fd(), name, REACHED).map_err(told)?;
        let identity = stat_open(fd.as_fd())?.identity;
        if expected.is_some_and(|expected| expected != identity) {
            return Err(replaced());
        }
        let entered = Dir(Arc::new(Node { place: Some((dir.clone(), name.into())), identity }));
        self.keep(&entered, &Arc::new(fd));
        Ok(entered)
    }

    /// A descriptor to reach the entries of `dir`; it can't be read from.
    ///
    /// # Errors
    /// If the directory is no longer where it was, or can't be reached.
    pub fn open(&self, dir: &Dir) -> io::Result<Arc<OwnedFd>> {
        if let Some(fd) = self.kept(dir) {
            return Ok(fd);
        }
        let fd = match self.open_child_of(dir) {
            Some(child) => {
                rustix::fs::openat(&child, c"..", REACHED | OFlags::CLOEXEC, rustix::fs::Mode::empty())
            }
            None => self.open_from_above(dir),
        };
        let fd = Arc::new(fd.map_err(told)?);
        if stat_open(fd.as_fd())?.identity != dir.identity() {
            return Err(replaced());
        }
        self.keep(dir, &fd);
        Ok(fd)
    }

    /// A descriptor to list `dir` and set its own attributes.
    ///
    /// # Errors
    /// If the directory is no longer where it was, or may not be read.
    pub fn open_to_read(&self, dir: &Dir) -> io::Result<OwnedFd> {
        Ok(open_below(self.open(dir)?.as_fd(), b"", OFlags::RDONLY | OFlags::DIRECTORY)?)
    }

    fn kept(&self, dir: &Dir) -> Option<Arc<OwnedFd>> {
        if dir.is(&self.top) {
            return Some(Arc::clone(&self.top_fd));
        }
        let mut open = self.open.lock();
        let at = open.iter().rposition(|(kept, _)| kept.is(dir))?;
        let found = open.remove(at);
        let fd = Arc::clone(&found.1);
        open.push(found);
        Some(fd)
    }

    fn keep(&self, dir: &Dir, fd: &Arc<OwnedFd>) {
        let mut open = self.open.lock();
        if open.len() == OPEN_MAX {
            open.remove(0);
        }
        open.push((dir.clone(), Arc::clone(fd)));
    }

    fn open_child_of(&self, dir: &Dir) -> Option<Arc<OwnedFd>> {
        let open = self.open.lock();
        let child = open.iter().rev().find(|(kept, _)| kept.parent().is_some_and(|parent| parent.is(dir)));
        child.map(|(_, fd)| Arc::clone(fd))
    }

    fn open_from_above(&self, dir: &Dir) -> Result<OwnedFd, Errno> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = dir;
        let from = loop {
            if let Some(fd) = self.kept(at) {
                break fd;
            }
            let Some((parent, name)) = &at.0.place else { break Arc::clone(&self.top_fd) };
            names.push(name);
            at = parent;
        };
        names.reverse();
        open_below(from.as_fd(), &names.join(&b'/'), REACHED)
    }
}

/// The error for a directory or file that is not the same any more.
#[must_use]
pub fn replaced() -> io::Error {
    io::Error::other("it was replaced meanwhile: stop what changes it, and try again")
}

/// A link or a file in place of a directory means that it was replaced.
fn told(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => replaced(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use rustix::fs::Mode;
    use std::fs;
    use std::path::Path;

    fn walk(path: &Path) -> Walk {
        Walk::new(rustix::fs::open(path, REACHED, Mode::empty()).unwrap()).unwrap()
    }

    /// Creates a chain of `depth` nested directories.
    fn chain(walk: &Walk, depth: usize) -> Vec<Dir> {
        let mut dirs = vec![walk.top().clone()];
        for _ in 0..depth {
            let last = &dirs[dirs.len() - 1];
            rustix::fs::mkdirat(&*walk.open(last).unwrap(), "d", Mode::RWXU).unwrap();
            dirs.push(walk.enter(last, b"d", None).unwrap());
        }
        dirs
    }

    #[test]
    fn a_deep_tree_needs_few_descriptors_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let walk = walk(folder.path());
        let dirs = chain(&walk, 3000);
        for dir in dirs.iter().rev().chain(&dirs).chain(dirs.iter().step_by(700)) {
            let fd = walk.open(dir).unwrap();
            assert_eq!(stat_open(fd.as_fd()).unwrap().identity, dir.identity());
        }
        assert!(walk.open.lock().len() <= OPEN_MAX);
    }

    #[test]
    fn a_long_chain_is_dropped_without_recursion() {
        let identity = Identity { device: 0, inode: 0 };
        let mut dir = Dir(Arc::new(Node { place: None, identity }));
        for _ in 0..1_000_000 {
            dir = Dir(Arc::new(Node { place: Some((dir, Box::default())), identity }));
        }
        drop(dir);
    }

    #[test]
    fn a_directory_that_was_replaced_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("top/a/b")).unwrap();
        fs::create_dir_all(folder.path().join("out/b")).unwrap();
        let walk = walk(&folder.path().join("top"));
        let a = walk.enter(walk.top(), b"a", None).unwrap();
        let b = walk.enter(&a, b"b", None).unwrap();
        let forget = || walk.open.lock().clear();
        forget();
        assert!(walk.open(&b).is_ok());
        // The way down leads through a link, to another directory, or nowhere.
        fs::rename(folder.path().join("top/a"), folder.path().join("away")).unwrap();
        std::os::unix::fs::symlink("../away", folder.path().join("top/a")).unwrap();
        forget();
        assert!(walk.open(&b).unwrap_err().to_string().contains("replaced"));
        fs::remove_file(folder.path().join("top/a")).unwrap();
        fs::create_dir_all(folder.path().join("top/a/b")).unwrap();
        assert!(walk.open(&b).unwrap_err().to_string().contains("replaced"));
        assert!(walk.enter(walk.top(), b"a", Some(a.identity())).is_err());
        // The way up leads out.
        fs::remove_dir_all(folder.path().join("top/a")).unwrap();
        fs::rename(folder.path().join("away"), folder.path().join("top/a")).unwrap();
        forget();
        assert!(walk.open(&b).is_ok());
        fs::rename(folder.path().join("top/a/b"), folder.path().join("out/c")).unwrap();
        assert!(walk.open(&a).unwrap_err().to_string().contains("replaced"));
    }
}
