//! A directory of the host, with the host's own calls.
//!
//! If it lies on a kernel ext4 whose `mb_stats` are switched on, the kernel's counts are read along.

use crate::stats::AllocatorStats;
use crate::target::{Access, Target, TargetFile, host_room};
use hectare_tools::error::{Error, Result};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory.
#[derive(Debug)]
pub struct Directory {
    base: PathBuf,
    handle: File,
    /// Whether direct I/O was requested and is not available.
    fell_back: AtomicBool,
}

impl Directory {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// If it is no directory or can't be opened; the error names it.
    pub fn open(base: &Path) -> Result<Self> {
        let fail = |error: &dyn ToString| Error::at(base.display().to_string(), error.to_string());
        let handle = File::open(base).map_err(|error| fail(&error))?;
        if !handle.metadata().map_err(|error| fail(&error))?.is_dir() {
            return Err(fail(&"not a directory"));
        }
        Ok(Self { base: base.to_owned(), handle, fell_back: AtomicBool::new(false) })
    }

    /// The kind of file system it lies on, by the kernel's name.
    #[must_use]
    pub fn file_system(&self) -> Option<String> {
        self.mount().map(|(kind, _)| kind)
    }

    /// The file system's kind and the device's short name (`loop0`).
    fn mount(&self) -> Option<(String, String)> {
        let device = self.handle.metadata().ok()?.dev();
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
        let mut tail = line.split(" - ").nth(1)?.split(' ');
        let (kind, source) = (tail.next()?, tail.next()?);
        Some((kind.to_owned(), source.rsplit('/').next().unwrap_or_default().to_owned()))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    fn fail(&self, path: &str, error: &std::io::Error) -> Error {
        Error::at(self.path(path).display().to_string(), error)
    }

    fn make(&self, path: &str) -> Result<HostFile> {
        let place = self.path(path);
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&place);
        let file = opened.map_err(|error| self.fail(path, &error))?;
        Ok(HostFile { file, path: place })
    }
}

/// Makes an open file bypass the page cache; returns whether its file system can.
pub(super) fn bypass_cache(file: &File) -> std::io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    match rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The remark about a file system without direct I/O.
pub(super) const NO_DIRECT: &str = "no direct I/O here; its page cache was used";

impl Target for Directory {
    fn name(&self) -> String {
        self.base.display().to_string()
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        fs::create_dir(self.path(path)).map_err(|error| self.fail(path, &error))
    }

    fn create(&self, path: &str) -> Result<Box<dyn TargetFile>> {
        Ok(Box::new(self.make(path)?))
    }

    fn create_for(&self, path: &str, _len: u64, access: Access) -> Result<Box<dyn TargetFile>> {
        let made = self.make(path)?;
        if access == Access::Direct && !bypass_cache(&made.file).map_err(|error| self.fail(path, &error))? {
            self.fell_back.store(true, Ordering::Relaxed);
        }
        Ok(Box::new(made))
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        fs::remove_file(self.path(path)).map_err(|error| self.fail(path, &error))
    }

    fn remove_dir_all(&self, path: &str) -> Result<()> {
        fs::remove_dir_all(self.path(path)).map_err(|error| self.fail(path, &error))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        fs::exists(self.path(path)).map_err(|error| self.fail(path, &error))
    }

    fn len_of(&self, path: &str) -> Result<u64> {
        fs::metadata(self.path(path)).map(|meta| meta.len()).map_err(|error| self.fail(path, &error))
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.handle).map_err(|error| self.fail("", &error.into()))
    }

    fn allocator_stats(&self) -> Option<AllocatorStats> {
        let (kind, device) = self.mount()?;
        if kind != "ext4" {
            return None;
        }
        AllocatorStats::parse(&fs::read_to_string(format!("/proc/fs/ext4/{device}/mb_stats")).ok()?)
    }

    fn room(&self) -> Option<u64> {
        host_room(&self.base)
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.base)
    }

    fn remarks(&self) -> Vec<String> {
        let fell_back = self.fell_back.load(Ordering::Relaxed);
        fell_back.then(|| NO_DIRECT.to_owned()).into_iter().collect()
    }
}

struct HostFile {
    file: File,
    path: PathBuf,
}

impl HostFile {
    fn told<T>(&self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::at(self.path.display().to_string(), error))
    }
}

impl TargetFile for HostFile {
    fn write_at(&self, at: u64, data: &[u8]) -> Result<()> {
        self.told(self.file.write_all_at(data, at))
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.told(self.file.read_exact_at(out, at))
    }

    fn allocate(&self, at: u64, len: u64) -> Result<()> {
        let done = rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, len);
        self.told(done.map_err(Into::into))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.told(self.file.set_len(len))
    }

    fn sync_data(&self) -> Result<()> {
        self.told(self.file.sync_data())
    }

    fn sync(&self) -> Result<()> {
        self.told(self.file.sync_all())
    }
}
