//! Removes names, and with the last one the inode.
//!
//! Everything that could fail is checked before the name is removed. An inode of little content is freed with
//! its last name, in one transaction. Any other becomes an orphan ([`crate::stores::orphans`]) in it, so that
//! a crash does not lose its space, and is freed afterwards, in as many transactions as that takes; an open
//! file, at its last close (the volume's list of nameless files contains it, so that closing the volume frees
//! it).

use crate::attributes::freeing::{self, DROP_CREDITS};
use crate::attributes::value_inodes::{self, Owner};
use crate::data::{reclaim, truncate};
use crate::encrypted_names;
use crate::error::{Error, Result};
use crate::names::directory::DirRef;
use crate::names::{create, lookup};
use crate::space::map::MapRef;
use crate::space::reserve;
use crate::state::Core;
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::dir;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_journal::Handle;
use hectare_units::InodeNr;
use std::sync::Arc;

/// Blocks that removing a name dirties: the directory's block and inode, the inode that is named, and slack.
const UNLINK_CREDITS: u32 = 8;

/// The fate of an inode that may have lost its last name.
#[must_use]
pub(crate) enum Dropped {
    /// It stays: it has names, or is open.
    Stays,
    /// It was freed in the same transaction.
    Freed,
    /// It is an orphan, to be freed.
    Orphan,
}

/// Removes an empty directory.
pub(crate) fn rmdir(core: &Core, parent: InodeNr, name: &[u8]) -> Result<()> {
    if name == b"." {
        return Err(Error::Invalid("a directory can't be removed through its '.'"));
    }
    if name == b".." {
        return Err(Error::NotEmpty);
    }
    remove_name(core, parent, name, |_volume, victim| {
        if victim.get().kind() != Some(Kind::Directory) {
            return Err(Error::NotADirectory);
        }
        check_empty(core, victim)
    })
}

/// Returns an error for a directory that is not empty. The caller holds its operation lock.
pub(crate) fn check_empty(core: &Core, dir: &CachedInode) -> Result<()> {
    let data = dir.get();
    let store = DirRef { state: &core.state, nr: dir.nr(), inode: &data };
    let empty = dir::is_empty(&store, &store.format()).watched(&core.state.findings)?;
    if empty { Ok(()) } else { Err(Error::NotEmpty) }
}

pub(crate) fn remove_name(
    core: &Core,
    parent: InodeNr,
    name: &[u8],
    check: impl Fn(&Core, &CachedInode) -> Result<()>,
) -> Result<()> {
    let dir = core.state.directory(parent)?;
    // Of an encrypted directory, as a listing shows it.
    let stored = encrypted_names::stored(name, dir.get().flags)?;
    let name = stored.name()?;
    if name.is_dot() {
        return Err(Error::IsADirectory);
    }
    reclaim::retry(core, || {
        let _dir = dir.lock().write();
        create::check_gives_names(core, &dir)?;
        let nr = lookup::lookup_locked(core, &dir, name)?.ok_or(Error::NotFound)?;
        if nr == parent {
            return Err(Corrupt::new("the directory", Place::Inode(parent), "it holds itself").into());
        }
        let victim = core.state.inode(nr)?;
        let _victim = victim.lock().write();
        core.check_changeable(&victim)?;
        check(core, &victim)?;
        check_removable(core, &victim)?;
        let at_once = freeing::at_once(core, nr, &victim.get())?;
        victim.get().kind().ok_or(Error::NotFound)?;
        let credits = UNLINK_CREDITS + DROP_CREDITS + at_once.unwrap_or(0);
        let mut handle = core.start(credits)?;
        create::take_name(core, &mut handle, &dir, name)?;
        drop_link(core, &mut handle, &dir, &victim);
        let dropped = drop_unnamed(core, &mut handle, &victim, at_once.is_some())?;
        handle.stop();
        finish_drop(core, &victim, dropped)
    })?;
    core.sync_names_if_asked(&[&dir])
}

/// Returns an error for removing a name of an inode that must not change, or whose content could not be
/// freed.
pub(crate) fn check_removable(core: &Core, victim: &CachedInode) -> Result<()> {
    core.check_changeable(victim)?;
    let data = victim.get();
    if data.links == 0 {
        return Err(Corrupt::new("the inode", Place::Inode(victim.nr()), "it has a name but no links").into());
    }
    if data.flags.contains(InodeFlags::EA_INODE) {
        let what = "it has a name, but holds an attribute's value";
        return Err(Corrupt::new("the inode", Place::Inode(victim.nr()), what).into());
    }
    if data.links == 1 || data.kind() == Some(Kind::Directory) {
        check_freeable(core, victim.nr(), &data)?;
    }
    Ok(())
}

/// Returns an error for freeing an inode with content that can't be freed yet.
pub(crate) fn check_freeable(core: &Core, nr: InodeNr, data: &Inode) -> Result<()> {
    truncate::check_freeable(core, nr, data, 0)?;
    if !core.state.groups.inode_in_use(nr)? {
        let wrong = Corrupt::new("the inode", Place::Inode(nr), "it has a name, but its bitmap has it free");
        return Err(Error::from(wrong)).watched(&core.state.findings);
    }
    if let Some(block) = data.file_acl {
        (MapRef { state: &core.state, nr, inode: data }).check_used(block, 1)?;
    }
    if data.file_acl.is_some() || core.state.incompat(Incompat::EA_INODE) {
        // What is broken is found before the name is gone.
        let values = core.state.values_outside(nr, data)?;
        value_inodes::check_countable(core, Owner::of(nr, data), data, &values)?;
    }
    Ok(())
}

/// Decrements the link count; a directory loses all links, and its parent that of "..".
pub(crate) fn drop_link(
    core: &Core,
    handle: &mut Handle<'_>,
    dir: &Arc<CachedInode>,
    victim: &Arc<CachedInode>,
) {
    let mut data = victim.edit(handle, &core.state.inodes);
    data.ctime = core.state.now();
    if data.kind() == Some(Kind::Directory) {
        data.links = 0;
        drop(data);
        create::change_subdirectories(core, handle, dir, -1);
    } else {
        data.links = data.links.saturating_sub(1);
    }
}

/// Drops an inode, in the transaction that may have removed its last name: unless it is in use, it is
/// freed `at_once`, or becomes an orphan. The caller holds its operation lock.
///
/// # Errors
/// If it can't be freed; it is an orphan then.
pub(crate) fn drop_unnamed(
    core: &Core,
    handle: &mut Handle<'_>,
    inode: &Arc<CachedInode>,
    at_once: bool,
) -> Result<Dropped> {
    if inode.get().links > 0 {
        return Ok(Dropped::Stays);
    }
    // Checked after the links are gone: a concurrent close checks the links after its own count.
    if inode.is_in_use() {
        core.state.add_orphan(handle, inode);
        core.state.nameless.lock().insert(inode.nr(), Arc::clone(inode));
        return Ok(Dropped::Stays);
    }
    if !at_once {
        core.state.add_orphan(handle, inode);
        return Ok(Dropped::Orphan);
    }
    reserve::discard_window(core, inode);
    match freeing::free_whole(core, handle, inode) {
        Ok(()) => Ok(Dropped::Freed),
        Err(error) => {
            core.state.add_orphan(handle, inode);
            Err(error)
        }
    }
}

/// Finishes what [`drop_unnamed`] began, after its transaction's handle is closed.
pub(crate) fn finish_drop(core: &Core, inode: &Arc<CachedInode>, dropped: Dropped) -> Result<()> {
    match dropped {
        Dropped::Stays => Ok(()),
        Dropped::Freed => core.relieve_frees(),
        Dropped::Orphan => freeing::delete(core, inode),
    }
}

/// Frees an inode that has no links, after its last use. A failure leaves an inode without a name, which
/// e2fsck finds; there is no caller left to report it to.
pub(crate) fn delete_unnamed(core: &Core, inode: &Arc<CachedInode>) {
    if inode.get().links == 0 {
        let _operation = inode.lock().write();
        let _ = delete_if_unused(core, inode);
    }
}

/// Frees an inode that has no links unless it is in use. The caller holds its operation lock.
fn delete_if_unused(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    if inode.get().links > 0 || inode.is_freed() || inode.is_in_use() {
        return Ok(());
    }
    core.state.nameless.lock().remove(&inode.nr());
    freeing::delete(core, inode)
}

/// Frees the nameless files that are still open, and values that lost their last user in a change that
/// failed: the volume closes, so nothing later can.
pub(crate) fn free_nameless(core: &Core) -> Result<()> {
    for inode in std::mem::take(&mut *core.state.nameless.lock()).into_values() {
        let _operation = inode.lock().write();
        if !inode.is_freed() {
            freeing::delete(core, &inode)?;
        }
    }
    freeing::free_dropped(core)
}
