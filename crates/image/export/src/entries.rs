//! Writes the files of a tree as entries of an archive.
//!
//! The first name of a file with several is an entry with content, later ones are hard links to it, with the
//! same metadata: programs that unpack set it again, and clear set-id bits and capabilities on the way.
//! Sockets can't be in an archive and are reported.
//!
//! Hazard: a corrupt volume may have many files share blocks, and so unpack to any size. No volume holds more
//! data than it has bytes, so more is refused.

use crate::content::{Content, STEP};
use crate::error::Result;
use crate::names::volume_len;
use crate::tar::{self, Archive, Entry};
use crate::tree::Tree;
use hectare_engine::{Kind, Metadata};
use hectare_units::{Bytes, InodeNr, index_of};
use std::collections::HashMap;
use std::io::Write;

/// The beginning of names that mean something in a layer.
const WHITEOUT: &[u8] = b".wh.";

/// Is informed of an export's course.
pub trait Observer {
    /// A file was left out, with the reason: `place` is as [`Tree::show`] names it.
    fn left_out(&self, place: &str, reason: &str);
    /// This much more data was read.
    fn advance(&self, bytes: Bytes);
}

/// What the archive is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It is unpacked as it is.
    Plain,
    /// It is a layer of a container image, where `.wh.NAME` removes NAME.
    Layer,
}

/// The entries of a tree that are being written.
pub(crate) struct Entries<'a, W> {
    tree: &'a Tree<'a>,
    archive: Archive<W>,
    purpose: Purpose,
    observer: &'a dyn Observer,
    /// The path at which a file with several names is in the archive.
    first_names: HashMap<InodeNr, Vec<u8>>,
    /// Bytes of data that the volume can still hold.
    room: u64,
    buffer: Vec<u8>,
}

impl<'a, W: Write> Entries<'a, W> {
    pub(crate) fn new(tree: &'a Tree<'a>, out: W, purpose: Purpose, observer: &'a dyn Observer) -> Self {
        Self {
            tree,
            archive: Archive::new(out),
            purpose,
            observer,
            first_names: HashMap::new(),
            room: volume_len(tree.volume),
            buffer: Vec::new(),
        }
    }

    /// Whether a file is in the archive under another name already.
    pub(crate) fn has(&self, nr: InodeNr) -> bool {
        self.first_names.contains_key(&nr)
    }

    /// Adds what has a path.
    pub(crate) fn add(&mut self, path: &[u8], meta: &Metadata) -> Result<()> {
        self.check_name(path)?;
        if meta.kind == Kind::Socket {
            self.observer.left_out(&(self.tree.show)(path), "a socket can't be in an archive, left out");
            return Ok(());
        }
        if meta.links > 1 && !meta.is_dir() {
            if let Some(first) = self.first_names.get(&meta.inode).cloned() {
                return self.entry(path, meta, tar::Content::HardLink(&first));
            }
            self.first_names.insert(meta.inode, path.to_vec());
        }
        match meta.kind {
            Kind::File => self.file(path, meta),
            Kind::Directory => self.entry(path, meta, tar::Content::Directory),
            Kind::Symlink => {
                let target = self.tree.target(path, meta.inode)?;
                self.entry(path, meta, tar::Content::Symlink(&target))
            }
            Kind::CharDevice => self.entry(path, meta, tar::Content::CharDevice(meta.device)),
            Kind::BlockDevice => self.entry(path, meta, tar::Content::BlockDevice(meta.device)),
            Kind::Fifo | Kind::Socket => self.entry(path, meta, tar::Content::Fifo),
        }
    }

    /// Adds the mark that removes a path of the layers below.
    pub(crate) fn whiteout(&mut self, path: &[u8]) -> Result<()> {
        self.check_name(path)?;
        let name = last_name(path);
        let path = [&path[..path.len() - name.len()], WHITEOUT, name].concat();
        let mark = Entry {
            path: &path,
            content: tar::Content::File(0),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: Default::default(),
            xattrs: Vec::new(),
        };
        Ok(self.archive.entry(&mark)?)
    }

    /// Ends the archive, and returns what it was written to.
    pub(crate) fn finish(self) -> Result<W> {
        Ok(self.archive.finish()?)
    }

    fn check_name(&self, path: &[u8]) -> Result<()> {
        if self.purpose == Purpose::Layer && last_name(path).starts_with(WHITEOUT) {
            let reason = "a name that begins with .wh. can't be in a layer, where it removes another one";
            return Err(self.tree.refuse(path, reason));
        }
        Ok(())
    }

    fn entry(&mut self, path: &[u8], meta: &Metadata, content: tar::Content<'_>) -> Result<()> {
        let xattrs = self.tree.xattrs(path, meta.inode)?;
        let (mode, uid, gid, mtime) = (meta.permissions, meta.uid, meta.gid, meta.mtime);
        Ok(self.archive.entry(&Entry { path, content, mode, uid, gid, mtime, xattrs })?)
    }

    fn file(&mut self, path: &[u8], meta: &Metadata) -> Result<()> {
        let content = Content::open(self.tree, path, meta)?;
        let ranges = content.ranges()?;
        let is_dense = meta.size == 0 || ranges == [(0, meta.size)];
        let data: u64 = ranges.iter().map(|(_, len)| len).sum();
        self.room = self.room.checked_sub(data).ok_or_else(|| {
            let reason = "with it the files have more data than the volume has bytes: they share blocks, \
                          which is corrupt (`hectare check` says more)";
            self.tree.refuse(path, reason)
        })?;
        let kind =
            if is_dense { tar::Content::File(meta.size) } else { tar::Content::Sparse(meta.size, &ranges) };
        self.entry(path, meta, kind)?;
        for (start, len) in &ranges {
            self.range(&content, *start, start + len)?;
        }
        Ok(())
    }

    fn range(&mut self, content: &Content<'_>, start: u64, end: u64) -> Result<()> {
        let mut at = start;
        while at < end {
            let step = (end - at).min(STEP);
            self.buffer.resize(index_of(step), 0);
            content.read(at, &mut self.buffer)?;
            self.archive.data(&self.buffer)?;
            self.observer.advance(Bytes::new(step));
            at += step;
        }
        Ok(())
    }
}

/// The last name of a path.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}
