//! Inodes: changing what they say of themselves, links' targets, extended attributes, times of access.

use super::Adapter;
use crate::attr;
use crate::errno::Answer;
use crate::nodes::Node;
use crate::options::Atime;
use crate::protocol::NodeId;
use crate::protocol::init::Features;
use crate::protocol::request::Setattr;
use hectare_engine::{Changes, Error, InodeFlags, Kind, Metadata, Timestamp, XattrHow};
use rustix::io::Errno;

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;
/// How old a time of access gets before a read renews it although nothing has changed (`relatime`).
const RELATIVE_SECONDS: i64 = 24 * 3600;

impl Adapter {
    pub(super) fn set_attributes(&self, id: NodeId, set: &Setattr, uid: u32) -> Answer<Metadata> {
        let changes = Changes {
            permissions: set.mode.map(attr::permissions),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime,
            mtime: set.mtime,
            ctime: set.ctime,
            crtime: None,
        };
        self.change(id, changes, self.kills(set.kills_privileges, uid))
    }

    /// Whether set-ID bits are to be taken away: that the kernel says so, or, if it can't, that somebody
    /// other than root asks.
    pub(super) fn kills(&self, says_so: bool, uid: u32) -> bool {
        if self.kernel.contains(Features::HANDLE_KILLPRIV_V2) { says_so } else { uid != 0 }
    }

    /// Changes an inode; `kills` says that set-ID bits go with a new size.
    pub(super) fn change(&self, id: NodeId, mut changes: Changes, kills: bool) -> Answer<Metadata> {
        let node = self.node(id)?;
        if changes.permissions.is_none() && (takes_privileges(&changes) || kills && changes.size.is_some()) {
            changes.permissions = without_privileges(&node.metadata()?);
        }
        match self.volume.change(node.nr(), &changes) {
            // The kernel brings the times of what it has written to an append-only file; writing set them.
            Err(Error::NotPermitted(_)) if only_written(&changes) => {}
            changed => changed?,
        }
        node.metadata()
    }

    pub(super) fn read_link(&self, id: NodeId) -> Answer<Vec<u8>> {
        let node = self.node(id)?;
        let target = self.volume.read_link_at(node.nr())?;
        self.note_access(&node);
        Ok(target)
    }

    pub(super) fn set_attribute(&self, id: NodeId, attribute: (&[u8], &[u8]), how: (u32, bool)) -> Answer {
        let ((name, value), (flags, kills_group)) = (attribute, how);
        let how = match flags {
            0 => XattrHow::Either,
            1 => XattrHow::Create,
            2 => XattrHow::Replace,
            _ => return Err(Errno::INVAL.into()),
        };
        let node = self.node(id)?;
        self.volume.set_xattr(node.nr(), name, value, how)?;
        if kills_group {
            let permissions = Some(node.metadata()?.permissions & !SET_GROUP_ID);
            self.change(id, Changes { permissions, ..Changes::default() }, false)?;
        }
        Ok(())
    }

    /// The names of the attributes, each with a NUL after it.
    pub(super) fn list_attributes(&self, id: NodeId) -> Answer<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.volume.list_xattrs(self.node(id)?.nr())? {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// Notes that somebody has read, as the mount wants it. Reading succeeds whether that works or not.
    pub(super) fn note_access(&self, node: &Node) {
        if self.behaviour.read_only || self.behaviour.atime == Atime::Never {
            return;
        }
        let Ok(found) = node.metadata() else { return };
        let now = Timestamp::now();
        let renew = match self.behaviour.atime {
            Atime::Never => false,
            Atime::Always => true,
            Atime::Relative => {
                found.atime <= found.mtime.max(found.ctime)
                    || now.seconds.saturating_sub(found.atime.seconds) >= RELATIVE_SECONDS
            }
        };
        if renew && !found.flags.contains(InodeFlags::NOATIME) {
            let _ = node.held().set_accessed(now);
        }
    }
}

/// Whether a change takes the set-ID bits whoever makes it: one of owners.
fn takes_privileges(changes: &Changes) -> bool {
    changes.uid.is_some() || changes.gid.is_some()
}

/// The permissions less the set-ID bits, if a file has any. Without execution by the group, set-group-ID
/// means something else and stays.
fn without_privileges(found: &Metadata) -> Option<u16> {
    let mut taken = SET_USER_ID;
    if found.permissions & GROUP_EXECUTE != 0 {
        taken |= SET_GROUP_ID;
    }
    (found.kind == Kind::File && found.permissions & taken != 0).then_some(found.permissions & !taken)
}

/// Whether a change is what the kernel sends after it has written to a file: these two times and nothing
/// else.
fn only_written(changes: &Changes) -> bool {
    let times = Changes { mtime: changes.mtime, ctime: changes.ctime, ..Changes::default() };
    changes.mtime.is_some() && changes.ctime.is_some() && *changes == times
}
