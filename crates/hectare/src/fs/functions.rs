//! What `std::fs` has as functions, as methods of a volume.

use crate::error::{Error, Result};
use crate::fs::dir_builder::DirBuilder;
use crate::fs::file::File;
use crate::fs::metadata::{Metadata, mode_bits};
use crate::fs::open_options::OpenOptions;
use crate::fs::read_dir::ReadDir;
use crate::fs::walk::Walk;
use crate::path::{VolumePath, to_host};
use crate::volume::Volume;
use hectare_engine::{Creation, Error as Cause, NewNode, RenameMode};
use std::ops::Range;
use std::path::PathBuf;

impl Volume {
    /// Opens a file for reading. (`std::fs::File::open`)
    ///
    /// # Errors
    /// If there is none, or it is no regular file.
    pub fn open_file(&self, path: impl VolumePath) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for writing, made or emptied. (`std::fs::File::create`)
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(&self, path: impl VolumePath) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// Opens a file for reading and writing, which must not exist. (`std::fs::File::create_new`)
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; of kind `AlreadyExists` if there is something at the path.
    pub fn create_new(&self, path: impl VolumePath) -> Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(self, path)
    }

    /// The content of a file.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file); if it does not fit the memory.
    pub fn read(&self, path: impl VolumePath) -> Result<Vec<u8>> {
        let path = path.volume_path();
        self.engine().read(&path).map_err(|cause| self.error(&path, cause))
    }

    /// The content of a text file.
    ///
    /// # Errors
    /// As [`read`](Self::read); if it is not UTF-8.
    pub fn read_to_string(&self, path: impl VolumePath) -> Result<String> {
        let path = path.volume_path();
        let bytes = self.engine().read(&path).map_err(|cause| self.error(&path, cause))?;
        String::from_utf8(bytes).map_err(|wrong| Error::not_text(self.place(&path), wrong.utf8_error()))
    }

    /// Makes a file, or replaces the content of one.
    ///
    /// # Errors
    /// As [`create`](Self::create), or if the volume is full.
    pub fn write(&self, path: impl VolumePath, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path)?;
        file.write_all_at(content.as_ref(), 0)?;
        file.close()
    }

    /// Copies the content and the permissions of a file to another, which is made or replaced; returns the
    /// bytes. Holes stay holes.
    ///
    /// # Errors
    /// If either can't be opened, the first is no regular file, both are one, or the volume is full.
    pub fn copy(&self, from: impl VolumePath, to: impl VolumePath) -> Result<u64> {
        let from = from.volume_path();
        if !self.metadata(&*from)?.is_file() {
            return Err(Error::invalid(self.place(&from), "only a regular file can be copied"));
        }
        let source = self.open_file(&*from)?;
        let found = source.metadata()?;
        let target = to.volume_path();
        if self.metadata(&*target).is_ok_and(|existing| existing.ino() == found.ino()) {
            return Err(Error::invalid(self.place(&target), "a file can't be copied onto itself"));
        }
        let copy = self.create(&*target)?;
        let (mut at, len) = (0, found.len());
        // What others append meanwhile is no part of it.
        while let Some(start) = source.seek_data(at)?.filter(|start| *start < len) {
            let end = source.seek_hole(start)?.unwrap_or(len).min(len);
            at = self.copy_range(&source, &copy, &target, start..end)?;
        }
        // Last, so that a copy that failed is not as long as a whole one.
        copy.set_len(len)?;
        copy.set_permissions(found.permissions())?;
        copy.close()?;
        Ok(found.len())
    }

    /// Copies a range of bytes to the file at a path; returns its end.
    fn copy_range(&self, from: &File, to: &File, path: &[u8], range: Range<u64>) -> Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let done = from.engine().copy_range(at, to.engine(), at, range.end - at);
            let done = done.map_err(|cause| self.error(path, cause))?;
            if done == 0 {
                // Another thread made it shorter.
                return Ok(range.end);
            }
            at += done;
        }
        Ok(range.end)
    }

    /// What the inode at a path says; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// If there is none.
    pub fn metadata(&self, path: impl VolumePath) -> Result<Metadata> {
        self.at(path, |engine, path| engine.metadata(path)).map(Metadata)
    }

    /// What the inode at a path says; a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// If there is none.
    pub fn symlink_metadata(&self, path: impl VolumePath) -> Result<Metadata> {
        self.at(path, |engine, path| engine.symlink_metadata(path)).map(Metadata)
    }

    /// Whether there is something at a path; links are followed.
    ///
    /// # Errors
    /// If that can't be found out.
    pub fn exists(&self, path: impl VolumePath) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// If there is none.
    pub fn read_dir(&self, path: impl VolumePath) -> Result<ReadDir> {
        let path = path.volume_path();
        let failed = |cause| self.error(&path, cause);
        let nr = self.engine().resolve(&path, true).map_err(failed)?;
        if !self.engine().stat(nr).map_err(failed)?.is_dir() {
            return Err(failed(Cause::NotADirectory));
        }
        Ok(ReadDir::new(self, &path, nr))
    }

    /// Everything below a directory, each directory before what it holds; links are not followed, and their
    /// targets not entered. See [`Walk`].
    ///
    /// # Errors
    /// If there is no directory at the path.
    pub fn walk(&self, path: impl VolumePath) -> Result<Walk> {
        self.read_dir(path).map(Walk::new)
    }

    /// Makes a directory, with mode 0755; [`DirBuilder`] has others.
    ///
    /// # Errors
    /// If there is something at the path, or no directory above it.
    pub fn create_dir(&self, path: impl VolumePath) -> Result<()> {
        DirBuilder::new().create(self, path)
    }

    /// Makes a directory and those above it that are missing, with mode 0755.
    ///
    /// # Errors
    /// If something else is in the way.
    pub fn create_dir_all(&self, path: impl VolumePath) -> Result<()> {
        DirBuilder::new().recursive(true).create(self, path)
    }

    /// Makes a device, a pipe, a socket or any other inode, with these permission bits (mknod(2)).
    ///
    /// ```
    /// use hectare::inode::{DeviceNumber, NewNode};
    /// # use hectare::device::{Bytes, MemoryDevice};
    /// # let device = std::sync::Arc::new(MemoryDevice::new(Bytes::mib(16)));
    /// # hectare::mkfs::Format::new().on_device(&*device)?;
    /// # let volume = hectare::Volume::options().write(true).open_device(device)?;
    /// volume.mknod("/null", NewNode::CharDevice(DeviceNumber { major: 1, minor: 3 }), 0o666)?;
    /// assert_eq!(volume.metadata("/null")?.device(), (1, 3));
    /// # Ok::<(), hectare::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is something at the path, no directory above it, or the format has no room for the numbers.
    pub fn mknod(&self, path: impl VolumePath, node: NewNode<'_>, mode: u32) -> Result<()> {
        let creation = Creation { permissions: mode_bits(mode), umask: 0, ..self.creation() };
        self.at(path, |engine, path| engine.make(path, node, creation)).map(drop)
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// If there is none.
    pub fn remove_file(&self, path: impl VolumePath) -> Result<()> {
        self.at(path, |engine, path| engine.remove_file(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// If there is none, or it is not empty.
    pub fn remove_dir(&self, path: impl VolumePath) -> Result<()> {
        self.at(path, |engine, path| engine.remove_dir(path))
    }

    /// Removes a directory and everything in it; a symbolic link is removed itself.
    ///
    /// # Errors
    /// If there is none, or something in it can't be removed.
    pub fn remove_dir_all(&self, path: impl VolumePath) -> Result<()> {
        self.at(path, |engine, path| match engine.symlink_metadata(path)?.is_symlink() {
            true => engine.remove_file(path),
            false => engine.remove_dir_all(path),
        })
    }

    /// Gives what is at `from` the name `to`, in one step; what was there is removed.
    ///
    /// # Errors
    /// As `std::fs::rename`.
    pub fn rename(&self, from: impl VolumePath, to: impl VolumePath) -> Result<()> {
        self.rename_as(from, to, RenameMode::Replace)
    }

    /// As [`rename`](Self::rename), if there is nothing at `to` (`RENAME_NOREPLACE`).
    ///
    /// # Errors
    /// As `std::fs::rename`, and if there is something: its kind is then `AlreadyExists`.
    pub fn rename_noreplace(&self, from: impl VolumePath, to: impl VolumePath) -> Result<()> {
        self.rename_as(from, to, RenameMode::NoReplace)
    }

    /// Gives each of two the other's name, in one step (`RENAME_EXCHANGE`); they may be of different kinds.
    ///
    /// # Errors
    /// If one of them is missing, or one lies in the other.
    pub fn exchange(&self, one: impl VolumePath, other: impl VolumePath) -> Result<()> {
        self.rename_as(one, other, RenameMode::Exchange)
    }

    fn rename_as(&self, from: impl VolumePath, to: impl VolumePath, mode: RenameMode) -> Result<()> {
        let (from, to) = (from.volume_path(), to.volume_path());
        self.engine().rename_path(&from, &to, mode).map_err(|cause| self.error_of_two(&from, &to, cause))
    }

    /// Gives the file at `original` (a link there is not followed) a second name.
    ///
    /// # Errors
    /// As `std::fs::hard_link`.
    pub fn hard_link(&self, original: impl VolumePath, link: impl VolumePath) -> Result<()> {
        let (original, link) = (original.volume_path(), link.volume_path());
        self.engine().hard_link(&original, &link).map_err(|cause| self.error_of_two(&original, &link, cause))
    }

    /// Makes a symbolic link at `link` that leads to `target`.
    ///
    /// # Errors
    /// As `std::os::unix::fs::symlink`.
    pub fn symlink(&self, target: impl VolumePath, link: impl VolumePath) -> Result<()> {
        let (target, creation) = (target.volume_path(), self.creation());
        self.at(link, |engine, link| engine.symlink(&target, link, creation)).map(drop)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// If there is none.
    pub fn read_link(&self, path: impl VolumePath) -> Result<PathBuf> {
        self.at(path, |engine, path| engine.read_link(path)).map(|target| to_host(target).into())
    }

    /// The path from the root without links, `.` and `..`, of what is at a path.
    ///
    /// # Errors
    /// If there is nothing.
    pub fn canonicalize(&self, path: impl VolumePath) -> Result<PathBuf> {
        self.at(path, |_, path| self.canonical(path)).map(|path| to_host(path).into())
    }
}
