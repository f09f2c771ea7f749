//! Sources: directories and archives, applied in order as layers.
//!
//! A later source wins: a file replaces whatever had its name, a directory over a directory merges with it
//! and brings its own metadata, a directory over something else replaces it.
//!
//! With more than one source, OCI whiteouts are honoured in all of them, including directories: `.wh.NAME`
//! removes NAME of earlier sources, `.wh..wh..opq` hides the content of its directory in earlier sources;
//! neither affects its own source, wherever it appears in it, and neither is stored (in the first source they
//! have nothing to hide). Other names in `.wh..wh.` are bookkeeping of a union file system and are dropped.
//! With a single source such names are ordinary files: nothing can be hidden, and a faithful copy is what is
//! wanted. In the layers of a container image they always have their meaning.
//!
//! A source is laid at the root of the tree. So the path of a node in the tree is also its path in the source
//! directory, and no path has to be stored.

mod addition;
mod builder;
mod container;
mod content;
mod duplicates;
mod exclude;
mod file_contexts;
mod finish;
mod folder;
mod host_file;
mod label;
mod modes;
mod names;
mod seal;
mod settle;
mod sink;
mod sorted;
mod spec;
mod spool;
mod tar;
mod xattr;
mod xattr_sets;

pub use addition::Addition;
pub use container::{Platform, Reference};
pub use content::{Content, Opener};
pub use exclude::Excludes;
pub use file_contexts::FileContexts;
pub use modes::ModeChange;
pub use spec::Spec;

use crate::error::Error;
use crate::time::Timestamp;
use crate::tree::{Meta, Tree};
use builder::{Builder, LayerKind};
use container::Container;
use hectare_device::Cancel;
use hectare_units::Bytes;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// One layer of the content of an image.
pub enum Source {
    /// A directory; its own mode, owner and times become the root's.
    Folder(PathBuf),
    /// A tar archive, plain or compressed with gzip, zstd, xz or bzip2; a pipe or device is read like a
    /// stream. An archive of a container image counts as that image.
    Archive(PathBuf),
    /// A container image.
    Container(Reference),
    /// A tar archive, plain or compressed, read from start to end; a plain or decompressed copy is kept in an
    /// unnamed temporary file. An archive of a container image counts as that image.
    Stream {
        /// Its name in errors.
        name: String,
        /// Its bytes.
        reader: Box<dyn Read + Send>,
    },
}

impl Source {
    /// The source that an argument names: `-` is standard input; `oci:`, `oci-archive:` and
    /// `docker-archive:` begin a container image; a directory is itself, or the OCI image layout that it is;
    /// anything else is an archive.
    ///
    /// # Errors
    /// If it names a container image in a way that is not understood.
    pub fn from_argument(argument: &OsStr) -> Result<Self, Error> {
        if argument == "-" {
            let name = "standard input".to_owned();
            return Ok(Self::Stream { name, reader: Box::new(std::io::stdin()) });
        }
        if let Some(reference) = Reference::parse(argument)? {
            return Ok(Self::Container(reference));
        }
        let path = PathBuf::from(argument);
        Ok(match path.is_dir() {
            true if container::is_image(&path) => Self::Container(Reference::directory(path)),
            true => Self::Folder(path),
            false => Self::Archive(path),
        })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => f.debug_tuple("Folder").field(path).finish(),
            Self::Archive(path) => f.debug_tuple("Archive").field(path).finish(),
            Self::Container(reference) => f.debug_tuple("Container").field(reference).finish(),
            Self::Stream { name, .. } => f.debug_tuple("Stream").field(name).finish(),
        }
    }
}

/// How sources are read and what is changed in the process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Give every node this owner and group instead of its own.
    pub owner: Option<(u32, u32)>,
    /// Change permission bits; symbolic links keep theirs.
    pub modes: Option<ModeChange>,
    /// Make times reproducible: a modification time later than this second becomes it, and the other times
    /// become equal to the modification time (`SOURCE_DATE_EPOCH`).
    pub source_date_epoch: Option<i64>,
    /// Keep times in whole seconds and none of creation, as mke2fs does.
    pub whole_seconds: bool,
    /// What the root directory has instead of the metadata of any source.
    pub root: Option<Meta>,
    /// Take an owner that has no number in this user namespace for the one that the system reports, as mke2fs
    /// does.
    pub foreign_owners: bool,
    /// Keep no extended attributes.
    pub no_attributes: bool,
    /// What to leave out.
    pub excludes: Excludes,
    /// Threads that scan a directory.
    pub threads: NonZeroUsize,
    /// Where to keep the copy of a stream or compressed archive; the system's temporary directory if `None`.
    pub spool_directory: Option<PathBuf>,
    /// Whether an archive may hold nothing; else that is an error, since disk images look like that.
    pub allow_empty: bool,
    /// Which variant to take of a container image for several platforms; this machine's if `None`.
    pub platform: Option<Platform>,
    /// The limit of what the sources may unpack to: bytes of an archive's copy, and bytes of file data and
    /// directories (4 KiB each) together.
    pub max_size: Option<Bytes>,
    /// Single files, added after the sources in this order.
    pub additions: Vec<Addition>,
    /// What the sources can't say, applied after them in this order.
    pub specs: Vec<Spec>,
    /// Find regular files with the same content, so that an image stores their blocks once.
    pub find_duplicates: bool,
    /// Labels for everything.
    pub labels: Option<Arc<FileContexts>>,
    /// Ends the reading of sources early. Writing ends if the device does
    /// ([`CancelDevice`](hectare_device::CancelDevice)).
    pub cancel: Cancel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            owner: None,
            modes: None,
            source_date_epoch: None,
            whole_seconds: false,
            root: None,
            foreign_owners: false,
            no_attributes: false,
            excludes: Excludes::default(),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            spool_directory: None,
            allow_empty: false,
            platform: None,
            max_size: None,
            additions: Vec::new(),
            specs: Vec::new(),
            find_duplicates: false,
            labels: None,
            cancel: Cancel::new(),
        }
    }
}

impl Options {
    /// Where copies of archives are kept.
    fn temporary_directory(&self) -> PathBuf {
        self.spool_directory.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The metadata that a node gets in the image.
    fn adjust(&self, meta: &mut Meta, is_directory: bool, is_symlink: bool) {
        meta.mode &= 0o7777;
        if let Some((uid, gid)) = self.owner {
            (meta.uid, meta.gid) = (uid, gid);
        }
        if let (Some(modes), false) = (&self.modes, is_symlink) {
            meta.mode = modes.apply(meta.mode, is_directory);
        }
        if let Some(epoch) = self.source_date_epoch {
            let time = meta.mtime.min(Timestamp::at(epoch));
            (meta.atime, meta.mtime, meta.ctime, meta.crtime) = (time, time, time, Some(time));
        }
        if self.whole_seconds {
            let times = [&mut meta.atime, &mut meta.mtime, &mut meta.ctime];
            times.into_iter().for_each(|time| *time = Timestamp::at(time.seconds));
            meta.crtime = None;
        }
    }

    /// The metadata of a directory that no source describes: 0755, root's, as old as `source_date_epoch` or
    /// 1970.
    fn default_directory(&self) -> Meta {
        let time = Timestamp::at(self.source_date_epoch.unwrap_or(0));
        Meta { mode: 0o755, uid: 0, gid: 0, atime: time, mtime: time, ctime: time, crtime: None }
    }
}

impl Tree {
    /// Reads sources into a tree, each over the ones before it. No sources give an empty root directory.
    ///
    /// # Errors
    /// If a source can't be read, changes while it is read, is no valid archive, or holds something that no
    /// image can hold.
    pub fn build(sources: Vec<Source>, options: &Options) -> Result<Self, Error> {
        if sources.len() + options.specs.len() + 3 > usize::from(u16::MAX) {
            return Err(Error::TooMany { what: "sources", limit: u64::from(u16::MAX) - 3 });
        }
        let mut builder = Builder::new(options, sources.len() > 1);
        for source in sources {
            Error::unless(&options.cancel)?;
            let handle = match source {
                Source::Folder(path) => {
                    builder.begin_layer(folder::open(&path)?, LayerKind::Folder)?;
                    builder = folder::scan(builder, options.threads)?;
                    continue;
                }
                Source::Container(reference) => {
                    Container::open(&reference, options)?.add_to(&mut builder)?;
                    continue;
                }
                Source::Archive(path) => spool::open(&path, options)?,
                Source::Stream { name, reader } => spool::copy(name.as_bytes(), reader, options)?,
            };
            match Container::recognise(handle, options)? {
                Ok(container) => container.add_to(&mut builder)?,
                Err(archive) => {
                    builder.begin_layer(archive, LayerKind::Archive)?;
                    tar::read(&mut builder)?;
                }
            }
        }
        finish(builder)
    }
}

/// Applies what comes after the sources, and finishes the tree.
fn finish(mut builder: Builder<'_>) -> Result<Tree, Error> {
    let (options, mut checks) = (builder.options, spec::Checks::default());
    if !options.additions.is_empty() {
        addition::add(&mut builder, &options.additions)?;
    }
    for spec in &options.specs {
        spec::apply(&mut builder, spec, &mut checks)?;
    }
    if options.labels.is_some() {
        label::add_lost_and_found(&mut builder)?;
    }
    let mut tree = builder.finish();
    checks.verify(&tree)?;
    if let Some(contexts) = &options.labels {
        label::label(&mut tree, contexts);
    }
    if options.find_duplicates {
        tree.duplicates = duplicates::find(&tree, options.threads, &options.cancel)?;
    }
    Ok(tree)
}
