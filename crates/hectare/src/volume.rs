//! A volume that is open, with what `std::fs` has as functions.

pub(crate) mod attributes;

use crate::error::{Error, Result};
use crate::fs::{DirBuilder, File, Metadata, OpenOptions, ReadDir, Walk, mode_bits};
use crate::path::{VolumePath, to_host};
use hectare_device::{Device, FileOptions};
use hectare_engine::{Creation, Error as Cause, NewNode, RenameMode};
use hectare_units::InodeNr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Links that are followed for one path.
const LINKS_MAX: u32 = 40;

/// An ext2, ext3 or ext4 volume that is open.
///
/// A cheap handle: clone it and share it between threads. Dropping the last handle (files have one each)
/// closes the volume; [`close`](Self::close) reports whether that worked.
#[derive(Clone)]
pub struct Volume {
    engine: hectare_engine::Volume,
    creation: Creation,
}

/// How a volume is opened: a setter changes the options in place, and returns them for the next.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    engine: hectare_engine::OpenOptions,
    creation: Creation,
    direct: bool,
}

/// What most processes have: new files are 0644, directories 0755.
const UMASK: u16 = 0o022;

impl Default for VolumeOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl VolumeOptions {
    /// For reading only; what is made later belongs to user and group 0.
    #[must_use]
    pub fn new() -> Self {
        let creation = Creation { permissions: 0o777, umask: UMASK, uid: 0, gid: 0 };
        Self { engine: hectare_engine::OpenOptions::read_only(), creation, direct: false }
    }

    /// For reading and writing, or for reading only.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.engine.read_only = !write;
        self
    }

    /// Who owns what is made.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Self {
        (self.creation.uid, self.creation.gid) = (uid, gid);
        self
    }

    /// Reads and writes the file past the host's page cache.
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.direct = direct;
        self
    }

    /// Changes the options of the engine, which has many more.
    pub fn with_engine(&mut self, change: impl FnOnce(&mut hectare_engine::OpenOptions)) -> &mut Self {
        change(&mut self.engine);
        self
    }

    /// Opens the volume in a file or on a block device, and locks it: for other programs' writing if it is
    /// opened for reading, else for any use. A journal that must be replayed is, in memory only if the
    /// volume is opened for reading.
    ///
    /// # Errors
    /// If there is no such file, it is locked, or it holds no volume that can be opened; the text says what
    /// it holds.
    pub fn open(&self, image: impl AsRef<Path>) -> Result<Volume> {
        let options = FileOptions::new().write(!self.engine.read_only).direct(self.direct);
        self.open_device(Arc::new(options.open(image)?))
    }

    /// Opens the volume on a device.
    ///
    /// # Errors
    /// If it holds no volume that can be opened.
    pub fn open_device(&self, device: Arc<dyn Device>) -> Result<Volume> {
        let name = device.name().to_owned();
        let opened = hectare_engine::Volume::open(device, self.engine.clone());
        let engine = opened.map_err(|cause| Error::of_volume(&name, cause))?;
        Ok(Volume { engine, creation: self.creation })
    }
}

/// How full a volume is, in bytes and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Space {
    /// Bytes for content, free or not.
    pub total: u64,
    /// Free bytes, those that are reserved for root included.
    pub free: u64,
    /// Free bytes for everyone.
    pub available: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Inodes, free or not.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

impl Volume {
    /// Opens the volume in a file for reading.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`].
    pub fn open(image: impl AsRef<Path>) -> Result<Self> {
        VolumeOptions::new().open(image)
    }

    /// Opens the volume in a file for reading and writing.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`].
    pub fn open_writable(image: impl AsRef<Path>) -> Result<Self> {
        VolumeOptions::new().write(true).open(image)
    }

    /// How it may be opened otherwise.
    #[must_use]
    pub fn options() -> VolumeOptions {
        VolumeOptions::new()
    }

    /// Writes everything and marks the volume clean; changes by other handles fail from then on. The image is
    /// unlocked, for other programs and for opening it again, when the last handle is gone: clones, and open
    /// files and directory listings, keep it.
    ///
    /// # Errors
    /// The first write that failed; the volume is then not marked clean, and recovers when it is opened next.
    pub fn close(self) -> Result<()> {
        self.engine.close().map_err(|cause| self.whole(cause))
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync().map_err(|cause| self.whole(cause))
    }

    /// How full it is.
    ///
    /// # Errors
    /// If its counts are damaged.
    pub fn space(&self) -> Result<Space> {
        let found = self.engine.statfs().map_err(|cause| self.whole(cause))?;
        let bytes = |blocks: hectare_units::Blocks| blocks.bytes(found.block_size).get();
        Ok(Space {
            total: bytes(found.blocks),
            free: bytes(found.free),
            available: bytes(found.available),
            block_size: found.block_size.get(),
            inodes: found.inodes.into(),
            free_inodes: found.free_inodes.into(),
        })
    }

    /// The label, without the zeros behind it; empty if it has none.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.engine.label()
    }

    /// The UUID, in the order in which it is written out.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.engine.superblock().uuid()
    }

    /// The volume of the engine, with operations by inode numbers.
    #[must_use]
    pub fn engine(&self) -> &hectare_engine::Volume {
        &self.engine
    }

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
        self.engine.read(&path).map_err(|cause| self.error(&path, cause))
    }

    /// The content of a text file.
    ///
    /// # Errors
    /// As [`read`](Self::read); if it is not UTF-8.
    pub fn read_to_string(&self, path: impl VolumePath) -> Result<String> {
        let path = path.volume_path();
        let bytes = self.engine.read(&path).map_err(|cause| self.error(&path, cause))?;
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
        let nr = self.engine.resolve(&path, true).map_err(failed)?;
        if !self.engine.stat(nr).map_err(failed)?.is_dir() {
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
        let creation = Creation { permissions: mode_bits(mode), umask: 0, ..self.creation };
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
        self.engine.rename_path(&from, &to, mode).map_err(|cause| self.error_of_two(&from, &to, cause))
    }

    /// Gives the file at `original` (a link there is not followed) a second name.
    ///
    /// # Errors
    /// As `std::fs::hard_link`.
    pub fn hard_link(&self, original: impl VolumePath, link: impl VolumePath) -> Result<()> {
        let (original, link) = (original.volume_path(), link.volume_path());
        self.engine.hard_link(&original, &link).map_err(|cause| self.error_of_two(&original, &link, cause))
    }

    /// Makes a symbolic link at `link` that leads to `target`.
    ///
    /// # Errors
    /// As `std::os::unix::fs::symlink`.
    pub fn symlink(&self, target: impl VolumePath, link: impl VolumePath) -> Result<()> {
        let (target, creation) = (target.volume_path(), self.creation);
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

    fn at<T>(
        &self,
        path: impl VolumePath,
        run: impl FnOnce(&hectare_engine::Volume, &[u8]) -> Result<T, Cause>,
    ) -> Result<T> {
        let path = path.volume_path();
        run(&self.engine, &path).map_err(|cause| self.error(&path, cause))
    }

    /// A path without links, `.` and `..`.
    fn canonical(&self, path: &[u8]) -> Result<Vec<u8>, Cause> {
        // Names that are still to be walked, the next one last.
        let mut left = names(path);
        let mut done: Vec<(Vec<u8>, InodeNr)> = Vec::new();
        let mut links = 0;
        while let Some(name) = left.pop() {
            let here = done.last().map_or(InodeNr::ROOT, |(_, nr)| *nr);
            if name == b"." || name == b".." {
                if !self.engine.stat(here)?.is_dir() {
                    return Err(Cause::NotADirectory);
                }
                if name == b".." {
                    done.pop();
                }
                continue;
            }
            let found = self.engine.lookup(here, &name)?;
            if self.engine.stat(found)?.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Cause::SymlinkLoop);
                }
                let target = self.engine.read_link_at(found)?;
                if target.first() == Some(&b'/') {
                    done.clear();
                }
                left.extend(names(&target));
            } else {
                done.push((name, found));
            }
        }
        if done.is_empty() {
            return Ok(b"/".to_vec());
        }
        Ok(done.iter().flat_map(|(name, _)| [b"/", name.as_slice()].concat()).collect())
    }

    /// Where a file is to be made that is asked for at `path`: links at its end that lead to nothing are
    /// followed.
    pub(crate) fn beyond_links(&self, path: &[u8]) -> Result<Vec<u8>, Cause> {
        let mut path = path.to_vec();
        for _ in 0..LINKS_MAX {
            let target = match self.engine.symlink_metadata(&path) {
                Ok(found) if found.is_symlink() => self.engine.read_link(&path)?,
                Ok(_) | Err(Cause::NotFound) => return Ok(path),
                Err(error) => return Err(error),
            };
            if target.first() == Some(&b'/') {
                path = target;
            } else {
                let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
                path.truncate(end);
                path.extend_from_slice(&target);
            }
        }
        Err(Cause::SymlinkLoop)
    }

    pub(crate) fn creation(&self) -> Creation {
        self.creation
    }

    pub(crate) fn error(&self, path: &[u8], cause: Cause) -> Error {
        Error::at(self.engine.device().name(), path, cause)
    }

    /// Of an operation on two paths it is not known which one the cause is about.
    fn error_of_two(&self, from: &[u8], to: &[u8], cause: Cause) -> Error {
        self.error(&[from, b" -> ", to].concat(), cause)
    }

    pub(crate) fn place(&self, path: &[u8]) -> String {
        format!("{}:{}", self.engine.device().name(), String::from_utf8_lossy(path))
    }

    fn whole(&self, cause: Cause) -> Error {
        Error::of_volume(self.engine.device().name(), cause)
    }
}

/// The names of a path, the first one last; a slash at its end is one to the directory itself.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let end = path.ends_with(b"/").then_some(&b"."[..]);
    names.chain(end).rev().map(<[u8]>::to_vec).collect()
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let engine = &self.engine;
        f.debug_struct("Volume")
            .field("device", &engine.device().name())
            .field("read_only", &engine.is_read_only())
            .finish_non_exhaustive()
    }
}
