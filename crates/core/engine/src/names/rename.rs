//! Renames: the one operation on two directories and up to two inodes at once.
//!
//! Lock order: the volume's rename lock if the directories differ (so that the hierarchy does not change),
//! the directories (the one above first, else the lower number), then the inodes named (lower number first).

use crate::attributes::freeing::DROP_CREDITS;
use crate::attributes::{flags, freeing};
use crate::data::{reclaim, writeback};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::names::create::NAME_CREDITS;
use crate::names::directory::{DIR_CREDITS, DirMut, DirRef};
use crate::names::node::{Creation, NewNode, file_type, new_name};
use crate::names::{create, inline_directory, lookup, remove};
use crate::space::quota;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use crate::stores::quotas::Owners;
use hectare_ext4::casefold;
use hectare_ext4::dir::{self, Name};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::{DeviceNumber, InodeFlags, Kind};
use hectare_journal::Handle;
use hectare_units::InodeNr;
use std::sync::Arc;

/// What a rename does if the new name exists, and leaves under the old one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// The new name's inode loses that name.
    #[default]
    Replace,
    /// The new name must not exist (`RENAME_NOREPLACE`).
    NoReplace,
    /// Both names must exist, and swap their inodes (`RENAME_EXCHANGE`).
    Exchange,
    /// A character device 0:0 is left under the old name (`RENAME_WHITEOUT`).
    Whiteout {
        /// Its owner.
        uid: u32,
        /// Its group, unless the directory passes on its own.
        gid: u32,
        /// As `Replace`; else as `NoReplace`.
        replaces: bool,
    },
}

impl RenameMode {
    /// As `Replace`, leaving root's whiteout.
    pub const WHITEOUT: Self = Self::Whiteout { uid: 0, gid: 0, replaces: true };
}

/// The node that `Whiteout` leaves.
const WHITEOUT: NewNode<'_> = NewNode::CharDevice(DeviceNumber { major: 0, minor: 0 });

/// How deep directories may nest before a chain of ".." is taken for a loop.
const DEPTH_MAX: usize = 1 << 20;

/// Blocks that pointing a name, or "..", at another inode dirties: the block, and the inodes of the
/// directory, of the named inode and of a parent.
const POINT_CREDITS: u32 = 4;

/// Blocks that swapping the inodes of two names dirties.
const EXCHANGE_CREDITS: u32 = 4 * POINT_CREDITS;

/// Blocks that making a whiteout dirties: an inode, its bitmap and descriptor, and the same of an attribute
/// block.
const WHITEOUT_CREDITS: u32 = 8;

/// Blocks that renaming dirties, without those for freeing the inode that the new name led to.
const RENAME_CREDITS: u32 = DIR_CREDITS + 3 * POINT_CREDITS + WHITEOUT_CREDITS + DROP_CREDITS;

/// Blocks that freeing that inode's content in the same transaction may dirty.
const AT_ONCE_CREDITS: u32 = 24;

const _: () = assert!(RENAME_CREDITS + AT_ONCE_CREDITS < 200);

struct Side<'a> {
    dir: &'a Arc<CachedInode>,
    name: Name<'a>,
}

/// The ancestors of the old and the new parent, themselves included.
struct Ancestry {
    from: Vec<InodeNr>,
    to: Vec<InodeNr>,
}

/// Gives an inode another name, in the same or another directory.
pub(crate) fn rename(
    core: &Core,
    parent: InodeNr,
    name: &[u8],
    new_parent: InodeNr,
    new: &[u8],
    mode: RenameMode,
) -> Result<()> {
    let (name, new) = (rename_name(name)?, rename_name(new)?);
    let (from, to) = (core.state.directory(parent)?, core.state.directory(new_parent)?);
    reclaim::retry(core, || {
        let (from, to) = (Side { dir: &from, name }, Side { dir: &to, name: new });
        if parent == new_parent {
            let _dir = from.dir.lock().write();
            return rename_locked(core, &from, &to, mode, None);
        }
        let _renames = core.state.rename_lock.lock();
        let (from_first, ancestry) = lock_order(core, parent, new_parent)?;
        let (first, second) = if from_first { (&from, &to) } else { (&to, &from) };
        let _first = first.dir.lock().write();
        let _second = second.dir.lock().write();
        rename_locked(core, &from, &to, mode, Some(&ancestry))
    })?;
    core.sync_names_if_asked(&[&from, &to])
}

/// Whether the first of two directories is to be locked first, and the ancestors of both, each from
/// itself up.
fn lock_order(core: &Core, a: InodeNr, b: InodeNr) -> Result<(bool, Ancestry)> {
    let ancestry = Ancestry { from: ancestors(core, a)?, to: ancestors(core, b)? };
    let a_first = if ancestry.to.contains(&a) {
        true
    } else if ancestry.from.contains(&b) {
        false
    } else {
        a < b
    };
    Ok((a_first, ancestry))
}

/// A directory and all its ancestors. The caller holds the rename lock.
fn ancestors(core: &Core, nr: InodeNr) -> Result<Vec<InodeNr>> {
    let mut chain = vec![nr];
    let mut at = nr;
    while at != InodeNr::ROOT {
        at = lookup::lookup(core, at, b"..")?;
        if chain.len() > DEPTH_MAX || chain.contains(&at) {
            return Err(Corrupt::new("the directory", Place::Inode(nr), "its parents form a loop").into());
        }
        chain.push(at);
    }
    Ok(chain)
}

fn rename_locked(
    core: &Core,
    from: &Side<'_>,
    to: &Side<'_>,
    mode: RenameMode,
    above: Option<&Ancestry>,
) -> Result<()> {
    create::check_directory_writable(core, from.dir, Deed::TakeName)?;
    let target = lookup::lookup_locked(core, to.dir, to.name)?;
    let deed = if target.is_some() { Deed::TakeName } else { Deed::AddName };
    create::check_directory_writable(core, to.dir, deed)?;
    let source = lookup::lookup_locked(core, from.dir, from.name)?.ok_or(Error::NotFound)?;
    match (mode, target) {
        (RenameMode::NoReplace | RenameMode::Whiteout { replaces: false, .. }, Some(_)) => {
            return Err(Error::Exists);
        }
        (RenameMode::Exchange, None) => return Err(Error::NotFound),
        _ => {}
    }
    if target == Some(source) {
        if from.dir.nr() == to.dir.nr() && recases(from, to, mode) {
            return recase(core, from, to, source);
        }
        return Ok(()); // two names of one inode, or one name: nothing to do
    }
    for (nr, dir) in [(Some(source), from.dir), (target, to.dir)] {
        if nr == Some(dir.nr()) {
            return Err(Corrupt::new("the directory", Place::Inode(dir.nr()), "it holds itself").into());
        }
    }
    let under = |nr| above.is_some_and(|above| above.to.contains(&nr));
    if under(source) || source == to.dir.nr() {
        return Err(Error::Invalid("a directory can't be moved into itself"));
    }
    if let Some(target) = target
        && (above.is_some_and(|above| above.from.contains(&target)) || target == from.dir.nr())
    {
        let loops = mode == RenameMode::Exchange;
        return Err(if loops {
            Error::Invalid("a directory can't be moved into itself")
        } else {
            Error::NotEmpty
        });
    }
    let source = core.state.inode(source)?;
    let target = target.map(|nr| core.state.inode(nr)).transpose()?;
    let mut order: Vec<&Arc<CachedInode>> = std::iter::once(&source).chain(&target).collect();
    // A directory is locked before what it may name, and either may have the lower number.
    order.sort_unstable_by_key(|inode| (inode.get().kind() != Some(Kind::Directory), inode.nr()));
    let _held: Vec<_> = order.iter().map(|inode| inode.lock().write()).collect();
    match (&target, mode) {
        (Some(target), RenameMode::Exchange) => exchange(core, from, to, &source, target),
        (target, mode) => replace(core, from, to, &source, target.as_ref(), mode),
    }
}

/// Whether both are spellings of one name, where case does not matter, and differ.
fn recases(from: &Side<'_>, to: &Side<'_>, mode: RenameMode) -> bool {
    let folds = from.dir.get().flags.contains(InodeFlags::CASEFOLD);
    let differ = from.name != to.name && casefold::alike(from.name.bytes(), to.name.bytes());
    mode == RenameMode::Replace && folds && differ
}

/// Spells a name anew.
fn recase(core: &Core, from: &Side<'_>, to: &Side<'_>, nr: InodeNr) -> Result<()> {
    let inode = core.state.inode(nr)?;
    let _inode = inode.lock().write();
    core.check_changeable(&inode)?;
    let kind = kind_of(&inode)?;
    let stored = lookup::stored_name(core, from.dir, from.name)?;
    let old = Name::opaque(&stored).ok_or(Error::NotFound)?;
    let mut handle = core.start(NAME_CREDITS)?;
    create::take_name(core, &mut handle, from.dir, old)?;
    if let Err(error) = create::add_name(core, &mut handle, to.dir, to.name, nr, kind) {
        // It has left the room that it needs.
        create::add_name(core, &mut handle, from.dir, old, nr, kind)?;
        return Err(error);
    }
    inode.edit(&mut handle, &core.state.inodes).ctime = core.state.now();
    Ok(())
}

fn replace(
    core: &Core,
    from: &Side<'_>,
    to: &Side<'_>,
    source: &Arc<CachedInode>,
    target: Option<&Arc<CachedInode>>,
    mode: RenameMode,
) -> Result<()> {
    core.check_changeable(source)?;
    flags::check_same_project(to.dir, source)?;
    let kind = kind_of(source)?;
    let moves_directory = kind == Kind::Directory && from.dir.nr() != to.dir.nr();
    check_rows(core, from.dir)?;
    if moves_directory {
        check_movable(core, source)?;
    }
    if let Some(target) = target {
        check_replaceable(core, kind, target)?;
        // A program that replaces a file by a new one expects one of the two after a crash, not an empty
        // file.
        let _ = writeback::place_locked(core, source);
    } else if moves_directory {
        create::check_subdirectory_fits(core, to.dir)?;
    }
    let whiteout = match mode {
        RenameMode::Whiteout { uid, gid, .. } => Some(create::prepare(
            core,
            from.dir,
            Kind::CharDevice,
            Creation { permissions: 0, umask: 0, uid, gid },
        )?),
        _ => None,
    };
    if let Some((inode, _)) = &whiteout {
        quota::prepare(core, Owners::of(inode))?;
    }
    let left_credits = whiteout.as_ref().map_or(0, |(_, plan)| plan.credits(core));
    let at_once = target.map_or(Ok(None), |target| freeing::at_once(core, target.nr(), &target.get()))?;
    let at_once = at_once.filter(|credits| *credits <= AT_ONCE_CREDITS);
    let mut handle = core.start(RENAME_CREDITS + at_once.unwrap_or(0) + left_credits)?;
    // What may find no space comes first.
    let left = whiteout
        .map(|inode| create::make_node(core, &mut handle, from.dir.nr(), WHITEOUT, inode))
        .transpose()?;
    match target {
        Some(target) => {
            point_name(core, &mut handle, to, source.nr(), kind)?;
            remove::drop_link(core, &mut handle, to.dir, target);
        }
        None => {
            if let Err(error) = create::add_name(core, &mut handle, to.dir, to.name, source.nr(), kind) {
                left.map_or(Ok(()), |left| create::discard_new(core, &mut handle, &left))?;
                return Err(error);
            }
        }
    }
    match left {
        Some(left) => point_name(core, &mut handle, from, left.nr(), Kind::CharDevice)?,
        None => create::take_name(core, &mut handle, from.dir, from.name)?,
    }
    if moves_directory {
        move_dot_dot(core, &mut handle, source, from.dir, to.dir)?;
    }
    source.edit(&mut handle, &core.state.inodes).ctime = core.state.now();
    let Some(target) = target else { return Ok(()) };
    let dropped = remove::drop_unnamed(core, &mut handle, target, at_once.is_some())?;
    handle.stop();
    remove::finish_drop(core, target, dropped)
}

fn check_replaceable(core: &Core, kind: Kind, target: &CachedInode) -> Result<()> {
    core.check_changeable(target)?;
    match (kind == Kind::Directory, kind_of(target)? == Kind::Directory) {
        (true, false) => return Err(Error::NotADirectory),
        (false, true) => return Err(Error::IsADirectory),
        (true, true) => remove::check_empty(core, target)?,
        (false, false) => {}
    }
    remove::check_removable(core, target)
}

fn exchange(
    core: &Core,
    from: &Side<'_>,
    to: &Side<'_>,
    source: &Arc<CachedInode>,
    target: &Arc<CachedInode>,
) -> Result<()> {
    core.check_changeable(source)?;
    core.check_changeable(target)?;
    flags::check_same_project(to.dir, source)?;
    flags::check_same_project(from.dir, target)?;
    let (source_kind, target_kind) = (kind_of(source)?, kind_of(target)?);
    let apart = from.dir.nr() != to.dir.nr();
    let moved = [
        (source, source_kind == Kind::Directory && apart, from.dir, to.dir),
        (target, target_kind == Kind::Directory && apart, to.dir, from.dir),
    ];
    for (inode, moves, old, _) in moved {
        check_rows(core, old)?;
        if moves {
            check_movable(core, inode)?;
        }
    }
    let mut handle = core.start(EXCHANGE_CREDITS)?;
    point_name(core, &mut handle, to, source.nr(), source_kind)?;
    point_name(core, &mut handle, from, target.nr(), target_kind)?;
    for (inode, moves, old, new) in moved {
        if moves {
            move_dot_dot(core, &mut handle, inode, old, new)?;
        }
        inode.edit(&mut handle, &core.state.inodes).ctime = core.state.now();
    }
    Ok(())
}

/// Returns an error for a directory in its inode of which a name can't be changed, since other rows are corrupt:
/// before another directory is changed.
fn check_rows(core: &Core, dir: &CachedInode) -> Result<()> {
    let data = dir.get();
    if data.is_inline() {
        DirRef { state: &core.state, nr: dir.nr(), inode: &data }.inline_rows()?;
    }
    Ok(())
}

/// Returns an error for a directory that can't be moved, since its ".." can't be changed.
fn check_movable(core: &Core, dir: &CachedInode) -> Result<()> {
    core.state.check_file_writable(&dir.get(), dir.nr())?;
    check_rows(core, dir)?;
    lookup::lookup_locked(core, dir, Name::DOT_DOT)?.ok_or_else(|| lacks_dot_dot(dir)).map(drop)
}

fn lacks_dot_dot(dir: &CachedInode) -> Error {
    Corrupt::new("the directory", Place::Inode(dir.nr()), "it has no '..'").into()
}

/// Points an existing name at another inode.
fn point_name(
    core: &Core,
    handle: &mut Handle<'_>,
    side: &Side<'_>,
    inode: InodeNr,
    kind: Kind,
) -> Result<()> {
    let mut data = side.dir.edit(handle, &core.state.inodes);
    if data.is_inline() {
        inline_directory::point(core, side.dir.nr(), &mut data, side.name, (inode, file_type(kind)))?;
    } else {
        let mut store = DirMut { core, handle, nr: side.dir.nr(), inode: &mut data };
        let format = store.format();
        dir::replace(&mut store, &format, side.name, inode, file_type(kind))?.ok_or(Error::NotFound)?;
    }
    core.state.stamp(&mut data);
    Ok(())
}

/// Points a moved directory's ".." at its new parent, and counts it there.
fn move_dot_dot(
    core: &Core,
    handle: &mut Handle<'_>,
    dir: &Arc<CachedInode>,
    old: &Arc<CachedInode>,
    new: &Arc<CachedInode>,
) -> Result<()> {
    let mut data = dir.edit(handle, &core.state.inodes);
    let to = (new.nr(), file_type(Kind::Directory));
    if data.is_inline() {
        inline_directory::point(core, dir.nr(), &mut data, Name::DOT_DOT, to)?;
    } else {
        let mut store = DirMut { core, handle, nr: dir.nr(), inode: &mut data };
        let format = store.format();
        dir::replace(&mut store, &format, Name::DOT_DOT, to.0, to.1)?.ok_or_else(|| lacks_dot_dot(dir))?;
    }
    drop(data);
    create::change_subdirectories(core, handle, old, -1);
    create::change_subdirectories(core, handle, new, 1);
    Ok(())
}

fn kind_of(inode: &CachedInode) -> Result<Kind> {
    inode.get().kind().ok_or(Error::NotFound)
}

fn rename_name(name: &[u8]) -> Result<Name<'_>> {
    match new_name(name) {
        Err(Error::Exists) => Err(Error::Busy("'.' and '..' can't be renamed")),
        other => other,
    }
}
