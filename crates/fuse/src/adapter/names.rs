//! Names: looking them up, making, removing, renaming and listing them.
//!
//! Every answer that names an inode counts a lookup of it, so that it is held first: between the engine's
//! answer and ours the name may be gone.

use super::Adapter;
use crate::attr;
use crate::errno::Answer;
use fuser::{Errno, FileType, INodeNo, RenameFlags, ReplyDirectory, ReplyDirectoryPlus, Request};
use hectare_engine::{Cookie, Creation, DirEntry, Error, HeldInode, Metadata, NewNode, RenameMode};
use hectare_units::InodeNr;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Entries listed for one answer: more than fit what the kernel usually asks for.
const LIST_STEP: usize = 1024;

impl Adapter {
    fn directory(&self, id: INodeNo) -> Answer<InodeNr> {
        Ok(self.node(id)?.nr())
    }

    /// Counts a lookup of what an answer names, and tells what it is.
    fn named(&self, held: HeldInode) -> Answer<Metadata> {
        let found = held.metadata()?;
        self.nodes.remember(held);
        Ok(found)
    }

    pub(super) fn look_up(&self, parent: INodeNo, name: &[u8]) -> Answer<Metadata> {
        match name {
            // Asked by those who have only a file handle (NFS); the number may be one never told.
            b"." => match self.node(parent) {
                Ok(node) => self.named(self.volume.hold_inode(node.nr())?),
                Err(_) => self.named(self.volume.hold_inode(number(parent)?)?),
            },
            b".." => {
                let dir = self.node(parent).map_or_else(|_| number(parent), |node| Ok(node.nr()))?;
                drop(self.volume.hold_inode(dir)?); // no inode of the format
                self.named(self.volume.hold_named(dir, name)?)
            }
            _ => self.named(self.volume.hold_named(self.directory(parent)?, name)?),
        }
    }

    /// Makes a name with a new inode.
    pub(super) fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &[u8],
        node: NewNode<'_>,
        mode: u32,
        umask: u32,
    ) -> Answer<Metadata> {
        let parent = self.directory(parent)?;
        let creation = Creation {
            permissions: attr::permissions(mode) & !self.volume.umask_in(parent, attr::permissions(umask))?,
            uid: request.uid(),
            gid: request.gid(),
        };
        let made = self.volume.create(parent, name, node, creation)?;
        self.named(self.volume.hold_inode(made)?)
    }

    /// Makes a file and opens it.
    pub(super) fn create_open(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Answer<Metadata> {
        let made = self.make(request, parent, name, NewNode::File, mode, umask)?;
        if !self.opens_unasked() {
            self.nodes.open(crate::nodes::node_id(made.inode))?;
        }
        Ok(made)
    }

    pub(super) fn remove_file(&self, parent: INodeNo, name: &[u8]) -> Answer {
        Ok(self.volume.unlink(self.directory(parent)?, name)?)
    }

    pub(super) fn remove_directory(&self, parent: INodeNo, name: &[u8]) -> Answer {
        Ok(self.volume.rmdir(self.directory(parent)?, name)?)
    }

    pub(super) fn rename_entry(
        &self,
        (parent, name): (INodeNo, &[u8]),
        (new_parent, new): (INodeNo, &[u8]),
        flags: RenameFlags,
    ) -> Answer {
        let mode = match flags {
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            RenameFlags::RENAME_WHITEOUT => RenameMode::Whiteout,
            flags if flags.is_empty() => RenameMode::Replace,
            _ => return Err(Errno::EINVAL.into()),
        };
        let (from, to) = (self.directory(parent)?, self.directory(new_parent)?);
        Ok(self.volume.rename(from, name, to, new, mode)?)
    }

    pub(super) fn add_link(&self, id: INodeNo, parent: INodeNo, name: &[u8]) -> Answer<Metadata> {
        let node = self.node(id)?;
        self.volume.link(node.nr(), self.directory(parent)?, name)?;
        self.named(self.volume.hold_inode(node.nr())?)
    }

    fn entries(&self, id: INodeNo, from: u64) -> Answer<Vec<DirEntry>> {
        let node = self.node(id)?;
        let entries = self.volume.read_dir_at(node.nr(), Cookie::new(from), LIST_STEP)?;
        self.note_access(&node);
        Ok(entries)
    }

    /// Lists names and kinds, as many as fit.
    pub(super) fn list(&self, id: INodeNo, from: u64, reply: &mut ReplyDirectory) -> Answer {
        for entry in self.entries(id, from)? {
            let Some(kind) = self.kind_of(&entry)? else { continue };
            let number = INodeNo(entry.inode.get().into());
            if reply.add(number, entry.next.get(), kind, OsStr::from_bytes(&entry.name)) {
                break;
            }
        }
        Ok(())
    }

    /// The kind of what an entry names; `None` if that is gone.
    fn kind_of(&self, entry: &DirEntry) -> Answer<Option<FileType>> {
        if let Some(kind) = entry.kind {
            return Ok(Some(attr::file_type(kind)));
        }
        match self.volume.stat(entry.inode) {
            Ok(found) => Ok(Some(attr::file_type(found.kind))),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists names with what they name, as many as fit. An inode that can't be read is listed without:
    /// whoever wants it looks it up and is told why.
    pub(super) fn list_with_attributes(
        &self,
        id: INodeNo,
        from: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer {
        let kept = &self.behaviour.kept;
        for entry in self.entries(id, from)? {
            let name = OsStr::from_bytes(&entry.name);
            let next = entry.next.get();
            if matches!(&*entry.name, b"." | b"..") {
                // No lookup is counted for these, and nothing but the number looked at.
                let bare = attr::bare(entry.inode.get().into(), FileType::Directory);
                if reply.add(bare.ino, next, name, kept, &bare, fuser::Generation(0)) {
                    break;
                }
                continue;
            }
            let found = self.volume.hold_inode(entry.inode).and_then(|held| Ok((held.metadata()?, held)));
            let full = match found {
                Ok((found, held)) => {
                    let attributes = attr::entry(&found);
                    let generation = attr::generation(&found);
                    let full = reply.add(attributes.ino, next, name, kept, &attributes, generation);
                    if !full {
                        self.nodes.remember(held);
                    }
                    full
                }
                Err(Error::NotFound) => false,
                Err(_) => {
                    let kind = entry.kind.map_or(FileType::RegularFile, attr::file_type);
                    reply.add(INodeNo(0), next, name, kept, &attr::bare(0, kind), fuser::Generation(0))
                }
            };
            if full {
                break;
            }
        }
        Ok(())
    }
}

/// The volume's number of an inode that the kernel was not told of.
fn number(id: INodeNo) -> Answer<InodeNr> {
    u32::try_from(id.0).ok().map(InodeNr::new).ok_or_else(|| Errno::ESTALE.into())
}
