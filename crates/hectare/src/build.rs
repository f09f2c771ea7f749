//! Directories, archives and container images to an image of exact size.

use crate::error::{Error, Result};
use crate::mkfs::{Format, threads};
use crate::sync::Mutex;
use crate::watch::{Step, Watch};
use hectare_device::{Cancel, CancelDevice, Device, FileOptions, Overwrite, Until};
use hectare_populate::{self as populate, ImageError, Progress, Source, Tree};
pub use hectare_populate::{
    Addition, Excludes, FileContexts, Meta, ModeChange, Options, Platform, Reference, Spec, Timestamp, Totals,
};
use hectare_units::Bytes;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How large the image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Size {
    /// As small as can be.
    Minimal,
    /// A tenth more than the smallest.
    #[default]
    Ample,
    /// As large as given, in bytes.
    Exactly(u64),
    /// With this many bytes free.
    Free(u64),
}

/// A source of files. The lock is never taken: it makes the whole one that threads may share.
enum From {
    Folder(PathBuf),
    Archive(PathBuf),
    Container(Reference),
    Stream(String, Mutex<Box<dyn Read + Send>>),
}

/// An image that is to be made: sources in layers, of which later ones win.
#[derive(Default)]
#[must_use]
pub struct Image {
    sources: Vec<From>,
    options: Options,
    format: Format,
    size: Size,
    epoch: Option<i64>,
    watch: Watch,
    replace: bool,
}

/// What was made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Built {
    /// Bytes of the image.
    pub size: u64,
    /// Free bytes in it.
    pub free: u64,
    /// What it holds.
    pub totals: Totals,
    /// What was odd about the sources, a line each.
    pub warnings: Vec<String>,
}

impl Image {
    /// An image without sources. Nothing is reserved for root in it.
    pub fn new() -> Self {
        Self { format: Format::new().reserved_percent(0.0), ..Self::default() }
    }

    /// Adds what a directory holds; the metadata of the directory becomes the root's.
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(From::Folder(path.into()));
        self
    }

    /// Adds a tar archive, plain or compressed (gzip, zstd, xz, bzip2), or an archive of a container image.
    pub fn archive(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(From::Archive(path.into()));
        self
    }

    /// Adds a container image, its layers applied and their digests verified.
    pub fn container(mut self, reference: Reference) -> Self {
        self.sources.push(From::Container(reference));
        self
    }

    /// Adds an archive that is read from start to end; `name` is for errors.
    pub fn stream(mut self, name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        self.sources.push(From::Stream(name.into(), Mutex::new(Box::new(reader))));
        self
    }

    /// How large the image is.
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// What volume is made; see [`Format`].
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The volume's name; see [`Format::label`]. It belongs to the format, which [`format`](Self::format)
    /// replaces.
    pub fn label(mut self, label: impl AsRef<[u8]>) -> Self {
        self.format = self.format.label(label);
        self
    }

    /// Gives everything to this user and group.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.options.owner = Some((uid, gid));
        self
    }

    /// What is left out, as in `.gitignore`.
    pub fn excludes(mut self, excludes: Excludes) -> Self {
        self.options.excludes = excludes;
        self
    }

    /// Makes the image reproducible: no time is later than this second since 1970, and what would be random
    /// follows from the content (`SOURCE_DATE_EPOCH`).
    pub fn source_date_epoch(mut self, epoch: i64) -> Self {
        (self.epoch, self.options.source_date_epoch) = (Some(epoch), Some(epoch));
        self
    }

    /// Changes how sources are read in ways that have no method here.
    pub fn with_options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Whether a file that is there may be replaced. It may not, if not given.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Reports progress to a watch, and ends if it is cancelled.
    pub fn watch(mut self, watch: &Watch) -> Self {
        self.watch = watch.clone();
        self
    }

    /// Makes the image in a new file, which gets its name when it is complete.
    ///
    /// # Errors
    /// If a source can't be read or is damaged, the size is too small (the text has one that is enough),
    /// there is such a file, somebody writes to the one that is to be replaced, writing failed, or the call was
    /// cancelled. There is no new file then, and one that was to be replaced is as it was.
    pub fn create(self, image: impl AsRef<Path>) -> Result<Built> {
        let place = image.as_ref().display().to_string();
        let watch = self.watch.clone();
        watch.outcome(&place, self.make(image.as_ref(), &place))
    }

    fn make(mut self, path: &Path, place: &str) -> Result<Built> {
        let overwrite = if self.replace { Overwrite::Replace } else { Overwrite::Refuse };
        if path.exists() && !self.replace {
            let why = std::io::Error::new(std::io::ErrorKind::AlreadyExists, "the file exists");
            return Err(Error::of_host(place, why));
        }
        let watch = self.watch;
        watch.at(Step::Sources, 0, None);
        let format = self.format.options(place)?;
        let sources = self.sources.into_iter().map(From::source).collect();
        let cancel = either(std::mem::take(&mut self.options.cancel), watch.token());
        self.options.cancel = cancel.clone();
        self.options.replaces = Some(path.to_owned());
        let options = std::mem::take(&mut self.options).for_format(&format);
        let tree = Tree::build(sources, &options).map_err(Error::of_sources)?;
        let names = tree.totals().names;
        watch.at(Step::Sources, names, Some(names));
        watch.check(place)?;
        let format = match self.epoch {
            Some(epoch) => populate::reproducible(&format, epoch, &tree),
            None => format,
        };
        let failed = |cause: ImageError| Error::of_image(place, cause);
        let planned = populate::Image::plan(&tree, &format, self.size.of_populate(), true).map_err(failed)?;
        watch.check(place)?;
        let pending = FileOptions::new().write(true).create_pending(path, planned.size(), overwrite)?;
        let device = CancelDevice::new(pending.device(), cancel.clone(), Until::End);
        watch.at(Step::Data, 0, Some(tree.totals().data.get()));
        let progress = Reported { watch: &watch, done: AtomicU64::new(0), all: tree.totals().data.get() };
        planned.write(&device, threads(), &progress).map_err(failed)?;
        if cancel.is_cancelled() {
            return Err(Error::cancelled(place));
        }
        pending.publish()?.flush()?;
        let block_size = planned.format().geometry().block_size;
        Ok(Built {
            size: planned.size().get(),
            free: planned.free().bytes(block_size).get(),
            totals: tree.totals(),
            warnings: tree.warnings().iter().map(ToString::to_string).collect(),
        })
    }
}

/// What asks at checkpoints whether the watch was cancelled, which the cancel of the options does, too.
fn either(own: Cancel, watch: Cancel) -> Cancel {
    Cancel::polling(move || {
        if own.is_cancelled() {
            watch.cancel();
        }
        watch.is_cancelled()
    })
}

impl From {
    fn source(self) -> Source {
        match self {
            Self::Folder(path) => Source::Folder(path),
            Self::Archive(path) => Source::Archive(path),
            Self::Container(reference) => Source::Container(reference),
            Self::Stream(name, reader) => Source::Stream { name, reader: reader.into_inner() },
        }
    }
}

impl Size {
    fn of_populate(self) -> populate::Size {
        match self {
            Self::Minimal => populate::Size::Min,
            Self::Ample => populate::Size::Default,
            Self::Exactly(bytes) => populate::Size::Exactly(Bytes::new(bytes)),
            Self::Free(bytes) => populate::Size::Free(Bytes::new(bytes)),
        }
    }
}

struct Reported<'a> {
    watch: &'a Watch,
    done: AtomicU64,
    all: u64,
}

impl Progress for Reported<'_> {
    fn advance(&self, bytes: Bytes) {
        let done = self.done.fetch_add(bytes.get(), Ordering::Relaxed) + bytes.get();
        self.watch.at(Step::Data, done, Some(self.all));
    }
}
