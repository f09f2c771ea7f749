//! An opened source, as a tree keeps it.
//!
//! What this is not: reading it (that is `source`).

use crate::error::ShownPath;
use crate::time::PackedTime;
use hectare_units::Bytes;
use rustix::fd::OwnedFd;
use std::fs::File;

/// An opened source, kept so that the data of its files can be read.
#[derive(Debug)]
pub(crate) enum SourceHandle {
    Folder {
        root: OwnedFd,
        path: Box<[u8]>,
    },
    Archive {
        file: File,
        name: Box<[u8]>,
        len: Bytes,
        mtime: PackedTime,
    },
    /// What describes files but holds none: a specification, or the files named by themselves.
    List {
        name: Box<[u8]>,
    },
}

impl SourceHandle {
    /// How an entry of this source is named in errors.
    pub(crate) fn shown(&self, entry: &[u8]) -> ShownPath {
        match self {
            Self::Folder { path, .. } => ShownPath::inside(path, b'/', entry),
            Self::Archive { name, .. } | Self::List { name } => ShownPath::inside(name, b':', entry),
        }
    }
}
