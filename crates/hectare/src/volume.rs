//! A volume that is open, and where paths lead in it.
//!
//! What can be done with files is in [`crate::fs`].

use crate::error::{Error, Result};
use crate::path::VolumePath;
use hectare_device::{Device, FileOptions};
use hectare_engine::{Creation, Error as Cause};
use hectare_units::InodeNr;
use std::path::Path;
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

    /// Runs an operation on what is at a path.
    pub(crate) fn at<T>(
        &self,
        path: impl VolumePath,
        run: impl FnOnce(&hectare_engine::Volume, &[u8]) -> Result<T, Cause>,
    ) -> Result<T> {
        let path = path.volume_path();
        run(&self.engine, &path).map_err(|cause| self.error(&path, cause))
    }

    /// A path without links, `.` and `..`.
    pub(crate) fn canonical(&self, path: &[u8]) -> Result<Vec<u8>, Cause> {
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
    pub(crate) fn error_of_two(&self, from: &[u8], to: &[u8], cause: Cause) -> Error {
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
