//! An inode's flags and project for programs (`chattr`, `FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`).
//!
//! Some flags describe how the inode is stored; those are shown and can't be set. The flags that can be set
//! and have an effect here: immutable and append-only ([`crate::immutable`]), the top of a tree for the
//! placement of directories, inheriting the project, `SYNC` (content and attributes are durable when a change
//! of them returns) and `DIRSYNC` (so are names). `NOATIME` and `NODUMP` are for programs that keep access
//! times or dump. `JOURNAL_DATA` sends content through the journal ([`crate::journalled`]). The others are
//! stored as set. Changes that would map by blocks or ignore case are refused, by name.
//!
//! A project is a number that space is accounted to. Directories with `PROJINHERIT` hold one project's files
//! only: new files inherit it, and links and renames from other projects are refused
//! ([`Volume::check_same_project`](crate::Volume)).
//!
//! Format facts: the kernel's `include/uapi/linux/fs.h` numbers, and which flags ext4 shows and accepts, as
//! the running kernel does (tested).

use crate::caller::{Caller, Capabilities};
use crate::error::{Error, Result};
use crate::map::MAP_CREDITS;
use crate::options::Synchronous;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_units::InodeNr;
use std::sync::Arc;

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

impl Volume {
    /// The flags of an inode that programs see (`FS_IOC_GETFLAGS`).
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such inode, or the error of reading it.
    pub fn inode_flags(&self, nr: InodeNr) -> Result<InodeFlags> {
        let inode = self.inode(nr)?;
        let data = inode.get();
        let hidden =
            if data.kind() == Some(Kind::File) { InodeFlags::PROJINHERIT } else { InodeFlags::empty() };
        Ok((data.flags & VISIBLE) - hidden)
    }

    /// Sets the flags of an inode (`FS_IOC_SETFLAGS`). Those that are shown but can't be set stay as they
    /// are, whatever their value in `flags`.
    ///
    /// # Errors
    /// [`Error::Forbidden`] if the caller is not the owner, for changing the immutable or append-only flag
    /// without the capability, and for changing anything else of an inode that stays immutable;
    /// [`Error::Unsupported`] for flags that the kind of inode, the volume or this program does not have.
    pub fn set_inode_flags(&self, nr: InodeNr, flags: InodeFlags, caller: &Caller<'_>) -> Result<()> {
        self.change_flags(nr, Some(flags), None, caller)
    }

    /// The project of an inode; 0 on a volume without projects.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such inode, or the error of reading it.
    pub fn project(&self, nr: InodeNr) -> Result<u32> {
        let inode = self.inode(nr)?;
        let project = inode.get().projid;
        Ok(if self.has_projects() { project } else { 0 })
    }

    /// Sets flags and project at once (`FS_IOC_FSSETXATTR`), with flags as [`with_xflags`] makes them.
    ///
    /// # Errors
    /// As [`Volume::set_inode_flags`]; [`Error::Unsupported`] for a project other than 0 where the volume, or
    /// the inode's size, has no room for it.
    pub fn set_flags_and_project(
        &self,
        nr: InodeNr,
        flags: InodeFlags,
        project: u32,
        caller: &Caller<'_>,
    ) -> Result<()> {
        self.change_flags(nr, Some(flags), Some(project), caller)
    }

    /// Sets the project of an inode.
    ///
    /// # Errors
    /// As [`Volume::set_flags_and_project`].
    pub fn set_project(&self, nr: InodeNr, project: u32, caller: &Caller<'_>) -> Result<()> {
        self.change_flags(nr, None, Some(project), caller)
    }

    fn change_flags(
        &self,
        nr: InodeNr,
        flags: Option<InodeFlags>,
        project: Option<u32>,
        caller: &Caller<'_>,
    ) -> Result<()> {
        let inode = self.inode(nr)?;
        self.retry(|| {
            let _operation = inode.lock().write();
            self.check_takes_changes()?;
            inode.check_alive()?;
            let (flags, project) = self.check_flags(&inode, flags, project, caller)?;
            // The buffered bytes were written while that was allowed.
            self.place_locked(&inode)?;
            if !flags.contains(InodeFlags::JOURNAL_DATA) {
                self.end_data_journalling(&inode)?;
            }
            let mut handle = self.start(MAP_CREDITS)?;
            let mut data = inode.edit(&mut handle, &self.inodes);
            data.flags = flags;
            data.projid = project;
            data.ctime = self.now();
            data.version = data.version.wrapping_add(1);
            Ok(())
        })?;
        self.sync_if_asked(&inode)
    }

    /// The flags and the project that the inode is to have, if `caller` may set them.
    fn check_flags(
        &self,
        inode: &CachedInode,
        flags: Option<InodeFlags>,
        project: Option<u32>,
        caller: &Caller<'_>,
    ) -> Result<(InodeFlags, u32)> {
        let data = inode.get();
        if !caller.acts_as(data.uid) {
            return Err(Error::Forbidden("only its owner may change the flags of an inode"));
        }
        let flags = match flags {
            Some(flags) => self.settable(&data, flags, caller)?,
            None => data.flags,
        };
        let project = match project {
            Some(project) if project != data.projid => self.check_project(&data, project)?,
            _ => data.projid,
        };
        let stays = data.flags & flags & InodeFlags::IMMUTABLE;
        if !stays.is_empty() && (flags != data.flags || project != data.projid) {
            return Err(Error::NotPermitted(inode.nr()));
        }
        Ok((flags, project))
    }

    /// The new flags of an inode, if they may be set to `wanted`.
    fn settable(&self, data: &Inode, wanted: InodeFlags, caller: &Caller<'_>) -> Result<InodeFlags> {
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
            return Err(Error::Forbidden("changing immutable or append-only requires CAP_LINUX_IMMUTABLE"));
        }
        if changed.contains(InodeFlags::JOURNAL_DATA) && !caller.may(Capabilities::SYS_RESOURCE) {
            return Err(Error::Forbidden("changing the data journalling flag requires CAP_SYS_RESOURCE"));
        }
        if changed.contains(InodeFlags::EXTENTS) {
            return refuse("a file can't be brought from extents to blocks or back yet");
        }
        if changed.contains(InodeFlags::CASEFOLD) {
            return refuse("directories that ignore case (casefold) can't be made yet");
        }
        Ok((data.flags - MODIFIABLE) | wanted)
    }

    fn check_project(&self, data: &Inode, project: u32) -> Result<u32> {
        if !self.has_projects() {
            return Err(Error::Unsupported("the volume has no projects (feature 'project')".into()));
        }
        if !data.has_project() {
            return Err(Error::Unsupported("the inode is too small to hold a project".into()));
        }
        Ok(project)
    }

    /// Whether inodes belong to projects.
    pub(crate) fn has_projects(&self) -> bool {
        self.sb.features().ro_compat.contains(RoCompat::PROJECT)
    }

    /// The project of a new file in a directory.
    pub(crate) fn inherited_project(&self, parent: &Inode) -> u32 {
        let passes = self.has_projects() && parent.flags.contains(InodeFlags::PROJINHERIT);
        if passes { parent.projid } else { 0 }
    }

    /// Returns an error for naming an inode in a directory that holds another project's files.
    pub(crate) fn check_same_project(&self, dir: &CachedInode, inode: &CachedInode) -> Result<()> {
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

    /// Whether content and attributes of an inode with these flags are to be durable after every change.
    pub(crate) fn syncs_changes(&self, flags: InodeFlags) -> bool {
        self.options.synchronous == Synchronous::All || flags.contains(InodeFlags::SYNC)
    }

    /// Makes an inode durable if it has to be after every change (`SYNC`). Called with nothing locked.
    pub(crate) fn sync_if_asked(&self, inode: &CachedInode) -> Result<()> {
        let asked = self.syncs_changes(inode.get().flags);
        if asked { self.sync_cached(inode, false) } else { Ok(()) }
    }

    /// Makes names durable where they have to be after every change (`SYNC`, `DIRSYNC`). Called with nothing
    /// locked.
    pub(crate) fn sync_names_if_asked(&self, dirs: &[&Arc<CachedInode>]) -> Result<()> {
        let of_all = self.options.synchronous >= Synchronous::Names;
        let asks = |dir: &&&Arc<CachedInode>| {
            of_all || dir.get().flags.intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC)
        };
        dirs.iter().filter(asks).try_for_each(|dir| self.sync_cached(dir, false))
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
