//! Inodes: changes attributes, reads link targets, handles extended attributes and access times.

use super::Adapter;
use crate::attr;
use crate::errno::Answer;
use crate::node_table::{Node, node_id};
use crate::options::Atime;
use crate::protocol::NodeId;
use crate::protocol::init::Features;
use crate::protocol::reply::{Reply, Stale};
use crate::protocol::request::{Setattr, Times};
use hectare_engine::{Caller, Capabilities, Changes, Error, InodeFlags, Metadata, Timestamp, XattrHow};
use rustix::fs::OFlags;
use rustix::io::Errno;

const SET_GROUP_ID: u16 = 0o2000;
/// The attribute that sets the mode of a file, too.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Attributes that not everybody may see begin with this.
const TRUSTED: &[u8] = b"trusted.";
/// The age at which a read renews an access time although nothing has changed (`relatime`).
const RELATIVE_SECONDS: i64 = 24 * 3600;

impl Adapter {
    pub(super) fn set_attributes(
        &self,
        caller: &Caller<'_>,
        id: NodeId,
        set: &Setattr,
        reply: &mut Reply,
    ) -> Answer<Metadata> {
        let mut changes = Changes {
            permissions: set.mode.map(attr::permissions),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime,
            mtime: set.mtime,
            ctime: set.ctime,
            crtime: None,
        };
        let node = self.node(id)?;
        if let Some(times) = set.times() {
            self.set_times(&node, &changes, times)?;
            return node.metadata();
        }
        if let (None, Some(size)) = (changes.permissions, changes.size)
            && let Some(killer) = self.killer(set.kills_privileges, caller)
        {
            self.volume.check_resize(node.nr(), size)?;
            self.drop_privileges(killer, &node, reply)?;
        }
        if changes.permissions.is_none() && (changes.uid.is_some() || changes.gid.is_some()) {
            changes.permissions = self.volume.permissions_given_away(node.nr(), caller)?;
        }
        self.volume.change(node.nr(), &changes)?;
        node.metadata()
    }

    fn set_times(&self, node: &Node, changes: &Changes, times: Times) -> Answer {
        match (times, changes.mtime, changes.ctime) {
            (Times::Touch, ..) => Ok(self.volume.touch(node.nr(), changes)?),
            // A file open for writing may have been written before it became immutable.
            (Times::Written, Some(mtime), Some(ctime)) => Ok(node.held().set_written(mtime, ctime)?),
            _ => match self.volume.change(node.nr(), changes) {
                // To refuse a kernel that buffers times on its own would fail a later close or sync.
                Err(Error::Immutable(_) | Error::AppendOnly(_))
                    if self.is_writeback() && changes.mtime == Some(node.metadata()?.mtime) =>
                {
                    Ok(())
                }
                changed => Ok(changed?),
            },
        }
    }

    /// The caller whose change of content clears set-ID bits, if there is one: the kernel says so, or, if it
    /// can't, the caller is not root.
    pub(super) fn killer<'c, 'g>(&self, says_so: bool, caller: &'c Caller<'g>) -> Option<&'c Caller<'g>> {
        let tells = self.kernel.contains(Features::HANDLE_KILLPRIV_V2);
        (if tells { says_so } else { caller.uid != 0 }).then_some(caller)
    }

    /// Clears set-ID bits and file capabilities of a file changed by a caller that may not keep them. Without
    /// the notification the kernel would use its cached mode, and run a changed program as if it were
    /// unchanged.
    pub(super) fn drop_privileges(&self, caller: &Caller<'_>, node: &Node, reply: &mut Reply) -> Answer {
        let caller = Caller { capabilities: Capabilities::empty(), ..*caller };
        if self.volume.drop_privileges(node.nr(), &caller)? {
            reply.make_stale(Stale::Attributes(node_id(node.nr())));
        }
        Ok(())
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
        // The kernel says so of default ACLs as well, which leave the mode alone.
        if kills_group && name == ACL_ACCESS {
            let permissions = Some(node.metadata()?.permissions & !SET_GROUP_ID);
            self.volume.change(node.nr(), &Changes { permissions, ..Changes::default() })?;
        }
        Ok(())
    }

    /// The names of the attributes that the caller may see, each followed by a NUL.
    pub(super) fn list_attributes(
        &self,
        caller: impl FnOnce() -> Caller<'static>,
        id: NodeId,
    ) -> Answer<Vec<u8>> {
        let node = self.node(id)?;
        let (mut list, mut names) = (Vec::new(), self.volume.list_xattrs_as(node.nr(), &Caller::ROOT)?);
        if names.iter().any(|name| name.starts_with(TRUSTED)) {
            names = self.volume.list_xattrs_as(node.nr(), &caller())?;
        }
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// Notes an access by a file or directory that was opened with these flags.
    pub(super) fn note_access_by(&self, node: &Node, flags: u32) {
        if !OFlags::from_bits_retain(flags).contains(OFlags::NOATIME) {
            self.note_access(node);
        }
    }

    /// Updates the access time after a read, as the mount options say. Reading succeeds even if that fails.
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
