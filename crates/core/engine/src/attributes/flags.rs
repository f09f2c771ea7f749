//! An inode's flags and project for programs (`chattr`, `FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`).
//!
//! Some flags describe how the inode is stored; those are shown and can't be set. The flags that can be set
//! and have an effect here: immutable and append-only ([`crate::immutable`]), the top of a tree for the
//! placement of directories, inheriting the project, `SYNC` (content and attributes are durable when a change
//! of them returns) and `DIRSYNC` (so are names). `NOATIME` and `NODUMP` are for programs that keep access
//! times or dump. `JOURNAL_DATA` sends content through the journal ([`crate::data::journalled`]). The others
//! are stored as set. `EXTENTS` brings the map of a file to extents or back to blocks
//! ([`crate::space::map_convert`]). `CASEFOLD`, for directories that are empty, makes case not matter in them.
//!
//! A project is a number that space is accounted to. Directories with `PROJINHERIT` hold one project's files
//! only: new files inherit it, and links and renames from other projects are refused
//! ([`check_same_project`]).
//!
//! Format facts: the kernel's `include/uapi/linux/fs.h` numbers, and which flags ext4 shows and accepts, as
//! the running kernel does (tested).

use crate::attributes::stat;
use crate::caller::{self, Caller, Capabilities};
use crate::data::{journalled, reclaim, writeback};
use crate::error::{Error, Result};
use crate::space::map_convert;
use crate::space::map_edit::MAP_CREDITS;
use crate::space::quota;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use crate::stores::quotas::Owners;
use hectare_ext4::casefold::Folding;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_units::InodeNr;

/// Flags that can be set, where the kind of inode allows them. One of them has no name any more: it marked
/// files with blocks beyond their end.
const MODIFIABLE: InodeFlags = InodeFlags::from_bits_retain(0x624b_c0ff);

/// Flags that are shown.
const VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725b_dfff);

/// Flags for directories only.
const OF_DIRECTORIES: InodeFlags =
    InodeFlags::DIRSYNC.union(InodeFlags::TOPDIR).union(InodeFlags::CASEFOLD).union(InodeFlags::PROJINHERIT);

/// Flags for inodes without content.
const OF_ANY: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// Flags with their numbers in `fsx_xflags`.
const XFLAGS: [(InodeFlags, u32); 7] = [
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::PROJINHERIT, 0x200),
    (InodeFlags::DAX, 0x8000),
];

/// The project of an inode; 0 on a volume without projects.
pub(crate) fn project(core: &Core, nr: InodeNr) -> Result<u32> {
    let inode = core.state.inode(nr)?;
    let project = inode.get().projid;
    Ok(if has_projects(core) { project } else { 0 })
}

/// Returns an error for a directory that is not empty, of whose names the floor above knows.
pub(crate) type CheckEmpty = fn(&Core, &CachedInode) -> Result<()>;

pub(crate) fn change_flags(
    core: &Core,
    nr: InodeNr,
    flags: Option<InodeFlags>,
    project: Option<u32>,
    caller: &Caller<'_>,
    check_empty: CheckEmpty,
) -> Result<()> {
    let inode = core.state.inode(nr)?;
    reclaim::retry(core, || {
        let _operation = inode.lock().write();
        core.check_takes_changes()?;
        inode.check_alive()?;
        let (flags, project) = check_flags(core, &inode, flags, project, caller)?;
        if (inode.get().flags ^ flags).contains(InodeFlags::CASEFOLD) {
            check_folding(core, &inode)?;
            check_empty(core, &inode)?;
        }
        // The buffered bytes were written while that was allowed.
        writeback::place_locked(core, &inode)?;
        if !flags.contains(InodeFlags::JOURNAL_DATA) {
            journalled::end_data_journalling(core, &inode)?;
        }
        if (flags ^ inode.get().flags).contains(InodeFlags::EXTENTS) {
            map_convert::convert(core, &inode)?;
        }
        let quota =
            caller::on_behalf(caller, || stat::prepare_owners(core, &inode, |data| data.projid = project))?;
        let mut handle = core.start(MAP_CREDITS)?;
        let values = stat::values_to_move(core, &inode, quota.as_ref())?;
        let mut data = inode.edit(&mut handle, &core.state.inodes);
        let before = Owners::of(&data);
        data.flags = flags;
        data.projid = project;
        core.state.move_values(nr, before, &data, values);
        if let Some(claim) = quota {
            claim.settle(nr);
        }
        data.ctime = core.state.now();
        data.version = data.version.wrapping_add(1);
        Ok(())
    })?;
    core.sync_if_asked(&inode)
}

/// The flags and the project that the inode is to have, if `caller` may set them.
fn check_flags(
    core: &Core,
    inode: &CachedInode,
    flags: Option<InodeFlags>,
    project: Option<u32>,
    caller: &Caller<'_>,
) -> Result<(InodeFlags, u32)> {
    let data = inode.get();
    if !caller.acts_as(data.uid) {
        return Err(Error::NotPermitted("only its owner may change the flags of an inode"));
    }
    let flags = match flags {
        Some(flags) => settable(&data, flags, caller)?,
        None => data.flags,
    };
    let project = match project {
        Some(project) if project != data.projid => check_project(core, &data, project)?,
        _ => data.projid,
    };
    let stays = data.flags & flags & InodeFlags::IMMUTABLE;
    if !stays.is_empty() && (flags != data.flags || project != data.projid) {
        return Err(Error::Immutable(inode.nr()));
    }
    Ok((flags, project))
}

/// The new flags of an inode, if they may be set to `wanted`.
fn settable(data: &Inode, wanted: InodeFlags, caller: &Caller<'_>) -> Result<InodeFlags> {
    let refuse = |what: &str| Err(Error::Unsupported(what.into()));
    if !VISIBLE.contains(wanted) {
        return refuse("the flags name some that ext4 does not have");
    }
    let kind = data.kind().ok_or(Error::NotFound)?;
    let wanted = wanted & MODIFIABLE;
    if possible(wanted, kind) != wanted {
        return refuse("the flags name some that this kind of inode can't have");
    }
    let changed = (data.flags ^ wanted) & MODIFIABLE;
    let protecting = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if changed.intersects(protecting) && !caller.may(Capabilities::LINUX_IMMUTABLE) {
        return Err(Error::NotPermitted("changing immutable or append-only requires CAP_LINUX_IMMUTABLE"));
    }
    if changed.contains(InodeFlags::JOURNAL_DATA) && !caller.may(Capabilities::SYS_RESOURCE) {
        return Err(Error::NotPermitted("changing the data journalling flag requires CAP_SYS_RESOURCE"));
    }
    if changed.contains(InodeFlags::EXTENTS) && !data.is_mapped() {
        return refuse("it has no map that could be made of extents or blocks");
    }
    Ok((data.flags - MODIFIABLE) | wanted)
}

/// Returns an error for a directory in which it can't change whether case matters.
fn check_folding(core: &Core, dir: &CachedInode) -> Result<()> {
    if Folding::of(&core.state.sb)?.is_none() {
        let what = "the volume has no directories that ignore case (feature 'casefold')";
        return Err(Error::Unsupported(what.into()));
    }
    if dir.get().flags.contains(InodeFlags::ENCRYPT) {
        let what = format!("directory {} is encrypted: whether case matters in it can't change", dir.nr());
        return Err(Error::Unsupported(what));
    }
    Ok(())
}

fn check_project(core: &Core, data: &Inode, project: u32) -> Result<u32> {
    if !has_projects(core) {
        return Err(Error::Unsupported("the volume has no projects (feature 'project')".into()));
    }
    if !data.has_project() {
        return Err(Error::Unsupported("the inode is too small to hold a project".into()));
    }
    quota::check_id(project)?;
    Ok(project)
}

/// Whether inodes belong to projects.
fn has_projects(core: &Core) -> bool {
    core.state.sb.features().ro_compat.contains(RoCompat::PROJECT)
}

/// The project of a new file in a directory.
pub(crate) fn inherited_project(core: &Core, parent: &Inode) -> u32 {
    let passes = has_projects(core) && parent.flags.contains(InodeFlags::PROJINHERIT);
    if passes { parent.projid } else { 0 }
}

/// Returns an error for naming an inode in a directory that holds another project's files.
pub(crate) fn check_same_project(dir: &CachedInode, inode: &CachedInode) -> Result<()> {
    let (dir, inode) = (
        {
            let dir = dir.get();
            (dir.flags, dir.projid)
        },
        inode.get().projid,
    );
    let apart = dir.0.contains(InodeFlags::PROJINHERIT) && dir.1 != inode;
    if apart { Err(Error::OtherProject) } else { Ok(()) }
}

/// The flags of an inode that programs see.
pub(crate) fn inode_flags(inode: &CachedInode) -> InodeFlags {
    let data = inode.get();
    let hidden = if data.kind() == Some(Kind::File) { InodeFlags::PROJINHERIT } else { InodeFlags::empty() };
    (data.flags & VISIBLE) - hidden
}

/// Sets or clears the flag that sends a file's content through the journal whatever the mode (`chattr
/// +j`, `chattr -j`). New files inherit it from a directory. Clearing it on a file takes a commit and a
/// checkpoint.
pub(crate) fn set_journal_data(core: &Core, nr: InodeNr, on: bool, check_empty: CheckEmpty) -> Result<()> {
    let mut flags = inode_flags(&*core.state.inode(nr)?);
    flags.set(InodeFlags::JOURNAL_DATA, on);
    change_flags(core, nr, Some(flags), None, &Caller::ROOT, check_empty)
}

/// The flags among these as `FS_IOC_FSGETXATTR` numbers them (`fsx_xflags`).
#[must_use]
pub fn to_xflags(flags: InodeFlags) -> u32 {
    XFLAGS.iter().filter(|(flag, _)| flags.contains(*flag)).fold(0, |bits, (_, bit)| bits | bit)
}

/// `flags` after setting those that `FS_IOC_FSSETXATTR` can name to `xflags`; the others stay.
///
/// # Errors
/// [`Error::Unsupported`] for bits that ext4 has no flag for.
pub fn with_xflags(mut flags: InodeFlags, xflags: u32) -> Result<InodeFlags> {
    let known = XFLAGS.iter().fold(0, |bits, (_, bit)| bits | bit);
    if xflags & !known != 0 {
        return Err(Error::Unsupported(format!("ext4 has no flags for {:#x}", xflags & !known)));
    }
    for (flag, bit) in XFLAGS {
        flags.set(flag, xflags & bit != 0);
    }
    Ok(flags)
}

/// The flags that a new inode inherits from its directory: a file all except those for directories only,
/// others only those that any inode can have.
pub(crate) fn inherited(parent: InodeFlags, kind: Kind) -> InodeFlags {
    possible(parent & InodeFlags::INHERITED, kind)
}

/// The subset of the flags that an inode of a kind can have.
fn possible(flags: InodeFlags, kind: Kind) -> InodeFlags {
    match kind {
        Kind::Directory => flags,
        Kind::File => flags - OF_DIRECTORIES,
        _ => flags & OF_ANY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xflags_go_there_and_back() {
        let flags = InodeFlags::APPEND | InodeFlags::NODUMP | InodeFlags::EXTENTS;
        assert_eq!(to_xflags(flags), 0x90);
        let set = with_xflags(flags, 0x208).unwrap();
        assert_eq!(set, InodeFlags::IMMUTABLE | InodeFlags::PROJINHERIT | InodeFlags::EXTENTS);
        assert!(matches!(with_xflags(flags, 0x1), Err(Error::Unsupported(_))));
    }

    #[test]
    fn an_inode_inherits_what_its_kind_can_have() {
        let parent = InodeFlags::DIRSYNC | InodeFlags::NOATIME | InodeFlags::SYNC | InodeFlags::TOPDIR;
        let inherits = |kind| inherited(parent, kind);
        assert_eq!(inherits(Kind::Directory), parent - InodeFlags::TOPDIR);
        assert_eq!(inherits(Kind::File), InodeFlags::NOATIME | InodeFlags::SYNC);
        assert_eq!(inherits(Kind::Fifo), InodeFlags::NOATIME);
    }
}
