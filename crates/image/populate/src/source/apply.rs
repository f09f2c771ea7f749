//! Applies specifications to a tree under construction.
//!
//! Each is a layer of its own over a settled tree ([`settle`](crate::source::settle)), so that an entry's
//! path is found if and only if the image will have it.

use super::builder::{Builder, Draft, DraftKind};
use super::checks::Checks;
use super::host_file;
use super::names::target_fault;
use super::settle::ByDirectory;
use super::spec::{Change, Digest, Entry, EntryKind, Missing, Spec};
use super::tar::place;
use super::visible::Dir;
use crate::error::Error;
use crate::handle::SourceHandle;
use crate::time::{PackedTime, Timestamp};
use crate::tree::{Node, NodeId, NodeKind};
use hectare_units::usize_of;

/// Applies a specification; gives the digests that are to be compared later.
///
/// # Errors
/// With file and line, if an entry can't be applied.
pub(crate) fn apply(builder: &mut Builder<'_>, spec: &Spec, checks: &mut Checks) -> Result<(), Error> {
    builder.settle(SourceHandle::List { name: spec.name.clone() })?;
    builder.warnings.extend(spec.warnings.iter().cloned());
    let mut applier = Applier { builder, spec, checks, listed: None, applied: 0 };
    spec.entries.iter().try_for_each(|entry| applier.entry(entry))?;
    match applier.applied {
        0 => Err(spec.without_effect()),
        _ => Ok(()),
    }
}

/// Where an entry's path leads.
struct Place {
    dir: Dir,
    name: Vec<u8>,
    /// The path without links among its directories.
    path: Vec<u8>,
    node: Option<NodeId>,
}

struct Applier<'a, 'b, 'o> {
    builder: &'b mut Builder<'o>,
    spec: &'a Spec,
    checks: &'a mut Checks,
    /// The entries by directory, and how many there were.
    listed: Option<(usize, ByDirectory)>,
    /// How many nodes were found or made.
    applied: u64,
}

impl Applier<'_, '_, '_> {
    fn entry(&mut self, entry: &Entry) -> Result<(), Error> {
        let Some(series) = entry.series else { return self.one(entry, &entry.path, entry.change.device) };
        let (major, minor) = entry.change.device.unwrap_or_default();
        for n in 0..series.count {
            let path = [&*entry.path, (series.start + n).to_string().as_bytes()].concat();
            // The reader has compared the last one with the limit.
            self.one(entry, &path, Some((major, minor + n * series.increment)))?;
        }
        Ok(())
    }

    fn one(&mut self, entry: &Entry, path: &[u8], device: Option<(u32, u32)>) -> Result<(), Error> {
        let Some(place) = self.find(entry, path)? else { return Ok(()) };
        let change = &entry.change;
        let node = match place.node {
            Some(node) => {
                self.compare_kind(entry, node)?;
                self.replace_content(entry, node, device)?;
                node
            }
            None => match entry.missing {
                Missing::Skip => return Ok(()),
                Missing::Refuse => return Err(self.refused(entry, "there is no such path in the tree")),
                Missing::Make | Missing::MakeWithParents => self.make(entry, &place, device)?,
            },
        };
        self.applied += 1;
        self.compare_size(entry, node)?;
        for (digest, value) in &change.digests {
            self.check(entry, &place.path, node, *digest, value)?;
        }
        if entry.recursive {
            for below in self.below(node) {
                self.set(entry, below)?;
            }
        }
        self.set(entry, node)
    }

    fn refused(&self, entry: &Entry, reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        self.spec.refused(entry, reason)
    }

    /// Follows a path; `None` if a directory is missing and the entry is to be passed over then.
    fn find(&mut self, entry: &Entry, path: &[u8]) -> Result<Option<Place>, Error> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        if name.is_empty() {
            let (dir, node) = (self.builder.root(), Some(NodeId::ROOT));
            return Ok(Some(Place { dir, name: Vec::new(), path: Vec::new(), node }));
        }
        let makes = entry.missing == Missing::MakeWithParents;
        let found = match place::directory(self.builder, parent, makes) {
            Ok(found) => found,
            Err(Some(error)) => return Err(self.refused(entry, error.to_string())),
            Err(None) => None,
        };
        match found {
            Some((dir, parent)) => {
                let path = crate::source::folder::join(&parent, name);
                let node = self.builder.lookup(dir, name);
                Ok(Some(Place { dir, name: name.to_vec(), path, node }))
            }
            None if entry.missing == Missing::Skip => Ok(None),
            None if makes => {
                Err(self.refused(entry, "one of the directories in its path is something else in the tree"))
            }
            None => {
                let reason = "the directory it is in does not exist: give that an entry of its own before";
                Err(self.refused(entry, reason))
            }
        }
    }

    fn node(&self, node: NodeId) -> &Node {
        &self.builder.nodes[node.index()]
    }

    fn compare_kind(&self, entry: &Entry, node: NodeId) -> Result<(), Error> {
        let found = kind_of(&self.node(node).kind);
        match entry.kind {
            Some(wanted) if wanted != found => {
                let (found, wanted) = (found.name(), wanted.name());
                Err(self.refused(entry, format!("the tree has {found} there, not {wanted}")))
            }
            _ if entry.change.content.is_some() && found != EntryKind::File => {
                Err(self.refused(entry, format!("{} has no content", found.name())))
            }
            _ => Ok(()),
        }
    }

    /// Gives an existing node the device number, target or content of the entry.
    fn replace_content(
        &mut self,
        entry: &Entry,
        node: NodeId,
        device: Option<(u32, u32)>,
    ) -> Result<(), Error> {
        let change = &entry.change;
        let kind = match (entry.kind, device, &change.target, &change.content) {
            (Some(EntryKind::CharDevice), Some((major, minor)), ..) => NodeKind::CharDevice { major, minor },
            (Some(EntryKind::BlockDevice), Some((major, minor)), ..) => {
                NodeKind::BlockDevice { major, minor }
            }
            (Some(EntryKind::Symlink), _, Some(target), _) => {
                return self.replace(entry, node, DraftKind::Symlink(target.to_vec()));
            }
            (_, _, _, Some(host)) => {
                let kind = self.host_file(entry, host)?;
                return self.replace(entry, node, kind);
            }
            _ => return Ok(()),
        };
        self.builder.nodes[node.index()].kind = kind;
        Ok(())
    }

    fn replace(&mut self, entry: &Entry, node: NodeId, kind: DraftKind) -> Result<(), Error> {
        self.check_target(entry, &kind)?;
        let draft = Draft { kind, meta: self.builder.default_directory(), xattrs: Vec::new() };
        let made = self.builder.add_node(&entry.path, draft);
        let made = made.map_err(|error| self.refused(entry, error.to_string()))?;
        // The node that carried the content has no name, and is left out in the end.
        self.builder.nodes[node.index()].kind = self.node(made).kind;
        Ok(())
    }

    fn check_target(&self, entry: &Entry, kind: &DraftKind) -> Result<(), Error> {
        match kind {
            DraftKind::Symlink(target) => {
                target_fault(target).map_or(Ok(()), |fault| Err(self.refused(entry, fault)))
            }
            _ => Ok(()),
        }
    }

    fn host_file(&self, entry: &Entry, path: &[u8]) -> Result<DraftKind, Error> {
        host_file::regular(path).map(|(kind, _)| kind).map_err(|error| self.refused(entry, error.to_string()))
    }

    /// Makes what does not exist.
    fn make(&mut self, entry: &Entry, place: &Place, device: Option<(u32, u32)>) -> Result<NodeId, Error> {
        let Change { mode, uid, gid, target, content, .. } = &entry.change;
        let lacks = |what: &str| self.refused(entry, format!("it does not exist, and to make it {what}"));
        let Some(kind) = entry.kind else {
            return Err(lacks("its type is needed"));
        };
        if kind == EntryKind::File && content.is_none() {
            let reason = "there is no such file in the tree, and the entry names no content";
            return Err(self.refused(entry, reason));
        }
        if uid.is_none() || gid.is_none() || (mode.is_none() && kind != EntryKind::Symlink) {
            return Err(lacks("its owner, group and mode are needed"));
        }
        let number = || device.ok_or_else(|| lacks("its device number is needed"));
        let kind = match kind {
            EntryKind::Directory => DraftKind::Directory,
            EntryKind::Symlink => match target {
                Some(target) => DraftKind::Symlink(target.to_vec()),
                None => return Err(lacks("its target is needed (link=)")),
            },
            EntryKind::CharDevice => number().map(|(major, minor)| DraftKind::CharDevice(major, minor))?,
            EntryKind::BlockDevice => number().map(|(major, minor)| DraftKind::BlockDevice(major, minor))?,
            EntryKind::Fifo => DraftKind::Fifo,
            EntryKind::Socket => DraftKind::Socket,
            EntryKind::File => self.host_file(entry, content.as_deref().unwrap_or_default())?,
        };
        self.check_target(entry, &kind)?;
        let mut meta = self.builder.default_directory();
        if matches!(kind, DraftKind::Symlink(_)) {
            meta.mode = 0o777;
        }
        let draft = Draft { kind, meta, xattrs: Vec::new() };
        let made = self.builder.put(place.dir, &place.name, &place.path, draft);
        made.map_err(|error| self.refused(entry, error.to_string()))
    }

    fn compare_size(&self, entry: &Entry, node: NodeId) -> Result<(), Error> {
        match (entry.change.size, &self.node(node).kind) {
            (Some(wanted), NodeKind::File { size, .. }) if wanted != *size => {
                Err(self.refused(entry, format!("the file has {size} bytes, not {wanted}")))
            }
            _ => Ok(()),
        }
    }

    fn check(
        &mut self,
        entry: &Entry,
        path: &[u8],
        node: NodeId,
        digest: Digest,
        value: &[u8],
    ) -> Result<(), Error> {
        if kind_of(&self.node(node).kind) != EntryKind::File {
            return Err(self.refused(entry, "it is not a regular file, and has no digest"));
        }
        self.checks.add(&self.spec.name, entry.line, path, digest, value);
        Ok(())
    }

    /// Sets owner, mode, times and attributes.
    fn set(&mut self, entry: &Entry, id: NodeId) -> Result<(), Error> {
        let change = &entry.change;
        let clamp = |time: Timestamp| match self.builder.options.source_date_epoch {
            Some(epoch) => time.min(Timestamp::at(epoch)),
            None => time,
        };
        let time = change.time.map(|time| PackedTime::new(clamp(time)));
        let keeps_mode = self.builder.target(id).is_some();
        let node = &mut self.builder.nodes[id.index()];
        if let (Some(mode), false) = (change.mode, keeps_mode) {
            node.mode = mode;
        }
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        if let Some(time) = time {
            (node.atime, node.mtime, node.ctime) = (time, time, time);
        }
        if !change.xattrs.is_empty() {
            node.xattrs = self.builder.xattr_sets.with(node.xattrs, &change.xattrs)?;
        }
        if change.mode.is_some() {
            node.xattrs = self.builder.xattr_sets.chmod(node.xattrs, node.mode)?;
        }
        Ok(())
    }

    /// Every node below a directory, once for each name.
    fn below(&mut self, top: NodeId) -> Vec<NodeId> {
        let entries = self.builder.entries.len();
        if self.listed.as_ref().is_none_or(|(known, _)| *known != entries) {
            self.listed = Some((entries, self.builder.by_directory()));
        }
        let Some((_, listed)) = &self.listed else { return Vec::new() };
        let (mut found, mut pending) = (Vec::new(), vec![top]);
        while let Some(dir) = pending.pop() {
            for at in listed.of(dir) {
                let node = NodeId::new(self.builder.entries[usize_of(*at)].node);
                found.push(node);
                if self.builder.is_directory(node) {
                    pending.push(node);
                }
            }
        }
        found
    }
}

fn kind_of(kind: &NodeKind) -> EntryKind {
    match kind {
        NodeKind::Directory { .. } => EntryKind::Directory,
        NodeKind::File { .. } => EntryKind::File,
        NodeKind::Symlink { .. } => EntryKind::Symlink,
        NodeKind::CharDevice { .. } => EntryKind::CharDevice,
        NodeKind::BlockDevice { .. } => EntryKind::BlockDevice,
        NodeKind::Fifo => EntryKind::Fifo,
        NodeKind::Socket => EntryKind::Socket,
    }
}
