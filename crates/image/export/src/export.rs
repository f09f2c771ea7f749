//! The two kinds of archive: of a whole tree, and of what changed against another one.
//!
//! An archive of changes is a layer as container engines make it: what is new or has changed is in it in
//! full, with the directories that lead there; what was removed is a whiteout (`.wh.NAME`). If one name of a
//! file is in it, all are: an engine that unpacks a layer over another one replaces names, and would leave
//! the others with the file below.

use crate::compare::{Ignored, Judge};
use crate::entries::{Entries, Observer, Purpose};
use crate::error::{Error, Result};
use crate::tree::Tree;
use crate::walk::Walk;
use hectare_engine::{Kind, Metadata};
use hectare_units::InodeNr;
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// Writes all of a tree as a tar archive, and returns what it was written to.
///
/// # Errors
/// If something can't be read or can't be in an archive, or the output fails: the archive is incomplete then.
pub fn export<W: Write>(tree: &Tree<'_>, out: W, observer: &dyn Observer) -> std::result::Result<W, Error> {
    whole(tree, out, Purpose::Plain, observer)
}

/// Writes a tree, or what changed of it since `base`, as a layer of a container image, and returns what it
/// was written to.
///
/// # Errors
/// As [`export`], and for a name that begins with `.wh.`.
pub fn export_layer<W: Write>(
    base: Option<&Tree<'_>>,
    tree: &Tree<'_>,
    out: W,
    observer: &dyn Observer,
) -> std::result::Result<W, Error> {
    match base {
        None => whole(tree, out, Purpose::Layer, observer),
        Some(base) => {
            let entries = Entries::new(tree, out, Purpose::Layer, observer);
            let (directories, unchanged) = (HashSet::new(), HashMap::new());
            Layer { tree, entries, directories, unchanged }.write(base)
        }
    }
}

fn whole<W: Write>(tree: &Tree<'_>, out: W, purpose: Purpose, observer: &dyn Observer) -> Result<W> {
    let mut entries = Entries::new(tree, out, purpose, observer);
    let mut walk = Walk::of(tree);
    while let Some(met) = walk.next()? {
        let Some(meta) = &met.found.new else { continue };
        entries.add(&met.path, meta)?;
        if meta.is_dir() {
            walk.enter(&met)?;
        }
    }
    entries.finish()
}

/// A layer that is being written.
struct Layer<'a, W> {
    tree: &'a Tree<'a>,
    entries: Entries<'a, W>,
    /// The directories that are in it.
    directories: HashSet<Vec<u8>>,
    /// The unchanged names of files that are not in it yet.
    unchanged: HashMap<InodeNr, Vec<Vec<u8>>>,
}

impl<W: Write> Layer<'_, W> {
    fn write(mut self, base: &Tree<'_>) -> Result<W> {
        let mut walk = Walk::of_both(base, self.tree);
        let mut judge = Judge::new(base, self.tree, Ignored::default());
        while let Some(met) = walk.next()? {
            match (&met.found.old, &met.found.new) {
                (None, Some(new)) => {
                    self.add(&met.path, new)?;
                    if new.is_dir() {
                        walk.enter(&met)?;
                    }
                }
                (Some(old), Some(new)) => {
                    let is_changed = judge.differ(&met.path, old, new)?;
                    self.replace(&met.path, old, new, is_changed)?;
                    match (old.is_dir(), new.is_dir()) {
                        (true, true) => walk.enter(&met)?,
                        (false, true) => walk.enter_new(&met)?,
                        (_, false) => {}
                    }
                }
                (_, None) => self.remove(&met.path)?,
            }
        }
        self.entries.finish()
    }

    /// Adds what the base has at this path, too, if it has changed.
    fn replace(&mut self, path: &[u8], old: &Metadata, new: &Metadata, is_changed: bool) -> Result<()> {
        // Nothing in the layer covers what a socket replaced.
        if new.kind == Kind::Socket && old.kind != Kind::Socket {
            self.remove(path)?;
        }
        if is_changed { self.add(path, new) } else { self.pass(path, new) }
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.add_parents(path)?;
        self.entries.whiteout(path)
    }

    /// Adds what is new or has changed.
    fn add(&mut self, path: &[u8], meta: &Metadata) -> Result<()> {
        if meta.is_dir() && !self.directories.insert(path.to_vec()) {
            return Ok(());
        }
        self.add_parents(path)?;
        self.entries.add(path, meta)?;
        for other in self.unchanged.remove(&meta.inode).unwrap_or_default() {
            self.add_parents(&other)?;
            self.entries.add(&other, meta)?;
        }
        Ok(())
    }

    /// Leaves out what has not changed, unless the same file is there under another name.
    fn pass(&mut self, path: &[u8], meta: &Metadata) -> Result<()> {
        if meta.is_dir() || meta.links < 2 {
            return Ok(());
        }
        if self.entries.has(meta.inode) {
            return self.add(path, meta);
        }
        self.unchanged.entry(meta.inode).or_default().push(path.to_vec());
        Ok(())
    }

    /// Adds the directories on the way to a path, from the top, that are not there yet.
    fn add_parents(&mut self, path: &[u8]) -> Result<()> {
        if parents(path).next_back().is_none_or(|parent| self.directories.contains(parent)) {
            return Ok(()); // then all of them are
        }
        let mut nr = self.tree.top;
        for dir in parents(path) {
            if !dir.is_empty() {
                let name = dir.rsplit(|byte| *byte == b'/').next().unwrap_or(dir);
                nr = self.tree.at(dir, self.tree.volume.lookup(nr, name))?;
            }
            if self.directories.insert(dir.to_vec()) {
                let meta = self.tree.stat(dir, nr)?;
                self.entries.add(dir, &meta)?;
            }
        }
        Ok(())
    }
}

/// The paths of the directories that a path lies in, the top first; none for the top itself.
fn parents(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
    (!path.is_empty()).then_some(&path[..0]).into_iter().chain(slashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_in_every_directory_before_a_slash() {
        assert_eq!(parents(b"a/b/c").collect::<Vec<_>>(), [&b""[..], b"a", b"a/b"]);
        assert_eq!(parents(b"a").collect::<Vec<_>>(), [b""]);
        assert_eq!(parents(b"").count(), 0);
    }
}
