//! One file of the host, with nothing above it: the limit.
//!
//! Each requested file is a window of the one file, the first at its start, in the order of the requests. So
//! the same offsets are read and written as in a file system, with one `pread` or `pwrite` each. There are no
//! names and no directories: only workloads that know the length of their files in advance can run on it.
//!
//! Hazard: an existing file would be overwritten. So the file is made by the run, as a run's directory is,
//! and an existing one is replaced only on request.

use crate::stats::AllocatorStats;
use crate::target::directory::{NO_DIRECT, bypass_cache};
use crate::target::{Access, Target, TargetFile, host_room};
use hectare_tools::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A file that stands for many.
#[derive(Debug)]
pub struct Raw {
    path: PathBuf,
    /// Set when the directory is made.
    file: OnceLock<Arc<File>>,
    /// Where the next window begins.
    next: AtomicU64,
    fell_back: AtomicBool,
}

impl Raw {
    /// A target of this name; nothing is made yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let (next, fell_back) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { path: path.to_owned(), file: OnceLock::new(), next, fell_back }
    }

    fn told<T>(&self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::at(self.name(), error))
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(Error::at(self.name(), "it stands for files of a known length only: run random-overwrite on it"))
    }
}

impl Target for Raw {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Makes the file itself.
    fn create_dir(&self, _path: &str) -> Result<()> {
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&self.path);
        let file = Arc::new(self.told(made)?);
        self.file.set(file).map_err(|_| Error::at(self.name(), "it has no directories"))
    }

    fn create(&self, _path: &str) -> Result<Box<dyn TargetFile>> {
        self.refuse()
    }

    fn create_for(&self, _path: &str, len: u64, access: Access) -> Result<Box<dyn TargetFile>> {
        let file = Arc::clone(self.file.get().ok_or_else(|| Error::at(self.name(), "it is not made yet"))?);
        if access == Access::Direct && !self.told(bypass_cache(&file))? {
            self.fell_back.store(true, Ordering::Relaxed);
        }
        let start = self.next.fetch_add(len, Ordering::Relaxed);
        Ok(Box::new(Window { file, start, name: self.name() }))
    }

    fn remove_file(&self, _path: &str) -> Result<()> {
        self.refuse()
    }

    /// Removes the file itself.
    fn remove_dir_all(&self, _path: &str) -> Result<()> {
        let is_file = self.told(fs::symlink_metadata(&self.path))?.is_file();
        if is_file {
            self.told(fs::remove_file(&self.path))
        } else {
            Err(Error::at(self.name(), "not a regular file"))
        }
    }

    fn exists(&self, _path: &str) -> Result<bool> {
        self.told(fs::exists(&self.path))
    }

    fn len_of(&self, _path: &str) -> Result<u64> {
        self.refuse()
    }

    fn sync(&self) -> Result<()> {
        self.file.get().map_or(Ok(()), |file| self.told(file.sync_all()))
    }

    fn allocator_stats(&self) -> Option<AllocatorStats> {
        None
    }

    fn room(&self) -> Option<u64> {
        let parent = self.path.parent().filter(|parent| *parent != Path::new(""));
        host_room(parent.unwrap_or(Path::new(".")))
    }

    fn remarks(&self) -> Vec<String> {
        let fell_back = self.fell_back.load(Ordering::Relaxed);
        fell_back.then(|| NO_DIRECT.to_owned()).into_iter().collect()
    }
}

/// A part of the file.
struct Window {
    file: Arc<File>,
    start: u64,
    name: String,
}

impl Window {
    fn told<T>(&self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::at(self.name.clone(), error))
    }

    fn refuse(&self) -> Result<()> {
        Err(Error::at(self.name.clone(), "a part of a file has no length of its own"))
    }
}

impl TargetFile for Window {
    fn write_at(&self, at: u64, data: &[u8]) -> Result<()> {
        self.told(self.file.write_all_at(data, self.start + at))
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.told(self.file.read_exact_at(out, self.start + at))
    }

    fn allocate(&self, _at: u64, _len: u64) -> Result<()> {
        self.refuse()
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        self.refuse()
    }

    fn sync_data(&self) -> Result<()> {
        self.told(self.file.sync_data())
    }

    fn sync(&self) -> Result<()> {
        self.told(self.file.sync_all())
    }
}
