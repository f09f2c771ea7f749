//! What a line of a specification says, whatever its format.

use super::digest::DigestValue;
use crate::time::Timestamp;
use crate::tree::Xattr;

/// One line, or several that belong together.
#[derive(Clone, Debug)]
pub(in crate::source) struct Entry {
    /// Its number, from 1.
    pub(in crate::source) line: u64,
    /// Path from the root, without a leading slash; empty for the root.
    pub(in crate::source) path: Box<[u8]>,
    pub(in crate::source) kind: Option<EntryKind>,
    pub(in crate::source) change: Change,
    pub(in crate::source) missing: Missing,
    /// Whether everything below gets the metadata, too.
    pub(in crate::source) recursive: bool,
    /// The entry stands for several devices.
    pub(in crate::source) series: Option<Series>,
}

/// What is at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::source) enum EntryKind {
    Directory,
    File,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

/// What to do where nothing is at the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::source) enum Missing {
    /// Make it.
    Make,
    /// Make it, and directories above it that are missing.
    MakeWithParents,
    /// Pass over the entry.
    Skip,
    /// It is an error.
    Refuse,
}

/// What is set (owner, mode, time, target, device, content, attributes) or compared (size, digests).
#[derive(Clone, Debug, Default)]
pub(in crate::source) struct Change {
    pub(in crate::source) mode: Option<u16>,
    pub(in crate::source) uid: Option<u32>,
    pub(in crate::source) gid: Option<u32>,
    pub(in crate::source) time: Option<Timestamp>,
    pub(in crate::source) target: Option<Box<[u8]>>,
    pub(in crate::source) device: Option<(u32, u32)>,
    /// A file of the host.
    pub(in crate::source) content: Option<Box<[u8]>>,
    pub(in crate::source) xattrs: Vec<Xattr>,
    pub(in crate::source) size: Option<u64>,
    pub(in crate::source) digests: Vec<DigestValue>,
}

/// Devices `path` + number, from `start` on, whose minor numbers grow by `increment`.
#[derive(Clone, Copy, Debug)]
pub(in crate::source) struct Series {
    pub(in crate::source) start: u32,
    pub(in crate::source) increment: u32,
    pub(in crate::source) count: u32,
}

impl Entry {
    /// An entry that changes nothing.
    pub(in crate::source) fn new(line: u64, path: &[u8]) -> Self {
        Self {
            line,
            path: path.into(),
            kind: None,
            change: Change::default(),
            missing: Missing::Refuse,
            recursive: false,
            series: None,
        }
    }
}

impl EntryKind {
    /// Its name in messages.
    pub(in crate::source) const fn name(self) -> &'static str {
        match self {
            Self::Directory => "a directory",
            Self::File => "a regular file",
            Self::Symlink => "a symbolic link",
            Self::CharDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
        }
    }
}
