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
//! wanted.
//!
//! A source is laid at the root of the tree. So the path of a node in the tree is also its path in the source
//! directory, and no path has to be stored.

mod builder;
mod content;
mod exclude;
mod file_contexts;
mod finish;
mod folder;
mod host_file;
mod label;
mod modes;
mod names;
mod settle;
mod spec;
mod spool;
mod tar;
mod xattr;
mod xattr_sets;

pub use content::{Content, Opener};
pub use exclude::Excludes;
pub use file_contexts::FileContexts;
pub use modes::ModeChange;
pub use spec::Spec;

use crate::error::Error;
use crate::time::Timestamp;
use crate::tree::{Meta, Tree};
use builder::Builder;
use hectare_units::Bytes;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// One layer of the content of an image.
pub enum Source {
    /// A directory; its own mode, owner and times become the root's.
    Folder(PathBuf),
    /// A tar archive, plain or compressed with gzip or zstd; a pipe or device is read like a stream.
    Archive(PathBuf),
    /// A tar archive, plain or compressed, read from start to end; a plain or decompressed copy is kept in an
    /// unnamed temporary file.
    Stream {
        /// Its name in errors.
        name: String,
        /// Its bytes.
        reader: Box<dyn Read + Send>,
    },
}

impl Source {
    /// The source that an argument names: `-` is standard input, a directory is itself, anything else an
    /// archive.
    #[must_use]
    pub fn from_argument(argument: &OsStr) -> Self {
        if argument == "-" {
            return Self::Stream { name: "standard input".to_owned(), reader: Box::new(std::io::stdin()) };
        }
        let path = PathBuf::from(argument);
        if path.is_dir() { Self::Folder(path) } else { Self::Archive(path) }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => f.debug_tuple("Folder").field(path).finish(),
            Self::Archive(path) => f.debug_tuple("Archive").field(path).finish(),
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
    /// What to leave out.
    pub excludes: Excludes,
    /// Threads that scan a directory.
    pub threads: NonZeroUsize,
    /// Where to keep the copy of a stream or compressed archive; the system's temporary directory if `None`.
    pub spool_directory: Option<PathBuf>,
    /// Whether an archive may hold nothing; else that is an error, since disk images look like that.
    pub allow_empty: bool,
    /// The limit of what the sources may unpack to: bytes of an archive's copy, and bytes of file data and
    /// directories (4 KiB each) together.
    pub max_size: Option<Bytes>,
    /// What the sources can't say, applied after them in this order.
    pub specs: Vec<Spec>,
    /// Labels for everything.
    pub labels: Option<Arc<FileContexts>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            owner: None,
            modes: None,
            source_date_epoch: None,
            excludes: Excludes::default(),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            spool_directory: None,
            allow_empty: false,
            max_size: None,
            specs: Vec::new(),
            labels: None,
        }
    }
}

impl Options {
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
    /// If a source can't be read, changes while it is read, is no valid archive, or holds something that no
    /// image can hold.
    pub fn build(sources: Vec<Source>, options: &Options) -> Result<Self, Error> {
        if sources.len() + options.specs.len() + 2 > usize::from(u16::MAX) {
            return Err(Error::TooMany { what: "sources", limit: u64::from(u16::MAX) - 2 });
        }
        let mut builder = Builder::new(options, sources.len() > 1);
        for source in sources {
            match source {
                Source::Folder(path) => {
                    let handle = folder::open(&path)?;
                    builder.begin_layer(handle, false)?;
                    builder = folder::scan(builder, options.threads)?;
                }
                Source::Archive(path) => {
                    let handle = spool::open(&path, options)?;
                    builder.begin_layer(handle, true)?;
                    tar::read(&mut builder)?;
                }
                Source::Stream { name, reader } => {
                    let name = OsStr::new(&name).as_bytes();
                    let handle = spool::copy(name, reader, options)?;
                    builder.begin_layer(handle, true)?;
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
    Ok(tree)
}
