//! The volume's interface by paths, in the shape of `std::fs`.
//!
//! Paths are bytes, `/`-separated, resolved from the root directory whether they begin with `/` or not; `.`
//! and `..` are looked up like any name (the root's `..` is the root). Symbolic links on the way are followed
//! within the volume, at most 40 of them; each function documents whether it follows a link at the end.
//!
//! A slash at the end means a directory, as in POSIX: `f/` removes, renames and makes no file `f`.

use crate::attributes::stat::{Changes, Metadata};
use crate::attributes::{stat, xattr_read, xattrs};
use crate::error::{Error, Result};
use crate::names::node::{Creation, DirEntry, NewNode};
use crate::names::paths::components;
use crate::names::rename::RenameMode;
use crate::names::{create, lookup, paths, remove, rename};
use crate::volume::Volume;
use crate::volume::open_file::OpenFile;
use hectare_ext4::dir::Cookie;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::xattr::How;
use hectare_units::{InodeNr, index_of, memory, u64_of};
use std::collections::HashSet;

/// Entries listed at a time.
const LIST_STEP: usize = 1024;

impl Volume {
    /// The inode at a path; follows a symbolic link at its end if `follow`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::SymlinkLoop`]...
    pub fn resolve(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<InodeNr> {
        Ok(paths::find(self.core(), path.as_ref(), follow)?.nr())
    }

    /// The metadata of the inode at a path; a symbolic link at its end is followed.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        lookup::stat_of(self.core(), &*paths::find(self.core(), path.as_ref(), true)?)
    }

    /// The metadata of the inode at a path; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        lookup::stat_of(self.core(), &*paths::find(self.core(), path.as_ref(), false)?)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As [`Volume::resolve`] and [`Volume::open_inode`].
    pub fn open_file(&self, path: impl AsRef<[u8]>) -> Result<OpenFile> {
        self.open_found(paths::find(self.core(), path.as_ref(), true)?)
    }

    /// Makes a file, which must not exist, and opens it.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_file(&self, path: impl AsRef<[u8]>, creation: Creation) -> Result<OpenFile> {
        let nr = self.make(path.as_ref(), NewNode::File, creation)?;
        self.open_inode(nr)
    }

    /// The directory and the name of a new file; the root is there already.
    fn parent_of_new<'p>(&self, path: &'p [u8]) -> Result<(InodeNr, &'p [u8])> {
        match paths::parent_of(self.core(), path) {
            Err(Error::Busy(_)) => Err(Error::Exists),
            found => found,
        }
    }

    /// Makes an inode of any kind at a path that does not exist.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn make(&self, path: impl AsRef<[u8]>, node: NewNode<'_>, creation: Creation) -> Result<InodeNr> {
        let (parent, name) = self.parent_of_new(path.as_ref())?;
        match node {
            NewNode::Directory => {}
            NewNode::File if paths::means_directory(path.as_ref()) => return Err(Error::IsADirectory),
            _ => self.refuse_new(path.as_ref(), parent, name)?,
        }
        create::create(self.core(), parent, name, node, creation)
    }

    /// Nothing but a directory is made where a path ends with a slash.
    fn refuse_new(&self, path: &[u8], parent: InodeNr, name: &[u8]) -> Result<()> {
        if !paths::means_directory(path) {
            return Ok(());
        }
        lookup::lookup(self.core(), parent, name).and(Err(Error::Exists))
    }

    /// What a path leads to is a directory, if it ends with a slash.
    fn refuse_others(&self, path: &[u8], parent: InodeNr, name: &[u8]) -> Result<()> {
        if !paths::means_directory(path) {
            return Ok(());
        }
        let found = lookup::lookup(self.core(), parent, name)?;
        self.core().state.directory(found).map(drop)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_dir(&self, path: impl AsRef<[u8]>, creation: Creation) -> Result<InodeNr> {
        self.make(path, NewNode::Directory, creation)
    }

    /// Makes a directory and those above it that are missing.
    ///
    /// # Errors
    /// As [`Volume::create`]; [`Error::NotADirectory`] if something else is in the way.
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>, creation: Creation) -> Result<InodeNr> {
        let mut at = InodeNr::ROOT;
        let mut so_far = Vec::new();
        for name in components(path.as_ref()) {
            so_far.push(b'/');
            so_far.extend_from_slice(&name);
            at = match self.resolve(&so_far, true) {
                Ok(found) => self.core().state.directory(found)?.nr(),
                Err(Error::NotFound) => {
                    match create::create(self.core(), at, &name, NewNode::Directory, creation) {
                        Err(Error::Exists) => self.resolve(&so_far, true)?,
                        made => made?,
                    }
                }
                Err(error) => return Err(error),
            };
        }
        Ok(at)
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn symlink(
        &self,
        target: impl AsRef<[u8]>,
        path: impl AsRef<[u8]>,
        creation: Creation,
    ) -> Result<InodeNr> {
        self.make(path, NewNode::Symlink(target.as_ref()), creation)
    }

    /// Gives the file at `from` (a link there is not followed) a second name.
    ///
    /// # Errors
    /// As [`Volume::link`].
    pub fn hard_link(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let inode = self.resolve(from, false)?;
        let (parent, name) = self.parent_of_new(to.as_ref())?;
        self.refuse_new(to.as_ref(), parent, name)?;
        create::link(self.core(), inode, parent, name)
    }

    /// The target of the symbolic link at a path.
    ///
    /// # Errors
    /// As [`Volume::resolve`]; [`Error::Invalid`] if it is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        lookup::read_link_of(self.core(), &*paths::find(self.core(), path.as_ref(), false)?)
    }

    /// All entries of a directory but `.` and `..`, in the order of the directory.
    ///
    /// # Errors
    /// As [`Volume::resolve`] and [`Volume::read_dir_at`].
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>> {
        self.list(self.resolve(path, true)?)
    }

    /// All entries of a directory but `.` and `..`, by its inode number.
    ///
    /// # Errors
    /// As [`Volume::read_dir_at`].
    pub fn list(&self, nr: InodeNr) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        let mut at = Cookie::START;
        loop {
            let step = lookup::read_dir_at(self.core(), nr, at, LIST_STEP)?;
            let Some(last) = step.last() else { return Ok(entries) };
            at = last.next;
            entries.extend(step.into_iter().filter(|entry| entry.name != b"." && entry.name != b".."));
        }
    }

    /// The content of a file.
    ///
    /// # Errors
    /// As [`Volume::open_file`] and [`OpenFile::read_at`].
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let size = file.metadata()?.size;
        let mut content = memory::filled(0, index_of(size))?;
        let mut done = 0;
        while done < content.len() {
            match file.read_at(u64_of(done), &mut content[done..])? {
                0 => break,
                n => done += n,
            }
        }
        content.truncate(done);
        Ok(content)
    }

    /// Makes a file with this content, or replaces the content of the existing one.
    ///
    /// # Errors
    /// As [`Volume::create_file`] and [`OpenFile::write_at`].
    pub fn write_file(&self, path: impl AsRef<[u8]>, content: &[u8], creation: Creation) -> Result<()> {
        let file = match self.open_file(path.as_ref()) {
            Err(Error::NotFound) => self.create_file(path, creation)?,
            file => file?,
        };
        file.set_len(0)?;
        file.write_all_at(0, content)?;
        file.close()
    }

    /// Removes a file, or anything else but a directory.
    ///
    /// # Errors
    /// As [`Volume::unlink`].
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (parent, name) = match paths::parent_of(self.core(), path.as_ref()) {
            Err(Error::Busy(_)) => return Err(Error::IsADirectory),
            other => other?,
        };
        self.refuse_others(path.as_ref(), parent, name)?;
        self.unlink(parent, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Volume::rmdir`].
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (parent, name) = paths::parent_of(self.core(), path.as_ref())?;
        remove::rmdir(self.core(), parent, name)
    }

    /// Removes a directory with all it holds. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// The first removal that failed; what was removed before stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (parent, name) = paths::parent_of(self.core(), path.as_ref())?;
        // A stack of directories to empty rather than recursion: trees can be deep.
        let mut stack = vec![(parent, name.to_vec())];
        let mut opened = HashSet::new();
        while let Some((parent, name)) = stack.last().cloned() {
            let dir = lookup::lookup(self.core(), parent, &name)?;
            opened.insert(dir);
            let mut deeper = Vec::new();
            for entry in self.list(dir)? {
                match self.unlink(dir, &entry.name) {
                    Err(Error::IsADirectory) if opened.contains(&entry.inode) => {
                        return Err(
                            Corrupt::new("the directory", Place::Inode(dir), "it lies under itself").into()
                        );
                    }
                    Err(Error::IsADirectory) => deeper.push((dir, entry.name)),
                    other => other?,
                }
            }
            if deeper.is_empty() {
                remove::rmdir(self.core(), parent, &name)?;
                opened.remove(&dir);
                stack.pop();
            } else {
                stack.append(&mut deeper);
            }
        }
        Ok(())
    }

    /// Renames, see [`Volume::rename`].
    ///
    /// # Errors
    /// As [`Volume::rename`].
    pub fn rename_path(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, mode: RenameMode) -> Result<()> {
        let (parent, name) = paths::parent_of(self.core(), from.as_ref())?;
        let (new_parent, new) = paths::parent_of(self.core(), to.as_ref())?;
        // As the kernel: the directories before the names, and whether names are there before what they are.
        for parent in [parent, new_parent] {
            self.core().state.directory(parent)?;
        }
        if paths::means_directory(from.as_ref()) || paths::means_directory(to.as_ref()) {
            lookup::lookup(self.core(), parent, name)?;
            match (mode, lookup::lookup(self.core(), new_parent, new)) {
                (RenameMode::Exchange, Err(error)) => return Err(error),
                (RenameMode::NoReplace | RenameMode::Whiteout { replaces: false, .. }, Ok(_)) => {
                    return Err(Error::Exists);
                }
                _ => {}
            }
        }
        self.refuse_others(from.as_ref(), parent, name)?;
        if mode == RenameMode::Exchange {
            self.refuse_others(to.as_ref(), new_parent, new)?;
        } else if paths::means_directory(to.as_ref()) {
            // The new name is a directory's: so must be what gets it.
            self.core().state.directory(lookup::lookup(self.core(), parent, name)?)?;
        }
        rename::rename(self.core(), parent, name, new_parent, new, mode)
    }

    /// Changes permissions, owners, times or size; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// As [`Volume::change`].
    pub fn change_path(&self, path: impl AsRef<[u8]>, changes: &Changes) -> Result<()> {
        stat::change(self.core(), self.resolve(path, true)?, changes)
    }

    /// The value of an extended attribute by its full name.
    ///
    /// # Errors
    /// [`Error::NoAttribute`]...
    pub fn get_xattr(&self, nr: InodeNr, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        xattr_read::get_attribute(self.core(), &*self.core().state.inode(nr)?, name.as_ref())
    }

    /// The full names of an inode's extended attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`]...
    pub fn list_xattrs(&self, nr: InodeNr) -> Result<Vec<Vec<u8>>> {
        xattr_read::list_attributes(self.core(), &*self.core().state.inode(nr)?)
    }

    /// The full names and the values of an inode's extended attributes: for callers that want all, at the
    /// cost of reading them once.
    ///
    /// # Errors
    /// [`Error::Corrupt`]..., and [`Error::Unsupported`] if the values have more than 64 MiB together.
    pub fn xattrs(&self, nr: InodeNr) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        xattr_read::all_attributes(self.core(), &*self.core().state.inode(nr)?)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Error::Exists`] or [`Error::NoAttribute`] according to `how`, [`Error::AttributeTooLarge`]...
    pub fn set_xattr(&self, nr: InodeNr, name: impl AsRef<[u8]>, value: &[u8], how: How) -> Result<()> {
        xattrs::set_attribute(self.core(), &self.core().state.inode(nr)?, name.as_ref(), value, how, None)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`]...
    pub fn remove_xattr(&self, nr: InodeNr, name: impl AsRef<[u8]>) -> Result<()> {
        xattrs::remove_attribute(self.core(), &self.core().state.inode(nr)?, name.as_ref(), None)
    }
}
