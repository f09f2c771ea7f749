//! The face of [`crate::names`]: what a mount asks for, by inode numbers.

use crate::attributes::stat::Metadata;
use crate::error::{Error, Result};
use crate::names::node::{Creation, DirEntry, NewNode};
use crate::names::rename::RenameMode;
use crate::names::{create, lookup, remove, rename, tmpfile};
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use crate::volume::open_file::OpenFile;
use hectare_ext4::dir::Cookie;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::InodeNr;
use std::sync::Arc;

impl Volume {
    /// Looks a name up; in an encrypted directory, by the text of a listing.
    ///
    /// # Errors
    /// [`Error::NotFound`], or the error of reading the directory.
    pub fn lookup(&self, parent: InodeNr, name: &[u8]) -> Result<InodeNr> {
        lookup::lookup(self.core(), parent, name)
    }

    /// Whether there can be directories in which case does not matter.
    #[must_use]
    pub fn may_fold_names(&self) -> bool {
        self.core().state.incompat(Incompat::CASEFOLD)
    }

    /// Whether case does not matter in a directory: a name has many spellings there, and every change of one is
    /// a change of all.
    #[must_use]
    pub fn folds_names(&self, nr: InodeNr) -> bool {
        let state = &self.core().state;
        let folds = |inode: Arc<CachedInode>| inode.get().flags.contains(InodeFlags::CASEFOLD);
        state.incompat(Incompat::CASEFOLD) && state.inode(nr).is_ok_and(folds)
    }

    /// Lists a directory from a cookie on (0: from the start), up to `max` entries, `.` and `..` included. A
    /// name that is there from the first call to the last is listed exactly once, whatever else changes. The
    /// names of an encrypted directory are listed as text that stands for the ciphertext (base64url, up to
    /// 340 bytes).
    ///
    /// # Errors
    /// [`Error::NotADirectory`], or the error of reading the directory.
    pub fn read_dir_at(&self, nr: InodeNr, from: Cookie, max: usize) -> Result<Vec<DirEntry>> {
        lookup::read_dir_at(self.core(), nr, from, max)
    }

    /// The metadata of an inode.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such inode, or the error of reading it.
    pub fn stat(&self, nr: InodeNr) -> Result<Metadata> {
        lookup::stat_of(self.core(), &*self.core().state.inode(nr)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none, or the error of reading it.
    pub fn read_link_at(&self, nr: InodeNr) -> Result<Vec<u8>> {
        lookup::read_link_of(self.core(), &*self.core().state.inode(nr)?)
    }

    /// Makes a file, directory, symbolic link, device, pipe or socket.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NameTooLong`], [`Error::NoSpace`], [`Error::NoInodes`],
    /// [`Error::TooManyLinks`]...
    pub fn create(
        &self,
        parent: InodeNr,
        name: &[u8],
        node: NewNode<'_>,
        creation: Creation,
    ) -> Result<InodeNr> {
        create::create(self.core(), parent, name, node, creation)
    }

    /// Gives a file another name, or one that was made without a name its first.
    ///
    /// # Errors
    /// [`Error::LinkToDirectory`], [`Error::TooManyLinks`], [`Error::Exists`]...
    pub fn link(&self, inode: InodeNr, parent: InodeNr, name: &[u8]) -> Result<()> {
        create::link(self.core(), inode, parent, name)
    }

    /// Removes a name of a file; with the last one, unless it is open, the file.
    ///
    /// # Errors
    /// [`Error::IsADirectory`] for a directory, [`Error::NotFound`]...
    pub fn unlink(&self, parent: InodeNr, name: &[u8]) -> Result<()> {
        remove::remove_name(self.core(), parent, name, |_, victim| match victim.get().kind() {
            Some(Kind::Directory) => Err(Error::IsADirectory),
            _ => Ok(()),
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::NotEmpty`], [`Error::NotFound`]...
    pub fn rmdir(&self, parent: InodeNr, name: &[u8]) -> Result<()> {
        remove::rmdir(self.core(), parent, name)
    }

    /// Gives an inode another name, in the same or another directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`] (`NoReplace`), [`Error::NotEmpty`], [`Error::IsADirectory`],
    /// [`Error::NotADirectory`], [`Error::Invalid`] when a directory would come to lie under itself...
    pub fn rename(
        &self,
        parent: InodeNr,
        name: &[u8],
        new_parent: InodeNr,
        new: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        rename::rename(self.core(), parent, name, new_parent, new, mode)
    }

    /// Makes a file without a name, as if it were made in a directory, and opens it. It is freed when it is
    /// closed, unless it was `linkable` and has been linked.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_nameless(&self, parent: InodeNr, creation: Creation, linkable: bool) -> Result<OpenFile> {
        self.open_found(tmpfile::create_nameless(self.core(), parent, creation, linkable)?)
    }

    /// The metadata of the inode that a handle of this number and generation was made for.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is gone, whether or not the number was given out again, or never existed; or
    /// the error of reading it.
    pub fn inode_with_generation(&self, nr: InodeNr, generation: u32) -> Result<Metadata> {
        let stale = || Error::Stale(nr);
        if self.core().state.is_special(nr) || self.core().state.geometry().inode_slot(nr).is_none() {
            return Err(stale());
        }
        let metadata = match self.stat(nr) {
            Err(Error::NotFound) => return Err(stale()),
            found => found?,
        };
        if metadata.generation == generation { Ok(metadata) } else { Err(stale()) }
    }
}
