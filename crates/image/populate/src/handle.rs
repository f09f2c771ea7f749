//! An opened source, as a tree keeps it.
//!
//! What this is not: reading it (that is `source`).

use crate::error::ShownPath;
use crate::time::PackedTime;
use hectare_host::Folder;
use hectare_units::Bytes;
use std::fs::File;
use std::ops::Range;

/// An opened source, kept so that the data of its files can be read.
#[derive(Debug)]
pub(crate) enum SourceHandle {
    Folder {
        root: Folder,
        path: Box<[u8]>,
    },
    Archive {
        file: File,
        name: Box<[u8]>,
        /// The bytes of the file that are the archive: all of them, unless it lies inside another archive.
        range: Range<u64>,
        /// Length and modification time of the file, which show whether it is still the same.
        len: Bytes,
        mtime: PackedTime,
    },
    /// What describes files but holds none: a specification, or the files named by themselves.
    List {
        name: Box<[u8]>,
    },
}

impl SourceHandle {
    /// Its own name in errors.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Self::Folder { path: name, .. } | Self::Archive { name, .. } | Self::List { name } => name,
        }
    }

    /// How an entry of this source is named in errors.
    pub(crate) fn shown(&self, entry: &[u8]) -> ShownPath {
        match self {
            Self::Folder { path, .. } => ShownPath::inside(path, b'/', entry),
            Self::Archive { name, .. } | Self::List { name } => ShownPath::inside(name, b':', entry),
        }
    }
}
