//! Checks permissions and access ACLs.
//!
//! For mounts that do not let the host's kernel decide (`default_permissions`).
//!
//! The order of the rules is the kernel's. The owner's bits count for the owner, whatever an ACL says; an ACL
//! is consulted only where the mode's group bits (its mask) grant anything; that entry decides for a user it
//! names, and the group entries for a member of its groups, never the entry for others.
//!
//! What it is not: a check of the library's own calls ([`crate::caller`]).

use crate::attributes::xattr_read;
use crate::caller::{Caller, Capabilities};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::state::Core;
use hectare_ext4::acl::{Acl, Tag};
use hectare_ext4::inode::{Inode, Kind};
use hectare_units::{InodeNr, low8};

/// The set-id bits of a mode, and execution by its group.
pub(crate) const SET_UID: u16 = 0o4000;

pub(crate) const SET_GID: u16 = 0o2000;

pub(crate) const GROUP_EXECUTE: u16 = 0o010;

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

/// Like [`crate::Volume::permission`], for an inode whose operation lock is held.
pub(crate) fn check_permission(
    core: &Core,
    nr: InodeNr,
    data: &Inode,
    caller: &Caller<'_>,
    access: Access,
) -> Result<()> {
    let kind = data.kind().ok_or(Error::NotFound)?;
    if access.contains(Access::WRITE) {
        if core.state.read_only && matches!(kind, Kind::File | Kind::Directory | Kind::Symlink) {
            return Err(Error::ReadOnly);
        }
        Deed::Grow.check(data.flags, nr)?;
    }
    let allowed = grants(core, nr, data, caller, access)? || overrides(data, kind, caller, access);
    if allowed { Ok(()) } else { Err(Error::PermissionDenied) }
}

/// Whether an inode's mode and access ACL grant a user all of `access`.
fn grants(core: &Core, nr: InodeNr, data: &Inode, caller: &Caller<'_>, access: Access) -> Result<bool> {
    let of_class = |shift: u32| Access::from_bits_truncate(low8(u64::from(data.mode >> shift & 7)));
    if caller.uid == data.uid {
        return Ok(of_class(6).contains(access));
    }
    if !of_class(3).is_empty()
        && let Some(acl) = xattr_read::access_acl(core, nr, data)?
    {
        return Ok(acl_grants(&acl, data.gid, caller, access));
    }
    Ok(of_class(if caller.is_in(data.gid) { 3 } else { 0 }).contains(access))
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
