//! The volume's interface by paths, in the shape of `std::fs`.
//!
//! Paths are bytes, `/`-separated, resolved from the root directory whether they begin with `/` or not; `.`
//! and `..` are looked up like any name (the root's `..` is the root). Symbolic links on the way are followed
//! within the volume, at most 40 of them; each function documents whether it follows a link at the end.

use crate::error::{Error, Result};
use crate::namespace::{Creation, DirEntry, NewNode};
use crate::open_file::OpenFile;
use crate::rename::RenameMode;
use crate::stat::{Changes, Metadata};
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::dir::Cookie;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::Kind;
use hectare_ext4::xattr::How;
use hectare_units::{InodeNr, index_of, memory, u64_of};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// The most symbolic links in the resolution of one path.
const LINKS_FOLLOWED_MAX: usize = 40;
/// The longest path, links replaced, in bytes.
const PATH_MAX: usize = 1 << 20;
/// Entries listed at a time.
const LIST_STEP: usize = 1024;

impl Volume {
    /// The inode at a path; follows a symbolic link at its end if `follow`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::SymlinkLoop`]...
    pub fn resolve(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<InodeNr> {
        Ok(self.find(path.as_ref(), follow)?.nr())
    }

    /// The inode at a path, held since it was found: its number can't come to mean another one.
    fn find(&self, path: &[u8], follow: bool) -> Result<Arc<CachedInode>> {
        let mut names: VecDeque<Vec<u8>> = components(path);
        let must_be_directory = path.ends_with(b"/");
        let mut at = self.inode(InodeNr::ROOT)?;
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            let next = self.lookup_inode(&at, &name)?;
            let is_link = next.get().kind() == Some(Kind::Symlink);
            if !is_link || (names.is_empty() && !follow && !must_be_directory) {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_FOLLOWED_MAX {
                return Err(Error::SymlinkLoop);
            }
            let target = self.read_link_of(&next)?;
            if target.starts_with(b"/") {
                at = self.inode(InodeNr::ROOT)?;
            }
            let mut replaced = components(&target);
            replaced.append(&mut names);
            if replaced.iter().map(Vec::len).sum::<usize>() > PATH_MAX {
                return Err(Error::NameTooLong);
            }
            names = replaced;
        }
        if must_be_directory && at.get().kind() != Some(Kind::Directory) {
            return Err(Error::NotADirectory);
        }
        Ok(at)
    }

    /// The directory a path's last name lies in, and that name.
    fn parent_of<'p>(&self, path: &'p [u8]) -> Result<(InodeNr, &'p [u8])> {
        let trimmed = trim_slashes(path);
        let cut = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (parent, name) = trimmed.split_at(cut);
        if name.is_empty() {
            return Err(Error::Invalid("the path names the root directory"));
        }
        Ok((self.resolve(parent, true)?, name))
    }

    /// The metadata of the inode at a path; a symbolic link at its end is followed.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        self.stat_of(&*self.find(path.as_ref(), true)?)
    }

    /// The metadata of the inode at a path; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        self.stat_of(&*self.find(path.as_ref(), false)?)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As [`Volume::resolve`] and [`Volume::open_inode`].
    pub fn open_file(&self, path: impl AsRef<[u8]>) -> Result<OpenFile> {
        self.open_found(self.find(path.as_ref(), true)?)
    }

    /// Makes a file, which must not exist, and opens it.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_file(&self, path: impl AsRef<[u8]>, creation: Creation) -> Result<OpenFile> {
        let nr = self.make(path.as_ref(), NewNode::File, creation)?;
        self.open_inode(nr)
    }

    /// Makes an inode of any kind at a path that does not exist.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn make(&self, path: impl AsRef<[u8]>, node: NewNode<'_>, creation: Creation) -> Result<InodeNr> {
        let (parent, name) = match self.parent_of(path.as_ref()) {
            Err(Error::Invalid(_)) => return Err(Error::Exists),
            other => other?,
        };
        self.create(parent, name, node, creation)
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
                Ok(found) => self.directory(found)?.nr(),
                Err(Error::NotFound) => match self.create(at, &name, NewNode::Directory, creation) {
                    Err(Error::Exists) => self.resolve(&so_far, true)?,
                    made => made?,
                },
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
        let (parent, name) = self.parent_of(to.as_ref())?;
        self.link(inode, parent, name)
    }

    /// The target of the symbolic link at a path.
    ///
    /// # Errors
    /// As [`Volume::resolve`]; [`Error::Invalid`] if it is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.read_link_of(&*self.find(path.as_ref(), false)?)
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
            let step = self.read_dir_at(nr, at, LIST_STEP)?;
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
        let (parent, name) = self.parent_of(path.as_ref())?;
        self.unlink(parent, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Volume::rmdir`].
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        self.rmdir(parent, name)
    }

    /// Removes a directory with all it holds. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// The first removal that failed; what was removed before stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        // A stack of directories to empty rather than recursion: trees can be deep.
        let mut stack = vec![(parent, name.to_vec())];
        let mut opened = HashSet::new();
        while let Some((parent, name)) = stack.last().cloned() {
            let dir = self.lookup(parent, &name)?;
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
                self.rmdir(parent, &name)?;
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
        let (parent, name) = self.parent_of(from.as_ref())?;
        let (new_parent, new) = self.parent_of(to.as_ref())?;
        self.rename(parent, name, new_parent, new, mode)
    }

    /// Changes permissions, owners, times or size; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// As [`Volume::change`].
    pub fn change_path(&self, path: impl AsRef<[u8]>, changes: &Changes) -> Result<()> {
        self.change(self.resolve(path, true)?, changes)
    }

    /// The value of an extended attribute by its full name.
    ///
    /// # Errors
    /// [`Error::NoAttribute`]...
    pub fn get_xattr(&self, nr: InodeNr, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.get_attribute(&*self.inode(nr)?, name.as_ref())
    }

    /// The full names of an inode's extended attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`]...
    pub fn list_xattrs(&self, nr: InodeNr) -> Result<Vec<Vec<u8>>> {
        self.list_attributes(&*self.inode(nr)?)
    }

    /// The full names and the values of an inode's extended attributes: for callers that want all, at the
    /// cost of reading them once.
    ///
    /// # Errors
    /// [`Error::Corrupt`]..., and [`Error::Unsupported`] if the values have more than 64 MiB together.
    pub fn xattrs(&self, nr: InodeNr) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.all_attributes(&*self.inode(nr)?)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Error::Exists`] or [`Error::NoAttribute`] according to `how`, [`Error::AttributeTooLarge`]...
    pub fn set_xattr(&self, nr: InodeNr, name: impl AsRef<[u8]>, value: &[u8], how: How) -> Result<()> {
        self.set_attribute(&self.inode(nr)?, name.as_ref(), value, how, None)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`]...
    pub fn remove_xattr(&self, nr: InodeNr, name: impl AsRef<[u8]>) -> Result<()> {
        self.remove_attribute(&self.inode(nr)?, name.as_ref(), None)
    }
}

fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}
