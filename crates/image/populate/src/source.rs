//! Sources: directories and archives, applied in order as layers.
//!
//! A later source wins: a file replaces whatever had its name, a directory over a directory merges with it
//! and brings its own metadata, a directory over something else replaces it.
//!
//! With more than one source, OCI whiteouts are honoured in all of them, including directories: `.wh.NAME`
//! removes NAME of earlier sources, `.wh..wh..opq` hides the content of its directory in earlier sources;
//! neither affects its own source, wherever it appears in it, and neither is stored (in the first source they
//! have nothing to hide). Other names in `.wh..wh.` are bookkeeping of a union file system and are dropped, with
//! what lies below them.
//! With a single source such names are ordinary files: nothing can be hidden, and a faithful copy is what is
//! wanted. In the layers of a container image they always have their meaning.
//!
//! A source is laid at the root of the tree. So the path of a node in the tree is also its path in the source
//! directory, and no path has to be stored, but those of files that later layers link.

mod add;
mod addition;
mod apply;
mod blob;
mod builder;
mod checks;
mod container;
mod content;
mod digest;
mod duplicates;
mod exclude;
mod file_contexts;
mod finish;
mod folder;
mod host_file;
mod label;
mod modes;
mod names;
mod options;
mod platform;
mod seal;
mod settle;
mod sink;
mod sorted;
mod spec;
mod spool;
mod tar;
mod visible;
mod xattr;
mod xattr_sets;

pub use addition::Addition;
pub use container::Reference;
pub use content::{Content, Opener};
pub use exclude::Excludes;
pub use file_contexts::FileContexts;
pub use modes::ModeChange;
pub use options::Options;
pub use platform::Platform;
pub use spec::Spec;

use crate::error::Error;
use crate::tree::Tree;
use builder::{Builder, LayerKind};
use checks::Checks;
use container::Container;
use hectare_units::NO_OWNER;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;

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
        if let Some((uid, gid)) = options.owner.filter(|(uid, gid)| [*uid, *gid].contains(&NO_OWNER)) {
            let (value, reason) = (format!("{uid}:{gid}"), "4294967295 stands for no user or group");
            return Err(Error::Option { option: "--owner", value, reason });
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
    let (options, mut checks) = (builder.options, Checks::default());
    if !options.additions.is_empty() {
        add::add(&mut builder, &options.additions)?;
    }
    for spec in &options.specs {
        apply::apply(&mut builder, spec, &mut checks)?;
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
