//! Checks permissions and access ACLs, and clears set-id bits and file capabilities on changes.
//!
//! For mounts that do not let the host's kernel decide (`default_permissions`), and for what only the file
//! system can do: set-id bits and file capabilities are cleared when a user writes to a file or gives it
//! away.
//!
//! The order of the rules is the kernel's. The owner's bits count for the owner, whatever an ACL says; an ACL
//! is consulted only where the mode's group bits (its mask) grant anything; that entry decides for a user it
//! names, and the group entries for a member of its groups, never the entry for others.
//!
//! What it is not: a check of the library's own calls ([`crate::caller`]).

use crate::caller::{Caller, Capabilities};
use crate::error::{Error, Result};
use crate::file::Source;
use crate::immutable::Deed;
use crate::stat::Changes;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::acl::{Acl, Tag};
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::xattr::Name;
use hectare_units::{InodeNr, low8};
use std::sync::Arc;

/// The set-id bits of a mode, and execution by its group.
const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

bitflags::bitflags! {
    /// Kinds of access to a file, with the numbers of `access(2)`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u8 {
        /// Execute it, or look names up in it.
        const EXECUTE = 1;
        /// Write to it, or change its names.
        const WRITE = 2;
        /// Read it, or list it.
        const READ = 4;
    }
}

impl Volume {
    /// Whether a user may do all of `access` with an inode.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`]; [`Error::NotPermitted`] for writing to what is immutable;
    /// [`Error::ReadOnly`] for writing to a volume that is; [`Error::NotFound`], or the error of reading it.
    pub fn permission(&self, nr: InodeNr, caller: &Caller<'_>, access: Access) -> Result<()> {
        let inode = self.inode(nr)?;
        let _operation = inode.lock().read();
        inode.check_alive()?;
        let data = inode.get();
        self.check_permission(nr, &data, caller, access)
    }

    /// Like [`Self::permission`], for an inode whose operation lock is held.
    pub(crate) fn check_permission(
        &self,
        nr: InodeNr,
        data: &Inode,
        caller: &Caller<'_>,
        access: Access,
    ) -> Result<()> {
        let kind = data.kind().ok_or(Error::NotFound)?;
        if access.contains(Access::WRITE) {
            if self.read_only && matches!(kind, Kind::File | Kind::Directory | Kind::Symlink) {
                return Err(Error::ReadOnly);
            }
            Deed::Grow.check(data.flags, nr)?;
        }
        let allowed = self.grants(nr, data, caller, access)? || overrides(data, kind, caller, access);
        if allowed { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    /// Whether an inode's mode and access ACL grant a user all of `access`.
    fn grants(&self, nr: InodeNr, data: &Inode, caller: &Caller<'_>, access: Access) -> Result<bool> {
        let of_class = |shift: u32| Access::from_bits_truncate(low8(u64::from(data.mode >> shift & 7)));
        if caller.uid == data.uid {
            return Ok(of_class(6).contains(access));
        }
        if !of_class(3).is_empty()
            && let Some(acl) = self.access_acl(nr, data)?
        {
            return Ok(acl_grants(&acl, data.gid, caller, access));
        }
        Ok(of_class(if caller.is_in(data.gid) { 3 } else { 0 }).contains(access))
    }

    /// Changes an inode on behalf of a user, whose rights are checked. As with the kernel, giving a file away
    /// and changing its size clear set-id bits and file capabilities. The opener of the file checks that the
    /// user may write to a file whose size changes; setting times to the present is allowed to users with
    /// write permission ([`Volume::permission`]), and then done with [`Volume::touch`].
    ///
    /// # Errors
    /// [`Error::Forbidden`] if the caller is not the owner, and for giving away what only root can; otherwise
    /// as [`Volume::change`].
    pub fn change_as(&self, nr: InodeNr, changes: &Changes, caller: &Caller<'_>) -> Result<()> {
        let inode = self.inode(nr)?;
        check_rights(&inode.get(), changes, caller)?;
        if let Some(size) = changes.size {
            self.set_size(&inode, size, Source::Caller)?;
        }
        self.retry(|| {
            let _operation = inode.lock().write();
            self.check_changeable(&inode)?;
            let (settled, takes_privileges) = {
                let data = inode.get();
                check_rights(&data, changes, caller)?;
                settle(&data, changes, caller)
            };
            if takes_privileges {
                self.drop_capability(&inode)?;
            }
            self.change_locked(&inode, &settled)
        })?;
        self.sync_if_asked(&inode)
    }

    /// Clears what must not survive a write by a user: set-id bits, unless the user may keep them, and file
    /// capabilities. Called before the first write; most files have neither, and then it costs a lookup.
    /// Returns whether there was anything to clear.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::ReadOnly`], or the error of changing the inode.
    pub fn drop_privileges(&self, nr: InodeNr, caller: &Caller<'_>) -> Result<bool> {
        let inode = self.inode(nr)?;
        let plan =
            |data: &Inode| Ok::<_, Error>((kept_mode(data, caller, false), has_capability(self, nr, data)?));
        {
            let data = inode.get();
            if plan(&data)? == (data.mode, false) {
                return Ok(false);
            }
        }
        self.retry(|| {
            let _operation = inode.lock().write();
            self.check_takes_changes()?;
            inode.check_alive()?;
            Deed::Grow.check(inode.get().flags, nr)?;
            let (mode, capability) = plan(&inode.get())?;
            if capability {
                self.drop_capability(&inode)?;
            }
            let permissions = (mode != inode.get().mode).then_some(mode & 0o7777);
            self.change_locked(&inode, &Changes { permissions, ..Changes::default() })
        })?;
        self.sync_if_asked(&inode)?;
        Ok(true)
    }

    /// The permissions of an inode after a permitted change of owner or group: set-ID bits are cleared on all
    /// but directories, as in [`Self::change_as`]. `None` if they stay.
    ///
    /// # Errors
    /// [`Error::NotFound`], or the error of reading the inode.
    pub fn permissions_given_away(&self, nr: InodeNr, caller: &Caller<'_>) -> Result<Option<u16>> {
        let inode = self.inode(nr)?;
        let data = inode.get();
        // The new owner makes no difference.
        let given = Changes { gid: Some(data.gid), ..Changes::default() };
        Ok(settle(&data, &given, caller).0.permissions)
    }

    /// The part of a umask that counts for new files in a directory: none, if the directory has a default
    /// ACL, which then decides alone ([`Creation`](crate::Creation) takes permissions with the umask
    /// applied).
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::NotFound`], or the error of reading the directory.
    pub fn umask_in(&self, directory: InodeNr, umask: u16) -> Result<u16> {
        let dir = self.directory(directory)?;
        let _operation = dir.lock().read();
        let has_default = self.has_default_acl(directory, &dir.get())?;
        Ok(if has_default { 0 } else { umask })
    }

    /// Removes the file capabilities of an inode, if it has any.
    fn drop_capability(&self, inode: &Arc<CachedInode>) -> Result<()> {
        let has = has_capability(self, inode.nr(), &inode.get())?;
        if has { self.remove_attribute_locked(inode, &Name::capability()) } else { Ok(()) }
    }
}

fn has_capability(volume: &Volume, nr: InodeNr, data: &Inode) -> Result<bool> {
    volume.has_attribute(nr, data, &Name::capability())
}

/// Whether an access ACL grants all of `access` to a user other than the owner. Of several groups of the
/// user, one must grant it all.
fn acl_grants(acl: &Acl, file_group: u32, caller: &Caller<'_>, access: Access) -> bool {
    let perm_of = |tag: Tag| acl.entries().iter().find(|entry| entry.tag == tag).map(|entry| entry.perm);
    let mask = perm_of(Tag::Mask).unwrap_or(7);
    let grants = |perm: u8| Access::from_bits_truncate(perm).contains(access);
    if let Some(perm) = perm_of(Tag::User(caller.uid)) {
        return grants(perm & mask);
    }
    let is_member = |tag: Tag| match tag {
        Tag::GroupObj => caller.is_in(file_group),
        Tag::Group(gid) => caller.is_in(gid),
        _ => false,
    };
    let mut groups = acl.entries().iter().filter(|entry| is_member(entry.tag)).peekable();
    if groups.peek().is_some() {
        return groups.any(|entry| grants(entry.perm & mask));
    }
    perm_of(Tag::Other).is_some_and(grants)
}

/// Whether a user's capabilities override the permissions. Executing needs execute permission for some class.
fn overrides(data: &Inode, kind: Kind, caller: &Caller<'_>, access: Access) -> bool {
    let only_looks = match kind {
        Kind::Directory => !access.contains(Access::WRITE),
        _ => access == Access::READ,
    };
    if only_looks && caller.may(Capabilities::DAC_READ_SEARCH) {
        return true;
    }
    let executable = kind == Kind::Directory || data.mode & 0o111 != 0;
    caller.may(Capabilities::DAC_OVERRIDE) && (executable || !access.contains(Access::EXECUTE))
}

/// Whether a user may set the set-group-id bit of what a group owns.
pub(crate) fn keeps_set_gid(caller: &Caller<'_>, group: u32) -> bool {
    caller.is_in(group) || caller.may(Capabilities::FSETID)
}

/// Returns an error for changes that only the owner, or root, may make.
fn check_rights(data: &Inode, changes: &Changes, caller: &Caller<'_>) -> Result<()> {
    let gives_to = changes.uid.filter(|uid| *uid != data.uid || caller.uid != data.uid);
    let own_group = |gid: u32| caller.uid == data.uid && (gid == data.gid || caller.is_in(gid));
    let passes_to = changes.gid.filter(|gid| !own_group(*gid));
    if (gives_to.is_some() || passes_to.is_some()) && !caller.may(Capabilities::CHOWN) {
        return Err(Error::Forbidden("only root may give files away"));
    }
    let owners_only = changes.permissions.is_some()
        || changes.atime.is_some()
        || changes.mtime.is_some()
        || changes.crtime.is_some();
    if owners_only && !caller.acts_as(data.uid) {
        return Err(Error::Forbidden("only its owner may change the permissions and times of a file"));
    }
    Ok(())
}

/// The mode of a regular file after a user has written to it, or, if `always`, after it was given away.
fn kept_mode(data: &Inode, caller: &Caller<'_>, always: bool) -> u16 {
    let kept = data.kind() != Some(Kind::File) || caller.may(Capabilities::FSETID);
    if kept && !always {
        return data.mode;
    }
    let drops_gid = data.mode & GROUP_EXECUTE != 0 || !keeps_set_gid(caller, data.gid);
    data.mode & !(SET_UID | if drops_gid { SET_GID } else { 0 })
}

/// The complete changes with their side effects, and whether they clear file capabilities.
fn settle(data: &Inode, changes: &Changes, caller: &Caller<'_>) -> (Changes, bool) {
    let gives = (changes.uid.is_some() || changes.gid.is_some()) && data.kind() != Some(Kind::Directory);
    let group = changes.gid.unwrap_or(data.gid);
    let permissions = match changes.permissions {
        Some(permissions) if keeps_set_gid(caller, group) => Some(permissions),
        Some(permissions) => Some(permissions & !SET_GID),
        None => {
            let mode = match (gives, changes.size) {
                (false, None) => data.mode,
                (gives, _) => kept_mode(data, caller, gives),
            };
            (mode != data.mode).then_some(mode & 0o7777)
        }
    };
    (Changes { permissions, ..*changes }, gives || changes.size.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_ext4::acl::Entry;

    /// The kernel's rule, entry by entry.
    fn by_the_book(acl: &Acl, group: u32, caller: &Caller<'_>, want: u8) -> bool {
        let mask = acl.entries().iter().find(|e| e.tag == Tag::Mask).map_or(7, |e| e.perm);
        let mut member = false;
        for entry in acl.entries() {
            match entry.tag {
                Tag::User(uid) if uid == caller.uid => return entry.perm & mask & want == want,
                Tag::GroupObj if !caller.is_in(group) => {}
                Tag::Group(gid) if !caller.is_in(gid) => {}
                Tag::GroupObj | Tag::Group(_) => {
                    member = true;
                    if entry.perm & want == want {
                        return entry.perm & mask & want == want;
                    }
                }
                Tag::Other => return !member && entry.perm & want == want,
                _ => {}
            }
        }
        false
    }

    proptest::proptest! {
        #[test]
        fn an_acl_grants_what_the_rule_says(
            perms in proptest::array::uniform7(0..8_u8),
            uid in 1..4_u32, gid in 1..4_u32, want in 1..8_u8,
        ) {
            let entry = |tag, n: usize| Entry { tag, perm: perms[n] };
            let acl = Acl::new(vec![
                entry(Tag::UserObj, 0), entry(Tag::User(1), 1), entry(Tag::GroupObj, 2),
                entry(Tag::Group(2), 3), entry(Tag::Group(3), 4), entry(Tag::Mask, 5), entry(Tag::Other, 6),
            ]).unwrap();
            let groups = [gid];
            let caller = Caller::user(uid, 3, &groups);
            let access = Access::from_bits_truncate(want);
            let granted = acl_grants(&acl, 1, &caller, access);
            proptest::prop_assert_eq!(granted, by_the_book(&acl, 1, &caller, want));
        }
    }
}
