//! What a line of a specification says, whatever its format.

use super::digest::DigestValue;
use crate::time::Timestamp;
use crate::tree::Xattr;

/// One line, or several that belong together.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its number, from 1.
    pub(super) line: u64,
    /// Path from the root, without a leading slash; empty for the root.
    pub(super) path: Box<[u8]>,
    pub(super) kind: Option<EntryKind>,
    pub(super) change: Change,
    pub(super) missing: Missing,
    /// Whether everything below gets the metadata, too.
    pub(super) recursive: bool,
    /// The entry stands for several devices.
    pub(super) series: Option<Series>,
}

/// What is at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryKind {
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
pub(super) enum Missing {
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
pub(super) struct Change {
    pub(super) mode: Option<u16>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) time: Option<Timestamp>,
    pub(super) target: Option<Box<[u8]>>,
    pub(super) device: Option<(u32, u32)>,
    /// A file of the host.
    pub(super) content: Option<Box<[u8]>>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) size: Option<u64>,
    pub(super) digests: Vec<DigestValue>,
}

/// Devices `path` + number, from `start` on, whose minor numbers grow by `increment`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) start: u32,
    pub(super) increment: u32,
    pub(super) count: u32,
}

impl Entry {
    /// An entry that changes nothing.
    pub(super) fn new(line: u64, path: &[u8]) -> Self {
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
    pub(super) const fn name(self) -> &'static str {
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
