//! Reads names: finds them, lists them, and returns what they lead to.
//!
//! These operations take the operation lock of one inode, shared, and change nothing. A number that a name
//! led to a moment ago may belong to another inode now; so callers that continue with the result hold the
//! inode itself ([`lookup_inode`]), and see when it is freed.

use crate::attributes::stat::Metadata;
use crate::data::read;
use crate::encrypted_names;
use crate::error::{Error, Result};
use crate::names::directory::{DirRef, NameSpot};
use crate::names::node::{DirEntry, kind_of};
use crate::state::Core;
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::casefold::{self, Folding};
use hectare_ext4::dir::{self, Cookie, DirRead, EntryRef, Name, Search};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_units::InodeNr;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Looks a name up; in an encrypted directory, by the text of a listing.
pub(crate) fn lookup(core: &Core, parent: InodeNr, name: &[u8]) -> Result<InodeNr> {
    let dir = core.state.directory(parent)?;
    let stored = encrypted_names::stored(name, dir.get().flags)?;
    let _operation = dir.lock().read();
    lookup_locked(core, &dir, stored.name()?)?.ok_or(Error::NotFound)
}

/// The inode that a name leads to, held since it had the name: if it is freed from now on, that shows.
pub(crate) fn lookup_inode(core: &Core, dir: &CachedInode, name: &[u8]) -> Result<Arc<CachedInode>> {
    if dir.get().kind() != Some(Kind::Directory) {
        return Err(Error::NotADirectory);
    }
    let stored = encrypted_names::stored(name, dir.get().flags)?;
    let _operation = dir.lock().read();
    core.state.inode(lookup_locked(core, dir, stored.name()?)?.ok_or(Error::NotFound)?)
}

/// Looks a stored name up in a directory whose operation lock is held.
pub(crate) fn lookup_locked(core: &Core, dir: &CachedInode, name: Name<'_>) -> Result<Option<InodeNr>> {
    dir.check_alive()?;
    look_name_up(core, dir, name).watched(&core.state.findings)
}

fn look_name_up(core: &Core, dir: &CachedInode, name: Name<'_>) -> Result<Option<InodeNr>> {
    let data = dir.get();
    check_encoding(core, &data, name)?;
    let store = DirRef { state: &core.state, nr: dir.nr(), inode: &data };
    check_bounds(dir, &store)?;
    let found = dir::lookup(&store, &store.format(), name)?.map(|found| found.inode);
    found.map(|nr| check_named(core, dir, nr)).transpose()
}

/// Returns an error for a name that can't be in a directory where case does not matter: one that is not valid
/// where names have to be.
fn check_encoding(core: &Core, dir: &Inode, name: Name<'_>) -> Result<()> {
    if !dir.flags.contains(InodeFlags::CASEFOLD) || dir.flags.contains(InodeFlags::ENCRYPT) {
        return Ok(());
    }
    let strict =
        Folding::of(&core.state.sb).is_ok_and(|folding| folding.is_some_and(|folding| folding.strict));
    if strict && casefold::fold(name.bytes()).is_none() {
        return Err(Error::Invalid("the name is not UTF-8, which names of this directory must be"));
    }
    Ok(())
}

/// A name as it is stored, which may differ in case from how it is asked for. The directory's operation lock
/// is held, and it is not inline.
pub(crate) fn stored_name(core: &Core, dir: &CachedInode, name: Name<'_>) -> Result<Vec<u8>> {
    let data = dir.get();
    let store = DirRef { state: &core.state, nr: dir.nr(), inode: &data };
    let found = dir::lookup(&store, &store.format(), name)?.ok_or(Error::NotFound)?;
    let block = store.block(found.at.block)?.ok_or(Error::NotFound)?;
    let stored = dir::stored_name(&block, found.at.offset).ok_or(Error::NotFound)?;
    Ok(stored.to_vec())
}

/// The place for a name that isn't in a directory yet. The directory's operation lock is held, and it can
/// be written to.
///
/// # Errors
/// [`Error::Exists`] if it is there.
pub(crate) fn spot_locked(core: &Core, dir: &CachedInode, name: Name<'_>) -> Result<NameSpot> {
    let data = dir.get();
    let store = DirRef { state: &core.state, nr: dir.nr(), inode: &data };
    check_encoding(core, &data, name)?;
    // Such a name would be taken for the directory itself, or for its parent.
    let folded = store.format().folding.and_then(|_| casefold::fold(name.bytes()));
    if folded.as_deref().and_then(Name::new).is_some_and(Name::is_dot) {
        return Err(Error::Exists);
    }
    check_bounds(dir, &store).watched(&core.state.findings)?;
    match dir::search(&store, &store.format(), name).watched(&core.state.findings)? {
        Search::Absent(spot) => Ok(spot),
        Search::Found(found) => check_named(core, dir, found.inode).and(Err(Error::Exists)),
    }
}

/// Checks a directory's map when its blocks are first read. No blocks are freed or added meanwhile: the
/// caller holds the operation lock.
fn check_bounds(dir: &CachedInode, store: &DirRef<'_>) -> Result<()> {
    if !dir.is_bounded() {
        store.check_bounds()?;
        dir.set_bounded();
    }
    Ok(())
}

/// The inode that a name in `dir` leads to, if a name may.
fn check_named(core: &Core, dir: &CachedInode, nr: InodeNr) -> Result<InodeNr> {
    core.state.groups.slot(nr)?;
    if !core.state.is_special(nr) {
        return Ok(nr);
    }
    let what = format!("a name leads to inode {nr}, which belongs to the format");
    Err(Corrupt::new("the directory", Place::Inode(dir.nr()), what).into())
}

/// Lists a directory from a cookie on (0: from the start), up to `max` entries, `.` and `..` included. A
/// name that is there from the first call to the last is listed exactly once, whatever else changes. The
/// names of an encrypted directory are listed as text that stands for the ciphertext (base64url, up to
/// 340 bytes).
pub(crate) fn read_dir_at(core: &Core, nr: InodeNr, from: Cookie, max: usize) -> Result<Vec<DirEntry>> {
    let dir = core.state.directory(nr)?;
    let _operation = dir.lock().read();
    dir.check_alive()?;
    let data = dir.get();
    let mut entries = Vec::new();
    let mut take = |entry: EntryRef<'_>| {
        if entries.len() == max {
            return ControlFlow::Break(());
        }
        entries.push(DirEntry {
            name: encrypted_names::shown(entry.name, data.flags),
            inode: entry.inode,
            kind: kind_of(entry.file_type),
            next: entry.next,
        });
        if entries.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let store = DirRef { state: &core.state, nr, inode: &data };
    check_bounds(&dir, &store).watched(&core.state.findings)?;
    dir::read_dir(&store, &store.format(), from, &mut take).watched(&core.state.findings)?;
    Ok(entries)
}

pub(crate) fn stat_of(core: &Core, inode: &CachedInode) -> Result<Metadata> {
    Metadata::of(&core.state, inode)
}

pub(crate) fn read_link_of(core: &Core, inode: &CachedInode) -> Result<Vec<u8>> {
    let nr = inode.nr();
    let _operation = inode.lock().read();
    inode.check_alive()?;
    let data = inode.get();
    if data.kind() != Some(Kind::Symlink) {
        return Err(Error::Invalid("not a symbolic link"));
    }
    if data.flags.contains(InodeFlags::ENCRYPT) {
        return Err(Error::Unsupported(format!("the target of inode {nr} is encrypted")));
    }
    let bad = |what| Corrupt::new("the symbolic link", Place::Inode(nr), what);
    if data.size == 0 || data.size > u64::from(core.state.geometry().block_size.get()) {
        return Err(bad("its target's length is impossible").into());
    }
    let mut target = vec![0; hectare_units::index_of(data.size)];
    if data.is_fast_symlink() {
        let len = target.len();
        target.copy_from_slice(&data.block[..len]);
    } else {
        drop(data);
        read::read_locked(core, inode, 0, &mut target)?;
    }
    Ok(target)
}
