//! What differs between two trees.
//!
//! Compared are names, kinds, modes, owners, modification times, targets, device numbers, attributes, hard
//! links and content; not where the data lies, holes, access and creation times, inode numbers, inode flags
//! and the size of directories.
//!
//! Memory holds the names of the directories on the way, and the path of every file with several names.

use crate::content::{Content, first_difference};
use crate::error::Result;
use crate::links::Links;
use crate::tree::Tree;
use crate::walk::{Met, Walk};
use hectare_engine::{DeviceNumber, Kind, Metadata, Timestamp};
use hectare_units::Bytes;

/// What is not compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ignored {
    /// Modification times.
    pub times: bool,
}

/// One aspect in which a file differs, with the old and the new value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The kind; nothing else is compared then.
    Kind(Kind, Kind),
    /// Permission, set-id and sticky bits.
    Mode(u16, u16),
    /// The owner.
    Uid(u32, u32),
    /// The group.
    Gid(u32, u32),
    /// The modification time.
    Mtime(Timestamp, Timestamp),
    /// The target of a symbolic link.
    Target(Vec<u8>, Vec<u8>),
    /// The number of a device.
    Device(DeviceNumber, DeviceNumber),
    /// An extended attribute: its name and its values, if it is there.
    Xattr(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
    /// The first path of the same file, if that is another one.
    HardLink(Option<Vec<u8>>, Option<Vec<u8>>),
    /// The size of a file.
    Size(Bytes, Bytes),
    /// The content, from this byte on.
    Content(Bytes),
}

/// A path at which the trees differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// From the top, without a slash at either end; empty for the top.
    pub path: Vec<u8>,
    /// What differs there.
    pub what: What,
}

/// How the trees differ at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// It is in the old tree only.
    Removed(Kind),
    /// It is in the new tree only.
    Added(Kind),
    /// It has changed.
    Changed(Vec<Change>),
}

/// A comparison under way.
pub struct Comparison<'a> {
    walk: Walk<'a>,
    judge: Judge<'a>,
}

impl<'a> Comparison<'a> {
    /// The comparison of two trees.
    #[must_use]
    pub fn new(old: &'a Tree<'a>, new: &'a Tree<'a>, ignored: Ignored) -> Self {
        Self { walk: Walk::of_both(old, new), judge: Judge::new(old, new, ignored) }
    }

    /// The next difference, in the order of paths.
    ///
    /// # Errors
    /// If something can't be read. What follows is not compared then.
    pub fn next_difference(&mut self) -> std::result::Result<Option<Difference>, crate::Error> {
        while let Some(met) = self.walk.next()? {
            let what = match (&met.found.old, &met.found.new) {
                (Some(old), None) => Some(What::Removed(old.kind)),
                (None, Some(new)) => Some(What::Added(new.kind)),
                (Some(old), Some(new)) => {
                    let changes = self.judge.changes(&met.path, old, new)?;
                    (!changes.is_empty()).then_some(What::Changed(changes))
                }
                (None, None) => None,
            };
            self.enter(&met)?;
            if let Some(what) = what {
                return Ok(Some(Difference { path: met.path, what }));
            }
        }
        Ok(None)
    }

    fn enter(&mut self, met: &Met) -> Result<()> {
        let is_dir = |meta: &Option<Metadata>| meta.as_ref().is_some_and(Metadata::is_dir);
        if is_dir(&met.found.old) || is_dir(&met.found.new) { self.walk.enter(met) } else { Ok(()) }
    }
}

/// Compares what has one path in both trees.
pub(crate) struct Judge<'a> {
    old: &'a Tree<'a>,
    new: &'a Tree<'a>,
    ignored: Ignored,
    links: Links,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(old: &'a Tree<'a>, new: &'a Tree<'a>, ignored: Ignored) -> Self {
        Self { old, new, ignored, links: Links::default() }
    }

    /// Everything that differs. Every common path must come here, in the order of the walk.
    pub(crate) fn changes(&mut self, path: &[u8], old: &Metadata, new: &Metadata) -> Result<Vec<Change>> {
        let mut changes = self.attributes(path, old, new)?;
        if let Some(at) = self.content(path, old, new)? {
            changes.push(Change::Content(Bytes::new(at)));
        }
        Ok(changes)
    }

    /// Whether anything differs; content is read only if nothing else does. Every common path must come here,
    /// in the order of the walk.
    pub(crate) fn differ(&mut self, path: &[u8], old: &Metadata, new: &Metadata) -> Result<bool> {
        Ok(!self.attributes(path, old, new)?.is_empty() || self.content(path, old, new)?.is_some())
    }

    /// Everything but the content.
    fn attributes(&mut self, path: &[u8], old: &Metadata, new: &Metadata) -> Result<Vec<Change>> {
        let links = self.links.compare(path, old, new);
        if old.kind != new.kind {
            return Ok(vec![Change::Kind(old.kind, new.kind)]);
        }
        let mut changes = Vec::new();
        changes.extend(differing(&old.permissions, &new.permissions, Change::Mode));
        changes.extend(differing(&old.uid, &new.uid, Change::Uid));
        changes.extend(differing(&old.gid, &new.gid, Change::Gid));
        if !self.ignored.times {
            changes.extend(differing(&old.mtime, &new.mtime, Change::Mtime));
        }
        changes.extend(differing(&old.device, &new.device, Change::Device));
        if old.is_symlink() {
            let targets = (self.old.target(path, old.inode)?, self.new.target(path, new.inode)?);
            changes.extend(differing(&targets.0, &targets.1, Change::Target));
        }
        self.xattrs(path, old, new, &mut changes)?;
        changes.extend(links.map(|first| Change::HardLink(first.old, first.new)));
        if old.is_file() {
            changes.extend(differing(&Bytes::new(old.size), &Bytes::new(new.size), Change::Size));
        }
        Ok(changes)
    }

    fn xattrs(&self, path: &[u8], old: &Metadata, new: &Metadata, changes: &mut Vec<Change>) -> Result<()> {
        let mut olds = self.old.xattrs(path, old.inode)?.into_iter().peekable();
        let mut news = self.new.xattrs(path, new.inode)?.into_iter().peekable();
        while let Some(name) = olds.peek().into_iter().chain(news.peek()).map(|(name, _)| name).min().cloned()
        {
            let value = |(_, value): (Vec<u8>, Vec<u8>)| value;
            let old = olds.next_if(|(other, _)| *other == name).map(value);
            let new = news.next_if(|(other, _)| *other == name).map(value);
            if old != new {
                changes.push(Change::Xattr(name, old, new));
            }
        }
        Ok(())
    }

    /// The first byte of files that differs.
    fn content(&self, path: &[u8], old: &Metadata, new: &Metadata) -> Result<Option<u64>> {
        if !(old.is_file() && new.is_file()) {
            return Ok(None);
        }
        first_difference(&Content::open(self.old, path, old)?, &Content::open(self.new, path, new)?)
    }
}

fn differing<T: Clone + PartialEq>(old: &T, new: &T, change: impl Fn(T, T) -> Change) -> Option<Change> {
    (old != new).then(|| change(old.clone(), new.clone()))
}
