//! Names: looks up, creates, removes, renames and lists them.
//!
//! Every answer that names an inode counts a lookup of it, so the inode is pinned first: between the engine's
//! answer and ours the name may be removed.

use super::Adapter;
use crate::attr;
use crate::errno::Answer;
use crate::node_table::node_id;
use crate::protocol::NodeId;
use crate::protocol::init::Features;
use crate::protocol::reply::{Entries, Reply, Stale, no_entry};
use crate::protocol::request::{Handle, Request};
use crate::protocol::wire::EntryOut;
use hectare_engine::{
    Caller, Cookie, Creation, DirEntry, Error, HeldInode, Kind, Metadata, NewNode, RenameMode,
};
use hectare_units::InodeNr;
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;
use std::time::Duration;

/// Entries listed for one answer: more than fit into the kernel's usual request.
const LIST_STEP: usize = 1024;

impl Adapter {
    fn directory(&self, id: NodeId) -> Answer<InodeNr> {
        Ok(self.node(id)?.nr())
    }

    /// Counts a lookup of an inode that an answer names; returns its metadata.
    fn named(&self, held: HeldInode) -> Answer<Metadata> {
        let found = held.metadata()?;
        self.nodes.remember(held);
        Ok(found)
    }

    /// Whether case does not matter in a directory. The kernel keeps each spelling of a name by itself, and
    /// would not see that a change of one is a change of all; so it may keep none.
    pub(super) fn folds(&self, dir: NodeId) -> bool {
        self.node(dir).is_ok_and(|node| self.volume.folds_names(node.nr()))
    }

    /// Whether a directory may begin to fold case while the kernel keeps that names in it do not exist.
    pub(super) fn may_fold_unseen(&self) -> bool {
        self.volume.may_fold_names() && !self.kernel.contains(Features::DROPS_NAMES)
    }

    /// The answer that a name in a directory leads to an inode.
    pub(super) fn named_in(&self, dir: NodeId, kept: Duration, found: &Metadata) -> EntryOut {
        let mut entry = attr::entry_out(kept, found);
        if self.folds(dir) {
            entry.entry_valid.set(0);
            entry.entry_valid_nsec.set(0);
        }
        entry
    }

    pub(super) fn look_up(&self, parent: NodeId, name: &[u8]) -> Answer<Metadata> {
        match name {
            // Sent for file handles (NFS); the number may be one that was never given out.
            b"." => match self.node(parent) {
                Ok(node) => self.named(self.volume.hold_inode(node.nr())?),
                Err(_) => self.named(self.volume.hold_inode(number(parent)?)?),
            },
            b".." => {
                let dir = self.node(parent).map_or_else(|_| number(parent), |node| Ok(node.nr()))?;
                drop(self.volume.hold_inode(dir)?); // refuses inodes of the format
                self.named(self.volume.hold_named(dir, name)?)
            }
            _ => self.named(self.volume.hold_named(self.directory(parent)?, name)?),
        }
    }

    /// Creates a name with a new inode, of this mode less the umask.
    pub(super) fn make(
        &self,
        request: &Request<'_>,
        name: &[u8],
        node: NewNode<'_>,
        mode: (u32, u32),
    ) -> Answer<Metadata> {
        let parent = self.directory(request.node)?;
        let creation = self.creation(request, parent, mode)?;
        let made = self.volume.create(parent, name, node, creation)?;
        self.named(self.volume.hold_inode(made)?)
    }

    /// The owner, group and permissions of a new inode.
    fn creation(
        &self,
        request: &Request<'_>,
        parent: InodeNr,
        (mode, umask): (u32, u32),
    ) -> Answer<Creation> {
        let permissions =
            attr::permissions(mode) & !self.volume.umask_in(parent, attr::permissions(umask))?;
        let gid = if self.behaviour.directory_groups {
            self.node(request.node)?.metadata()?.gid
        } else {
            request.gid
        };
        Ok(Creation { permissions, umask: 0, uid: request.uid, gid })
    }

    /// Creates a file without a name and opens it; without `O_EXCL` it may be linked later.
    pub(super) fn create_nameless(
        &self,
        request: &Request<'_>,
        flags: u32,
        mode: (u32, u32),
    ) -> Answer<(Metadata, Handle)> {
        let parent = self.directory(request.node)?;
        let creation = self.creation(request, parent, mode)?;
        let linkable = !OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        let file = self.volume.create_nameless(parent, creation, linkable)?;
        let made = self.named(self.volume.hold_inode(file.inode())?)?;
        let handle = self.open_made(&made, flags)?;
        Ok((made, handle))
    }

    /// Creates a file and opens it.
    pub(super) fn create_open(
        &self,
        request: &Request<'_>,
        name: &[u8],
        flags: u32,
        mode: (u32, u32),
    ) -> Answer<(Metadata, Handle)> {
        let made = self.make(request, name, NewNode::File, mode)?;
        let handle = self.open_made(&made, flags)?;
        Ok((made, handle))
    }

    fn open_made(&self, made: &Metadata, flags: u32) -> Answer<Handle> {
        if self.opens_unasked() {
            return Ok(Handle(0));
        }
        let id = node_id(made.inode);
        let opened = self.nodes.open(id, flags);
        if opened.is_err() {
            self.nodes.forget(id, 1); // an error names no inode that the kernel could forget
        }
        opened
    }

    pub(super) fn remove_file(&self, parent: NodeId, name: &[u8]) -> Answer {
        Ok(self.volume.unlink(self.directory(parent)?, name)?)
    }

    pub(super) fn remove_directory(&self, parent: NodeId, name: &[u8]) -> Answer {
        Ok(self.volume.rmdir(self.directory(parent)?, name)?)
    }

    pub(super) fn rename_entry(
        &self,
        caller: &Caller<'_>,
        (parent, name): (NodeId, &[u8]),
        (new_parent, new): (NodeId, &[u8]),
        flags: u32,
        reply: &mut Reply,
    ) -> Answer {
        const WHITEOUT_AND_NOREPLACE: RenameFlags = RenameFlags::WHITEOUT.union(RenameFlags::NOREPLACE);
        let whiteout = |replaces| RenameMode::Whiteout { uid: caller.uid, gid: caller.gid, replaces };
        let mode = match RenameFlags::from_bits_retain(flags) {
            RenameFlags::NOREPLACE => RenameMode::NoReplace,
            RenameFlags::EXCHANGE => RenameMode::Exchange,
            RenameFlags::WHITEOUT => whiteout(true),
            WHITEOUT_AND_NOREPLACE => whiteout(false),
            flags if flags.is_empty() => RenameMode::Replace,
            _ => return Err(Errno::INVAL.into()),
        };
        let (from, to) = (self.directory(parent)?, self.directory(new_parent)?);
        self.volume.rename(from, name, to, new, mode)?;
        if from != to {
            self.drop_list(to, new, reply);
            if mode == RenameMode::Exchange {
                self.drop_list(from, name, reply);
            }
        }
        Ok(())
    }

    /// Has the kernel drop the cached list of a directory that has moved to another parent: `..` is in it.
    fn drop_list(&self, parent: InodeNr, name: &[u8], reply: &mut Reply) {
        let moved = self.volume.lookup(parent, name).and_then(|nr| self.volume.stat(nr));
        if let Ok(moved) = moved
            && moved.is_dir()
        {
            reply.make_stale(Stale::Content(node_id(moved.inode)));
        }
    }

    pub(super) fn add_link(&self, id: NodeId, parent: NodeId, name: &[u8]) -> Answer<Metadata> {
        let node = self.node(id)?;
        self.volume.link(node.nr(), self.directory(parent)?, name)?;
        self.named(self.volume.hold_inode(node.nr())?)
    }

    fn entries(&self, id: NodeId, from: u64, flags: u32) -> Answer<Vec<DirEntry>> {
        let node = self.node(id)?;
        let entries = self.volume.read_dir_at(node.nr(), Cookie::new(from), LIST_STEP)?;
        if self.behaviour.directory_atime {
            self.note_access_by(&node, flags);
        }
        Ok(entries)
    }

    /// Lists names and kinds, as many as fit.
    pub(super) fn list(&self, id: NodeId, (from, flags): (u64, u32), list: &mut Entries<'_>) -> Answer {
        for entry in self.entries(id, from, flags)? {
            let Some(kind) = self.kind_of(&entry)? else { continue };
            if !list.add(entry.inode.get().into(), entry.next.get(), kind, &entry.name) {
                break;
            }
        }
        Ok(())
    }

    /// The kind of an entry's inode; `None` if that is gone.
    fn kind_of(&self, entry: &DirEntry) -> Answer<Option<Kind>> {
        if entry.kind.is_some() {
            return Ok(entry.kind);
        }
        match self.volume.stat(entry.inode) {
            Ok(found) => Ok(Some(found.kind)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists names with attributes, as many as fit. An inode that can't be read is listed without: a lookup
    /// then returns the error.
    pub(super) fn list_with_attributes(
        &self,
        id: NodeId,
        (from, flags): (u64, u32),
        list: &mut Entries<'_>,
    ) -> Answer {
        let kept = self.behaviour.kept;
        for listed in self.entries(id, from, flags)? {
            let next = listed.next.get();
            let mut add_bare = |kind| list.add_with(&bare(kept, listed.inode), next, kind, &listed.name);
            let added = if matches!(&*listed.name, b"." | b"..") {
                // No lookup is counted for these, and only their number is used.
                add_bare(Kind::Directory)
            } else {
                match self.volume.hold_inode(listed.inode).and_then(|held| Ok((held.metadata()?, held))) {
                    // Attributes in a listing can't be dropped by a message before it.
                    Ok((found, _)) if self.needs_guard(node_id(found.inode)) => add_bare(found.kind),
                    Ok((found, held)) => {
                        let entry = self.named_in(id, kept, &found);
                        let added = list.add_with(&entry, next, found.kind, &listed.name);
                        if added {
                            self.nodes.remember(held);
                        }
                        added
                    }
                    Err(Error::NotFound) => true,
                    Err(_) => add_bare(listed.kind.unwrap_or(Kind::File)),
                }
            };
            if !added {
                break;
            }
        }
        Ok(())
    }
}

/// An entry with a number only: the kernel caches nothing of it.
fn bare(kept: Duration, number: InodeNr) -> EntryOut {
    let mut entry = no_entry(kept);
    entry.attr.ino.set(number.get().into());
    entry
}

/// The volume's number of an inode that the kernel has not looked up.
fn number(id: NodeId) -> Answer<InodeNr> {
    u32::try_from(id.0).ok().map(InodeNr::new).ok_or_else(|| Errno::STALE.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Behaviour;
    use hectare_device::MemoryDevice;
    use hectare_engine::{OpenOptions, Overwrite, Volume};
    use hectare_mkfs::FormatOptions;
    use hectare_units::Bytes;
    use std::sync::Arc;

    #[test]
    fn regression_a_whiteout_belongs_to_who_renames() {
        let (format, open) = (FormatOptions::default(), OpenOptions::default());
        let device = Arc::new(MemoryDevice::new(Bytes::mib(16)));
        let volume = Volume::format(device, &format, Overwrite::Refuse, open).unwrap();
        let adapter = Adapter::new(volume, Behaviour::default(), Arc::default()).unwrap();
        let root = NodeId::ROOT;
        adapter.volume.write_file("a", b"text", Creation::default()).unwrap();
        let (caller, flags) = (Caller::user(1000, 1001, &[]), RenameFlags::WHITEOUT.bits());
        adapter.rename_entry(&caller, (root, b"a"), (root, b"b"), flags, &mut Reply::default()).unwrap();
        let left = adapter.look_up(root, b"a").unwrap();
        assert_eq!((left.kind, left.uid, left.gid), (Kind::CharDevice, 1000, 1001));
        let unless_there = flags | RenameFlags::NOREPLACE.bits();
        let reply = &mut Reply::default();
        let refused =
            adapter.rename_entry(&caller, (root, b"b"), (root, b"a"), unless_there, reply).unwrap_err();
        assert_eq!(refused.0, Errno::EXIST);
    }
}
