//! The targets of workloads: the few calls every file system has.
//!
//! Three kinds: an image opened by our engine ([`engine`]), a directory of the host ([`directory`]), and one
//! file of the host whose windows stand for files ([`raw`]), which is the limit no file system can exceed.
//! Paths are relative to the target, `/`-separated. Every call may be made from any number of threads; each
//! file is one handle that may be shared.

pub mod directory;
pub mod engine;
pub mod raw;

use crate::latency::Latency;
use crate::stats::AllocatorStats;
use hectare_engine::Explanation;
use hectare_tools::error::Result;
use std::path::Path;

/// How the content of a file on the host is reached. An image by our engine is reached as it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Through the host's page cache.
    #[default]
    Cached,
    /// Bypassing it (`O_DIRECT`), where the file system can.
    Direct,
}

/// A place for files.
pub trait Target: Send + Sync {
    /// What errors call it.
    fn name(&self) -> String;

    /// Makes a directory in one that is there.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn create_dir(&self, path: &str) -> Result<()>;

    /// Makes a file, which must not exist, and opens it for writing.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn create(&self, path: &str) -> Result<Box<dyn TargetFile>>;

    /// Makes a file that will be `len` bytes long, which must not exist, and opens it for reading and writing
    /// in the way `access` says. Where the file system has no direct I/O it falls back to its page cache and
    /// [remarks](Target::remarks) on it.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn create_for(&self, path: &str, len: u64, access: Access) -> Result<Box<dyn TargetFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn remove_file(&self, path: &str) -> Result<()>;

    /// Removes a directory and all in it.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn remove_dir_all(&self, path: &str) -> Result<()>;

    /// Whether there is something at a path.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn exists(&self, path: &str) -> Result<bool>;

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn len_of(&self, path: &str) -> Result<u64>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// The first write that failed.
    fn sync(&self) -> Result<()>;

    /// The allocator's counts since the target was opened (engine) or mounted (kernel); `None` where there
    /// are none.
    fn allocator_stats(&self) -> Option<AllocatorStats>;

    /// How long commits blocked all changes, since the target was opened; `None` where that is not measured.
    fn commit_pauses(&self) -> Option<Latency> {
        None
    }

    /// How long requests for space and commits took since the last call; `None` where that is not measured.
    fn take_times(&self) -> [Option<Latency>; 2] {
        [None; 2]
    }

    /// Bytes that files may still take; `None` if unknown.
    fn room(&self) -> Option<u64>;

    /// The part of [`Self::room`] that is sure to have space on the host below, too.
    fn sure_room(&self) -> Option<u64> {
        self.room()
    }

    /// The directory of the host that it is, if it is one.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// The trace of the last requests for space; `None` where that is not recorded.
    fn explanation(&self) -> Option<Explanation> {
        None
    }

    /// Remarks for readers of the report: deviations from the request.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Bytes that are free on the file system of a host path, for an ordinary user.
fn host_room(place: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(place).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// An open file of a target.
pub trait TargetFile: Send + Sync {
    /// Writes all of `data` at byte `at`.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn write_at(&self, at: u64, data: &[u8]) -> Result<()>;

    /// Fills `out` from byte `at`.
    ///
    /// # Errors
    /// What the file system says, also that the file ends before; the path is named.
    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()>;

    /// Gives bytes `at..at + len` space, and makes the file longer if they lie beyond its end (fallocate's
    /// mode 0).
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn allocate(&self, at: u64, len: u64) -> Result<()>;

    /// Makes the file shorter or longer.
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Makes the content durable, and what is needed to find it (fdatasync).
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn sync_data(&self) -> Result<()>;

    /// Makes content and inode durable (fsync).
    ///
    /// # Errors
    /// What the file system says; the path is named.
    fn sync(&self) -> Result<()>;
}
