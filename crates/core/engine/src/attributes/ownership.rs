//! Changes owners, permissions and times on behalf of a caller, and drops the privileges that writing ends.
//!
//! What only the file system can do: set-id bits and file capabilities are cleared when a user writes to a
//! file or gives it away.

use crate::attributes::permission::{GROUP_EXECUTE, SET_GID, SET_UID, keeps_set_gid};
use crate::attributes::stat::Changes;
use crate::attributes::{stat, xattr_read, xattrs};
use crate::caller::{self, Caller, Capabilities};
use crate::data::checks::Source;
use crate::data::{reclaim, truncate};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::xattr::Name;
use hectare_units::InodeNr;
use std::sync::Arc;

/// Changes an inode on behalf of a user, whose rights are checked. As with the kernel, giving a file away
/// and changing its size clear set-id bits and file capabilities. The opener of the file checks that the
/// user may write to a file whose size changes; setting times to the present is allowed to users with
/// write permission ([`crate::Volume::permission`]), and then done with [`crate::Volume::touch`].
pub(crate) fn change_as(core: &Core, nr: InodeNr, changes: &Changes, caller: &Caller<'_>) -> Result<()> {
    changes.check()?;
    let inode = core.state.inode(nr)?;
    check_rights(&inode.get(), changes, caller)?;
    if let Some(size) = changes.size {
        truncate::set_size(core, &inode, size, Source::Caller)?;
    }
    reclaim::retry(core, || {
        let _operation = inode.lock().write();
        core.check_changeable(&inode)?;
        let (settled, takes_privileges) = {
            let data = inode.get();
            check_rights(&data, changes, caller)?;
            settle(&data, changes, caller)
        };
        if takes_privileges {
            drop_capability(core, &inode)?;
        }
        caller::on_behalf(caller, || stat::change_locked(core, &inode, &settled))
    })?;
    core.sync_if_asked(&inode)
}

/// Clears what must not survive a write by a user: set-id bits, unless the user may keep them, and file
/// capabilities. Called before writes; most files have neither, which is remembered.
/// Returns whether there was anything to clear.
pub(crate) fn drop_privileges(core: &Core, inode: &Arc<CachedInode>, caller: &Caller<'_>) -> Result<bool> {
    let keeps_mode = || {
        let data = inode.get();
        kept_mode(&data, caller, false) == data.mode
    };
    if keeps_mode() && (inode.is_harmless() || find_harmless(core, inode)?) {
        return Ok(false);
    }
    reclaim::retry(core, || {
        let _operation = inode.lock().write();
        core.check_takes_changes()?;
        inode.check_alive()?;
        Deed::Grow.check(inode.get().flags, inode.nr())?;
        drop_capability(core, inode)?;
        let mode = kept_mode(&inode.get(), caller, false);
        let permissions = (mode != inode.get().mode).then_some(mode & 0o7777);
        stat::change_locked(core, inode, &Changes { permissions, ..Changes::default() })
    })?;
    core.sync_if_asked(inode)?;
    Ok(true)
}

/// The part of a umask that counts for new files in a directory: none, if the directory has a default
/// ACL, which then decides alone.
pub(crate) fn umask_in(core: &Core, directory: InodeNr, umask: u16) -> Result<u16> {
    let dir = core.state.directory(directory)?;
    let _operation = dir.lock().read();
    let has_default = xattr_read::has_default_acl(core, directory, &dir.get())?;
    Ok(if has_default { 0 } else { umask })
}

/// Whether an inode has no file capabilities; remembered, if so.
fn find_harmless(core: &Core, inode: &CachedInode) -> Result<bool> {
    let _operation = inode.lock().read();
    let harmless = !has_capability(core, inode.nr(), &inode.get())?;
    inode.set_harmless(harmless);
    Ok(harmless)
}

/// Removes the file capabilities of an inode, if it has any.
fn drop_capability(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    let has = has_capability(core, inode.nr(), &inode.get())?;
    if has { xattrs::remove_attribute_locked(core, inode, &Name::capability()) } else { Ok(()) }
}

fn has_capability(core: &Core, nr: InodeNr, data: &Inode) -> Result<bool> {
    xattr_read::has_attribute(core, nr, data, &Name::capability())
}

/// Returns an error for changes that only the owner, or root, may make.
fn check_rights(data: &Inode, changes: &Changes, caller: &Caller<'_>) -> Result<()> {
    let gives_to = changes.uid.filter(|uid| *uid != data.uid || caller.uid != data.uid);
    let own_group = |gid: u32| caller.uid == data.uid && (gid == data.gid || caller.is_in(gid));
    let passes_to = changes.gid.filter(|gid| !own_group(*gid));
    if (gives_to.is_some() || passes_to.is_some()) && !caller.may(Capabilities::CHOWN) {
        return Err(Error::NotPermitted("only root may give files away"));
    }
    let owners_only = changes.permissions.is_some()
        || changes.atime.is_some()
        || changes.mtime.is_some()
        || changes.crtime.is_some();
    if owners_only && !caller.acts_as(data.uid) {
        return Err(Error::NotPermitted("only its owner may change the permissions and times of a file"));
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

/// The permissions of an inode after a permitted change of owner or group; `None` if they stay.
pub(crate) fn permissions_given_away(data: &Inode, caller: &Caller<'_>) -> Option<u16> {
    // The new owner makes no difference.
    let given = Changes { gid: Some(data.gid), ..Changes::default() };
    settle(data, &given, caller).0.permissions
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
    use crate::open::assemble::tests::planned;
    use hectare_ext4::time::Timestamp;

    #[test]
    fn giving_a_file_away_clears_its_set_id_bits() {
        let inode = |mode| {
            let mut inode = Inode::new(mode, Timestamp::from_seconds(1), 1, &planned());
            (inode.uid, inode.gid) = (5, 6);
            inode
        };
        let (member, stranger) = (Caller::user(5, 6, &[]), Caller::user(5, 7, &[]));
        let given = |mode, caller| permissions_given_away(&inode(mode), caller);
        assert_eq!(given(0o100_755, &member), None);
        assert_eq!(given(0o106_755, &member), Some(0o755));
        assert_eq!(given(0o104_755, &Caller::ROOT), Some(0o755));
        assert_eq!(given(0o042_755, &member), None, "directories keep theirs");
        // Without execution by the group the bit means a lock, which only strangers lose.
        assert_eq!((given(0o102_745, &member), given(0o102_745, &stranger)), (None, Some(0o745)));
    }
}
