//! Creates and links names; with what all changes of names share.
//!
//! These are the operations a mount needs, on inode numbers; the path-level API builds on them. Each takes
//! the operation lock of the directory, then those of the inodes it names, then opens a transaction; it
//! checks everything it can before the first change. (Lookups are in [`crate::names::lookup`], removing in
//! [`crate::names::remove`], renaming in [`crate::names::rename`].)
//!
//! Link counts: a directory has 2 plus one for each subdirectory; with `dir_nlink` an indexed directory that
//! would pass 65,000 has 1 from then on, which means "unknown".

use crate::attributes::xattr_store::{self, Plan};
use crate::attributes::{flags, freeing, stat};
use crate::data::{device, reclaim};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::names::directory::{DIR_CREDITS, DirMut, NameSpot};
use crate::names::node::{Creation, LINKS_MAX, NewNode, file_type, new_name};
use crate::names::{inline_directory, lookup};
use crate::space::map_edit::{MAP_CREDITS, MapMut};
use crate::space::piece::Use;
use crate::space::{ialloc, quota, reserve};
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphans::ORPHAN_CREDITS;
use crate::stores::quotas::Owners;
use hectare_ext4::casefold::Folding;
use hectare_ext4::dir::{self, DirWrite, Entry, Insert, Name};
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::inode::{BLOCK_BYTES, Inode, InodeFlags, Kind};
use hectare_ext4::map::MapKind;
use hectare_journal::Handle;
use hectare_units::{InodeNr, LogicalBlock, u64_of};
use std::sync::Arc;

/// Metadata blocks that making, linking or removing a name may dirty.
pub(crate) const NAME_CREDITS: u32 = 2 * DIR_CREDITS + 4 * MAP_CREDITS;

/// Returns an error for changes of names in a directory that is freed, forbids them or is of a form that
/// can't be written yet. The caller holds its operation lock.
pub(crate) fn check_directory_writable(core: &Core, dir: &CachedInode, deed: Deed) -> Result<()> {
    check_in_use(core, dir, deed)?;
    check_names_writable(core, dir.nr(), &dir.get())
}

/// Returns an error for changes of names in a directory that is freed or forbids them.
fn check_in_use(core: &Core, dir: &CachedInode, deed: Deed) -> Result<()> {
    core.check_takes_changes()?;
    let data = dir.get();
    if dir.is_freed() || data.links == 0 {
        return Err(Error::NotFound);
    }
    deed.check(data.flags, dir.nr())
}

/// Returns an error for changes of names in a directory of a form that can't be written yet.
pub(crate) fn check_names_writable(core: &Core, nr: InodeNr, data: &Inode) -> Result<()> {
    check_folding(core, nr, data)?;
    core.state.check_file_writable(data, nr)
}

fn check_folding(core: &Core, nr: InodeNr, data: &Inode) -> Result<()> {
    if data.flags.contains(InodeFlags::CASEFOLD) {
        if data.flags.contains(InodeFlags::ENCRYPT) {
            let what = format!("directory {nr} ignores case (casefold) and is encrypted");
            return Err(Error::Unsupported(format!("{what}: it can be read, but not changed")));
        }
        Folding::of(&core.state.sb)?;
    }
    Ok(())
}

/// Returns an error for removing names from a directory, which takes no key. The caller holds its operation
/// lock.
pub(crate) fn check_gives_names(core: &Core, dir: &CachedInode) -> Result<()> {
    check_in_use(core, dir, Deed::TakeName)?;
    let data = dir.get();
    check_folding(core, dir.nr(), &data)?;
    core.state.check_form_writable(&data)
}

/// Makes a file, directory, symbolic link, device, pipe or socket.
pub(crate) fn create(
    core: &Core,
    parent: InodeNr,
    name: &[u8],
    node: NewNode<'_>,
    creation: Creation,
) -> Result<InodeNr> {
    let name = new_name(name)?;
    match node {
        NewNode::Symlink(target) => check_target(core, target)?,
        NewNode::CharDevice(number) | NewNode::BlockDevice(number) if !number.fits() => {
            return Err(Error::Invalid("a device has a major below 4096 and a minor below 1048576"));
        }
        _ => {}
    }
    let dir = core.state.directory(parent)?;
    let made = reclaim::retry(core, || {
        let _operation = dir.lock().write();
        check_directory_writable(core, &dir, Deed::AddName)?;
        let spot = lookup::spot_locked(core, &dir, name)?;
        freeing::with_dropped(core, || create_locked(core, &dir, name, spot, node, creation))
    })?;
    core.sync_names_if_asked(&[&dir])?;
    Ok(made)
}

/// One more than the bytes of the longest target that Linux takes (`PATH_MAX`, with a NUL).
const TARGET_END: usize = 4096;

fn check_target(core: &Core, target: &[u8]) -> Result<()> {
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.contains(&0) {
        return Err(Error::Invalid("a symbolic link's target holds no NUL"));
    }
    if target.len() >= core.state.geometry().block_size.len().min(TARGET_END) {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

fn create_locked(
    core: &Core,
    dir: &Arc<CachedInode>,
    name: Name<'_>,
    spot: NameSpot,
    node: NewNode<'_>,
    creation: Creation,
) -> Result<InodeNr> {
    let kind = node.kind();
    if kind == Kind::Directory {
        check_subdirectory_fits(core, dir)?;
    }
    let prepared = prepare(core, dir, kind, creation)?;
    quota::prepare(core, Owners::of(&prepared.0))?;
    let mut handle = core.start(NAME_CREDITS + prepared.1.credits(core))?;
    let new = make_node(core, &mut handle, dir.nr(), node, prepared)?;
    if let Err(error) = add_name_at(core, &mut handle, dir, name, spot, new.nr(), kind) {
        discard_new(core, &mut handle, &new)?;
        return Err(error);
    }
    if kind == Kind::Directory {
        change_subdirectories(core, &mut handle, dir, 1);
    }
    Ok(new.nr())
}

/// Makes an inode that has no name yet: to be named, or discarded, in the same transaction.
pub(crate) fn make_node(
    core: &Core,
    handle: &mut Handle<'_>,
    parent: InodeNr,
    node: NewNode<'_>,
    (inode, plan): Prepared,
) -> Result<Arc<CachedInode>> {
    let new = ialloc::new_inode(core, handle, parent, inode)?;
    if let Err(error) = fill_node(core, handle, &new, parent, node, plan) {
        discard_new(core, handle, &new)?;
        return Err(error);
    }
    Ok(new)
}

/// An inode to be made, and the attributes that it inherits.
pub(crate) type Prepared = (Inode, Plan);

/// The inode to be made, with what it inherits.
pub(crate) fn prepare(core: &Core, dir: &CachedInode, kind: Kind, creation: Creation) -> Result<Prepared> {
    stat::check_owners(Some(creation.uid), Some(creation.gid))?;
    let parent = dir.get();
    let wanted = kind.mode_bits() | (creation.permissions & 0o7777);
    let (mut mode, attrs) = if kind == Kind::Symlink {
        (kind.mode_bits() | 0o777, Vec::new())
    } else {
        xattr_store::inherited_acl(core, dir.nr(), &parent, (wanted, creation.umask & 0o777))?
    };
    let pass_group = parent.permissions() & 0o2000 != 0;
    if pass_group && kind == Kind::Directory {
        mode |= 0o2000;
    }
    let mut inode = Inode::new(mode, core.state.now(), 0, &core.state.sb);
    inode.uid = creation.uid;
    inode.gid = if pass_group { parent.gid } else { creation.gid };
    inode.flags = flags::inherited(parent.flags, kind);
    inode.projid = flags::inherited_project(core, &parent);
    inode.links = 1;
    if matches!(kind, Kind::File | Kind::Directory) {
        init_map(core, &mut inode);
    }
    let plan = Plan::first(core, &inode, attrs)?;
    Ok((inode, plan))
}

/// Gives an inode an empty map, of the kind that files of the volume get.
fn init_map(core: &Core, inode: &mut Inode) {
    let kind = core.state.map_of_new();
    inode.flags.set(InodeFlags::EXTENTS, kind == MapKind::Extents);
    inode.block = kind.empty_root();
}

pub(crate) fn fill_node(
    core: &Core,
    handle: &mut Handle<'_>,
    new: &Arc<CachedInode>,
    parent: InodeNr,
    node: NewNode<'_>,
    plan: Plan,
) -> Result<()> {
    if !plan.is_empty() {
        xattr_store::store(core, handle, new, plan)?;
    }
    let mut data = new.edit(handle, &core.state.inodes);
    match node {
        NewNode::Directory => {
            data.links = 2;
            if core.state.incompat(Incompat::INLINE_DATA)
                && inline_directory::make(new.nr(), &mut data, parent)?
            {
                return Ok(());
            }
            let mut store = DirMut { core, handle, nr: new.nr(), inode: &mut data };
            let at = store.append()?;
            let format = store.format();
            store.edit(at, |block| dir::leaf::init_dots(block, &format, new.nr(), parent))
        }
        NewNode::Symlink(target) => fill_symlink(core, handle, new.nr(), &mut data, target),
        NewNode::CharDevice(number) | NewNode::BlockDevice(number) => {
            data.set_device_number(number);
            Ok(())
        }
        NewNode::File | NewNode::Fifo | NewNode::Socket => Ok(()),
    }
}

/// Long targets go to a block, on volumes with inline data as well: e2fsck (1.47) overlooks the attribute
/// block of a link in its inode, and does not count it for quotas.
fn fill_symlink(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    target: &[u8],
) -> Result<()> {
    data.size = u64_of(target.len());
    if target.len() < BLOCK_BYTES {
        data.block[..target.len()].copy_from_slice(target);
        return Ok(());
    }
    init_map(core, data);
    let piece = reserve::reserve_for(core, nr, data, LogicalBlock::ZERO, 1, Use::Names)?;
    let size = core.state.geometry().block_size;
    let mut block = vec![0; size.len()];
    block[..target.len()].copy_from_slice(target);
    device::write_data(core, piece.extent.physical.offset(size), &block)?;
    MapMut { core, handle, nr, inode: data }.publish(piece, false)?;
    Ok(())
}

/// Adds a name to a directory, and stamps the directory.
pub(crate) fn add_name(
    core: &Core,
    handle: &mut Handle<'_>,
    dir: &Arc<CachedInode>,
    name: Name<'_>,
    inode: InodeNr,
    kind: Kind,
) -> Result<()> {
    let spot = lookup::spot_locked(core, dir, name)?;
    add_name_at(core, handle, dir, name, spot, inode, kind)
}

/// Adds a name where [`crate::names::lookup::spot_locked`] found its place, and stamps the directory, whose
/// operation lock has been held since.
fn add_name_at(
    core: &Core,
    handle: &mut Handle<'_>,
    dir: &Arc<CachedInode>,
    name: Name<'_>,
    spot: NameSpot,
    inode: InodeNr,
    kind: Kind,
) -> Result<()> {
    let mut data = dir.edit(handle, &core.state.inodes);
    let entry = Entry { name, inode, file_type: file_type(kind) };
    let inserted = if data.is_inline() {
        inline_directory::add(core, handle, dir.nr(), &mut data, &entry)?
    } else {
        let mut store = DirMut { core, handle, nr: dir.nr(), inode: &mut data };
        let format = store.format();
        dir::insert_at(&mut store, &format, spot, &entry)?
    };
    match inserted {
        Insert::Done => {}
        Insert::Exists => return Err(Error::Exists),
        Insert::IndexFull => return Err(Error::DirectoryFull),
    }
    core.state.stamp(&mut data);
    Ok(())
}

/// Removes a name from a directory, and stamps the directory.
pub(crate) fn take_name(
    core: &Core,
    handle: &mut Handle<'_>,
    dir: &Arc<CachedInode>,
    name: Name<'_>,
) -> Result<()> {
    let mut data = dir.edit(handle, &core.state.inodes);
    if data.is_inline() {
        inline_directory::take(core, dir.nr(), &mut data, name)?;
    } else {
        let mut store = DirMut { core, handle, nr: dir.nr(), inode: &mut data };
        let format = store.format();
        dir::remove(&mut store, &format, name)?.ok_or(Error::NotFound)?;
    }
    core.state.stamp(&mut data);
    Ok(())
}

/// Undoes the making of an inode that got no name. It has at most one block of content.
pub(crate) fn discard_new(core: &Core, handle: &mut Handle<'_>, new: &Arc<CachedInode>) -> Result<()> {
    freeing::let_values_go_at_once(core, handle, new)?;
    let mut data = new.edit(handle, &core.state.inodes);
    xattr_store::leave_attribute_block(core, handle, &mut data)?;
    if data.is_mapped() {
        let mut map = MapMut { core, handle, nr: new.nr(), inode: &mut data };
        let _ = map.remove(LogicalBlock::ZERO, 1 << 32)?;
    }
    drop(data);
    ialloc::free_inode(core, handle, new)
}

/// Returns an error for another subdirectory where the link count can't hold it.
pub(crate) fn check_subdirectory_fits(core: &Core, dir: &CachedInode) -> Result<()> {
    let data = dir.get();
    let unlimited =
        core.state.sb.features().ro_compat.contains(RoCompat::DIR_NLINK) && core.state.dir_format.index;
    if data.links >= LINKS_MAX && !unlimited { Err(Error::TooManyLinks) } else { Ok(()) }
}

/// Counts one subdirectory more (1) or less (-1).
pub(crate) fn change_subdirectories(core: &Core, handle: &mut Handle<'_>, dir: &Arc<CachedInode>, by: i8) {
    let mut data = dir.edit(handle, &core.state.inodes);
    data.links = match (data.links, by) {
        (1, _) => 1, // beyond counting
        (links, 1) if links >= LINKS_MAX => 1,
        (links, 1) => links + 1,
        (links, _) => links.saturating_sub(1).max(2),
    };
}

/// Gives a file another name, or one that was made without a name its first.
pub(crate) fn link(core: &Core, inode: InodeNr, parent: InodeNr, name: &[u8]) -> Result<()> {
    let name = new_name(name)?;
    let dir = core.state.directory(parent)?;
    let target = core.state.inode(inode)?;
    let kind = target.get().kind().ok_or(Error::NotFound)?;
    reclaim::retry(core, || {
        let _dir = dir.lock().write();
        check_directory_writable(core, &dir, Deed::AddName)?;
        let spot = lookup::spot_locked(core, &dir, name)?;
        // After the name, as in the kernel, and before its lock, which may be the one that is held.
        if kind == Kind::Directory {
            return Err(Error::LinkToDirectory);
        }
        let _file = target.lock().write();
        core.check_changeable(&target)?;
        flags::check_same_project(&dir, &target)?;
        let links = target.get().links;
        if links == 0 && !target.is_linkable() {
            return Err(Error::NotFound);
        }
        if links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let mut handle = core.start(NAME_CREDITS + ORPHAN_CREDITS)?;
        add_name_at(core, &mut handle, &dir, name, spot, inode, kind)?;
        if links == 0 {
            core.state.remove_orphan(&mut handle, inode);
            core.state.nameless.lock().remove(&inode);
            target.set_linkable(false);
        }
        let mut data = target.edit(&mut handle, &core.state.inodes);
        data.links += 1;
        data.ctime = core.state.now();
        Ok(())
    })?;
    core.sync_names_if_asked(&[&dir])
}
