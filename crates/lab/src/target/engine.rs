//! An image, opened by our engine on the host's file or block device.

use crate::error::{Error, Result};
use crate::stats::AllocatorStats;
use crate::target::{Target, TargetFile};
use hectare_alloc::Policy;
use hectare_device::FileOptions;
use hectare_engine::{Creation, OpenFile, OpenOptions, Volume};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A volume in use.
pub struct Engine {
    image: PathBuf,
    volume: Volume,
}

impl Engine {
    /// Opens an image for writing.
    ///
    /// # Errors
    /// If it holds no ext4 volume, or one that can't be written; it is named.
    pub fn open(image: &Path, policy: Policy) -> Result<Self> {
        let device = FileOptions::new().write(true).open(image).map_err(|error| told(&error))?;
        let volume = Volume::open(Arc::new(device), OpenOptions { policy, ..OpenOptions::default() });
        let volume = volume.map_err(|error| Error::at(image.display().to_string(), error))?;
        Ok(Self { image: image.to_owned(), volume })
    }

    /// Writes what is left and closes.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn close(self) -> Result<()> {
        self.volume.close().map_err(|error| Error::at(self.name(), error))
    }

    fn fail(&self, path: &str, error: &hectare_engine::Error) -> Error {
        Error::at(format!("{}:/{path}", self.image.display()), error)
    }
}

/// The device names itself.
fn told(error: &hectare_device::Error) -> Error {
    Error::Invalid(error.to_string())
}

impl Target for Engine {
    fn name(&self) -> String {
        self.image.display().to_string()
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        let made = self.volume.create_dir(path, Creation::default());
        made.map(drop).map_err(|error| self.fail(path, &error))
    }

    fn create(&self, path: &str) -> Result<Box<dyn TargetFile>> {
        let creation = Creation { permissions: 0o644, ..Creation::default() };
        let file = self.volume.create_file(path, creation).map_err(|error| self.fail(path, &error))?;
        Ok(Box::new(EngineFile { file, image: self.image.clone() }))
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        self.volume.remove_file(path).map_err(|error| self.fail(path, &error))
    }

    fn remove_dir_all(&self, path: &str) -> Result<()> {
        self.volume.remove_dir_all(path).map_err(|error| self.fail(path, &error))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        match self.volume.metadata(path) {
            Ok(_) => Ok(true),
            Err(hectare_engine::Error::NotFound) => Ok(false),
            Err(error) => Err(self.fail(path, &error)),
        }
    }

    fn len_of(&self, path: &str) -> Result<u64> {
        self.volume.metadata(path).map(|meta| meta.size).map_err(|error| self.fail(path, &error))
    }

    fn sync(&self) -> Result<()> {
        self.volume.sync().map_err(|error| Error::at(self.name(), error))
    }

    fn allocator_stats(&self) -> Option<AllocatorStats> {
        stats(&self.volume)
    }
}

struct EngineFile {
    file: OpenFile,
    image: PathBuf,
}

impl EngineFile {
    fn told<T>(&self, result: hectare_engine::Result<T>) -> Result<T> {
        result.map_err(|error| {
            Error::at(format!("{}: inode {}", self.image.display(), self.file.inode()), error)
        })
    }
}

impl TargetFile for EngineFile {
    fn write_at(&self, at: u64, data: &[u8]) -> Result<()> {
        self.told(self.file.write_all_at(at, data))
    }

    fn allocate(&self, at: u64, len: u64) -> Result<()> {
        self.told(self.file.allocate(at, len, false))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.told(self.file.set_len(len))
    }

    fn sync_data(&self) -> Result<()> {
        self.told(self.file.sync_data())
    }

    fn sync(&self) -> Result<()> {
        self.told(self.file.sync())
    }
}

// SHIM until the engine hands out its counts.

/// `AllocatorStats::parse(&volume.allocator_stats().text(volume.group_count()))`
fn stats(volume: &Volume) -> Option<AllocatorStats> {
    AllocatorStats::parse(&volume.allocator_stats().text(volume.group_count()))
}
