//! An image, opened by our engine on the host's file or block device, in one of several ways ([`Through`]).

use crate::latency::Latency;
use crate::stats::AllocatorStats;
use crate::target::{Access, Target, TargetFile, host_room};
use crate::timing::Times;
use hectare_device::{DaxDevice, Device, FileOptions};
use hectare_engine::{Creation, Explanation, Observed, OpenFile, OpenOptions, Volume};
use hectare_tools::error::{Error, Result};
use hectare_units::u64_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How the engine reaches the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Through {
    /// Through the host's page cache.
    #[default]
    Cache,
    /// Bypassing it (`O_DIRECT`).
    Direct,
    /// Mapped into memory; only where the image lies in memory.
    Dax,
}

impl Through {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Cache, Self::Direct, Self::Dax];

    /// The prefix before the image on the command line, without the colon.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Cache => "engine",
            Self::Direct => "direct",
            Self::Dax => "dax",
        }
    }

    /// What reports call an engine that works so.
    #[must_use]
    pub const fn system(self) -> &'static str {
        match self {
            Self::Cache => "engine",
            Self::Direct => "engine direct",
            Self::Dax => "engine dax",
        }
    }
}

/// A volume in use.
pub struct Engine {
    image: PathBuf,
    volume: Volume,
    times: Option<Arc<Times>>,
}

impl Engine {
    /// Opens an image for writing.
    ///
    /// # Errors
    /// If it holds no ext4 volume, or one that can't be written; it is named.
    pub fn open(image: &Path, through: Through, options: OpenOptions) -> Result<Self> {
        Self::open_watched(image, through, options, None)
    }

    /// Like [`Self::open`], with requests for space and commits timed if `times` is given.
    pub(crate) fn open_watched(
        image: &Path,
        through: Through,
        options: OpenOptions,
        times: Option<Arc<Times>>,
    ) -> Result<Self> {
        let device = device(image, through)?;
        let observer = times.as_ref().map(|times| Observed(Arc::clone(times) as _));
        let options = OpenOptions { observer, ..options };
        let volume = Volume::open(device, options);
        let volume = volume.map_err(|error| Error::at(image.display().to_string(), error))?;
        Ok(Self { image: image.to_owned(), volume, times })
    }

    /// Opens an image read-only; nothing is changed.
    ///
    /// # Errors
    /// If it holds no ext4 volume that can be read; it is named.
    pub fn look(image: &Path) -> Result<Self> {
        let device = FileOptions::new().open(image).map_err(|error| told(&error))?;
        let volume = Volume::open(Arc::new(device), OpenOptions::read_only());
        let volume = volume.map_err(|error| Error::at(image.display().to_string(), error))?;
        Ok(Self { image: image.to_owned(), volume, times: None })
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

/// The image as a device.
fn device(image: &Path, through: Through) -> Result<Arc<dyn Device>> {
    let options = FileOptions::new().write(true);
    let options = options.direct(through == Through::Direct);
    let file = options.open(image).map_err(|error| told(&error))?;
    if through != Through::Dax {
        return Ok(Arc::new(file));
    }
    Ok(Arc::new(DaxDevice::new(file).map_err(|error| told(&error))?))
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

    fn create_for(&self, path: &str, _len: u64, _access: Access) -> Result<Box<dyn TargetFile>> {
        self.create(path)
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

    fn room(&self) -> Option<u64> {
        let stat = self.volume.statfs().ok()?;
        Some(stat.available.bytes(stat.block_size).get())
    }

    /// An image with holes takes room of the host as it fills.
    fn sure_room(&self) -> Option<u64> {
        let meta = std::fs::metadata(&self.image).ok()?;
        let has_holes = meta.is_file() && meta.blocks().saturating_mul(512) < meta.len();
        let host = if has_holes { host_room(&self.image)? } else { u64::MAX };
        Some(self.room()?.min(host))
    }

    fn explanation(&self) -> Option<Explanation> {
        self.volume.explanation()
    }

    fn commit_pauses(&self) -> Option<Latency> {
        pauses(&self.volume)
    }

    fn take_times(&self) -> [Option<Latency>; 2] {
        self.times.as_ref().map_or([None; 2], |times| times.take())
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

    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()> {
        if self.told(self.file.read_at(at, out))? == out.len() {
            return Ok(());
        }
        let file = format!("{}: inode {}", self.image.display(), self.file.inode());
        Err(Error::at(file, format!("it ends before byte {}", at.saturating_add(u64_of(out.len())))))
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

/// What the allocator counted, and, in the same layout, the journal.
fn stats(volume: &Volume) -> Option<AllocatorStats> {
    let (allocator, journal) = (volume.allocator_stats().text(volume.group_count()), volume.journal_stats());
    AllocatorStats::parse(&format!(
        "{allocator}\tjournal_handles: {}\n\tjournal_commits: {}\n",
        journal.handles_started, journal.commits
    ))
}

/// How long commits kept handles from starting; `None` if there was none.
fn pauses(volume: &Volume) -> Option<Latency> {
    let stats = volume.journal_stats();
    let ns = |pause: Duration| u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    Some(Latency {
        count: stats.commits,
        mean_ns: ns(stats.paused).checked_div(stats.commits)?,
        min_ns: 0,
        p50_ns: ns(stats.pause_quantile(500)),
        p95_ns: ns(stats.pause_quantile(950)),
        p99_ns: ns(stats.pause_quantile(990)),
        max_ns: ns(stats.longest_pause),
    })
}
