//! Removing names, and with the last one the inode.
//!
//! Everything that could refuse is asked before the name goes. A file that is open keeps its content until it
//! is closed (the volume's list of nameless files knows it, so that closing the volume frees it).

use crate::cache::inode::CachedInode;
use crate::directory::DirRef;
use crate::error::{Error, Result};
use crate::namespace::{NAME_CREDITS, old_name};
use crate::volume::Volume;
use hectare_ext4::dir;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_journal::Handle;
use hectare_units::InodeNr;
use std::ops::ControlFlow;
use std::sync::Arc;

impl Volume {
    /// Removes a name of a file; with the last one, and when nobody has it open, the file.
    ///
    /// # Errors
    /// [`Error::IsADirectory`] for a directory, [`Error::NotFound`]...
    pub fn unlink(&self, parent: InodeNr, name: &[u8]) -> Result<()> {
        self.remove_name(parent, name, |_, victim| match victim.get().kind() {
            Some(Kind::Directory) => Err(Error::IsADirectory),
            _ => Ok(()),
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::NotEmpty`], [`Error::NotFound`]...
    pub fn rmdir(&self, parent: InodeNr, name: &[u8]) -> Result<()> {
        if name == b"." {
            return Err(Error::Invalid("a directory can't be removed through its '.'"));
        }
        if name == b".." {
            return Err(Error::NotEmpty);
        }
        self.remove_name(parent, name, |volume, victim| {
            if victim.get().kind() != Some(Kind::Directory) {
                return Err(Error::NotADirectory);
            }
            volume.check_empty(victim)
        })
    }

    /// Refuses a directory that holds entries. The caller holds its operation lock.
    pub(crate) fn check_empty(&self, dir: &CachedInode) -> Result<()> {
        let data = dir.get();
        let empty = if data.flags.contains(InodeFlags::INLINE_DATA) {
            // It has no blocks to look into, whatever it holds.
            let mut empty = true;
            self.each_inline(dir, &data, &mut |entry| {
                empty &= matches!(entry.name, b"." | b"..");
                if empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            empty
        } else {
            let store = DirRef { volume: self, nr: dir.nr(), inode: &data };
            dir::is_empty(&store, &store.format())?
        };
        if empty { Ok(()) } else { Err(Error::NotEmpty) }
    }

    fn remove_name(
        &self,
        parent: InodeNr,
        name: &[u8],
        check: impl Fn(&Self, &CachedInode) -> Result<()>,
    ) -> Result<()> {
        let name = old_name(name)?;
        if name.is_dot() {
            return Err(Error::IsADirectory);
        }
        let dir = self.directory(parent)?;
        self.retry(|| {
            let _dir = dir.lock().write();
            self.check_directory_writable(&dir)?;
            let nr = self.lookup_locked(&dir, name)?.ok_or(Error::NotFound)?;
            if nr == parent {
                return Err(Corrupt::new("the directory", Place::Inode(parent), "it holds itself").into());
            }
            let victim = self.inode(nr)?;
            let _victim = victim.lock().write();
            check(self, &victim)?;
            self.check_removable(&victim)?;
            let mut handle = self.start(NAME_CREDITS)?;
            self.take_name(&mut handle, &dir, name)?;
            self.drop_link(&mut handle, &dir, &victim);
            handle.stop();
            self.delete_if_unused(&victim)
        })
    }

    /// Refuses to remove a name of an inode that must not change, or whose content could not be freed.
    pub(crate) fn check_removable(&self, victim: &CachedInode) -> Result<()> {
        self.check_changeable(victim)?;
        let data = victim.get();
        if data.links == 0 {
            return Err(
                Corrupt::new("the inode", Place::Inode(victim.nr()), "it has a name but no links").into()
            );
        }
        let last = data.links == 1 || data.kind() == Some(Kind::Directory);
        if last && data.file_acl.is_some() {
            self.attributes(victim.nr(), &data)?; // a broken attribute block is found before the name is gone
        }
        if last && self.incompat(Incompat::EA_INODE) {
            self.refuse_values_elsewhere(victim.nr(), &self.attributes(victim.nr(), &data)?)?;
        }
        let freed_by_map = !data.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS);
        let has_map = match data.kind() {
            Some(Kind::File | Kind::Directory) => true,
            Some(Kind::Symlink) => !data.is_fast_symlink(),
            _ => false,
        };
        if last && has_map && freed_by_map && data.sectors > 0 {
            return Err(Error::Unsupported(format!(
                "inode {} is mapped by indirect blocks (ext2, ext3): such files can be read, but not \
                 removed yet",
                victim.nr()
            )));
        }
        Ok(())
    }

    /// Counts a link less; a directory loses all, and its parent that of "..".
    pub(crate) fn drop_link(
        &self,
        handle: &mut Handle<'_>,
        dir: &Arc<CachedInode>,
        victim: &Arc<CachedInode>,
    ) {
        let mut data = victim.edit(handle, &self.inodes);
        data.ctime = self.now();
        if data.kind() == Some(Kind::Directory) {
            data.links = 0;
            drop(data);
            self.change_subdirectories(handle, dir, -1);
        } else {
            data.links = data.links.saturating_sub(1);
        }
    }

    /// Frees an inode that has no links if nobody has it open. The caller holds its operation lock.
    pub(crate) fn delete_if_unused(&self, inode: &Arc<CachedInode>) -> Result<()> {
        if inode.get().links > 0 || inode.is_freed() {
            return Ok(());
        }
        if inode.opens() > 0 {
            self.nameless.lock().insert(inode.nr(), Arc::clone(inode));
            return Ok(());
        }
        self.nameless.lock().remove(&inode.nr());
        self.delete(inode)
    }

    /// Frees the files that have no name any more although they are open: nobody can come after them.
    pub(crate) fn free_nameless(&self) -> Result<()> {
        for inode in std::mem::take(&mut *self.nameless.lock()).into_values() {
            let _operation = inode.lock().write();
            if !inode.is_freed() {
                self.delete(&inode)?;
            }
        }
        Ok(())
    }

    /// Frees an inode and all it holds. The caller holds its operation lock.
    fn delete(&self, inode: &Arc<CachedInode>) -> Result<()> {
        self.discard_window(inode);
        let mapped = inode.get().flags.contains(InodeFlags::EXTENTS);
        if mapped {
            self.unmap(inode, 0)?;
        }
        let mut handle = self.start(NAME_CREDITS)?;
        let mut data = inode.edit(&mut handle, &self.inodes);
        self.leave_attribute_block(&mut handle, &mut data)?;
        drop(data);
        self.free_inode(&mut handle, inode)?;
        handle.stop();
        self.relieve_frees()
    }
}
