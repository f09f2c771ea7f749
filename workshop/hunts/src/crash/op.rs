//! The operations of a workload.
//!
//! Files, directories and links have ids of their own, which become the owner of the inode: so that what is
//! found after a crash can be identified without its name. Operations on content name the file by its id, as
//! it may have lost its name.

use super::content::Edit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One operation. Paths are relative to the root of the volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Op {
    /// Makes an empty file.
    Create { path: String, id: u32 },
    /// Makes a directory.
    MakeDir { path: String, id: u32 },
    /// Makes a symbolic link.
    Symlink { path: String, id: u32, target: String },
    /// Gives a file a second name.
    Link { from: String, to: String },
    /// Renames, over a file if there is one.
    Rename { from: String, to: String },
    /// Exchanges two names.
    Exchange { a: String, b: String },
    /// Removes the name of anything but a directory.
    Unlink { path: String },
    /// Removes an empty directory.
    RemoveDir { path: String },
    /// Sets an attribute to a value of this many bytes.
    SetXattr { path: String, name: String, len: usize },
    /// Removes an attribute.
    RemoveXattr { path: String, name: String },
    /// Changes the content of a file.
    Edit { id: u32, edit: Edit },
    /// Closes a file that operations on content have opened.
    Close { id: u32 },
    /// Makes a file durable.
    SyncFile { id: u32 },
    /// Makes a file's content durable.
    SyncData { id: u32 },
    /// Makes the names in a directory durable.
    SyncDir { path: String },
    /// Makes everything durable.
    SyncAll,
    /// What the volume had no room for: nothing was done.
    Refused { what: String },
}

impl Op {
    /// Whether it promises that something is durable when it has returned.
    pub(super) fn is_sync(&self) -> bool {
        matches!(self, Self::SyncFile { .. } | Self::SyncData { .. } | Self::SyncDir { .. } | Self::SyncAll)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { path, id } => write!(f, "create {path} (id {id})"),
            Self::MakeDir { path, id } => write!(f, "mkdir {path} (id {id})"),
            Self::Symlink { path, id, target } => write!(f, "symlink {path} -> {target} (id {id})"),
            Self::Link { from, to } => write!(f, "link {from} as {to}"),
            Self::Rename { from, to } => write!(f, "rename {from} to {to}"),
            Self::Exchange { a, b } => write!(f, "exchange {a} and {b}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::RemoveDir { path } => write!(f, "rmdir {path}"),
            Self::SetXattr { path, name, len } => write!(f, "setxattr {path} {name}, {len} bytes"),
            Self::RemoveXattr { path, name } => write!(f, "removexattr {path} {name}"),
            Self::Edit { id, edit } => write!(f, "file {id}: {edit}"),
            Self::Close { id } => write!(f, "close file {id}"),
            Self::SyncFile { id } => write!(f, "fsync file {id}"),
            Self::SyncData { id } => write!(f, "fdatasync file {id}"),
            Self::SyncDir { path } => write!(f, "fsync directory {path}"),
            Self::SyncAll => write!(f, "sync"),
            Self::Refused { what } => write!(f, "no room to {what}"),
        }
    }
}
