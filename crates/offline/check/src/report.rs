//! The findings of a check, as data.

use hectare_ext4::error::{Corrupt, Place, Unsupported};
use hectare_units::{OutOfMemory, u64_of};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;

/// How to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Orphans (inodes to be deleted or truncated when the volume is next opened) are no problem.
    pub allow_orphans: bool,
    /// A journal that must be replayed is no problem.
    pub allow_recovery: bool,
    /// How many problems are kept; the others are only counted.
    pub problems_max: usize,
    /// How many threads read the volume. The report does not depend on it: where several find something in
    /// inodes or directories, one reads all anew. There are no more than groups.
    pub threads: NonZeroUsize,
}

impl Options {
    /// Whether there is more than one thread.
    pub(crate) fn has_others(&self) -> bool {
        self.threads > NonZeroUsize::MIN
    }

    /// A number for each thread but one.
    pub(crate) fn other_threads(&self) -> Range<usize> {
        1..self.threads.get()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { allow_orphans: false, allow_recovery: false, problems_max: 1000, threads: NonZeroUsize::MIN }
    }
}

/// The structure a problem was found in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// The superblock.
    Superblock,
    /// A group descriptor, or where the structures lie that it names.
    GroupDescriptor,
    /// An inode's own fields.
    Inode,
    /// An extent tree or indirect map.
    Map,
    /// A block that belongs to two.
    SharedBlock,
    /// Extended attributes.
    Attributes,
    /// The entries of a directory.
    Directory,
    /// The index of a directory.
    Index,
    /// A directory's place in the tree.
    Tree,
    /// How many names an inode has.
    LinkCount,
    /// A block bitmap.
    BlockBitmap,
    /// An inode bitmap.
    InodeBitmap,
    /// A group's counts of what is free.
    Counts,
    /// Orphans that wait for their end.
    Orphans,
    /// The journal.
    Journal,
    /// The inode that holds the blocks kept for growing.
    ResizeInode,
    /// The multiple mount protection.
    MountProtection,
    /// A quota file.
    Quota,
}

impl What {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 18] = [
        Self::Superblock,
        Self::GroupDescriptor,
        Self::Inode,
        Self::Map,
        Self::SharedBlock,
        Self::Attributes,
        Self::Directory,
        Self::Index,
        Self::Tree,
        Self::LinkCount,
        Self::BlockBitmap,
        Self::InodeBitmap,
        Self::Counts,
        Self::Orphans,
        Self::Journal,
        Self::ResizeInode,
        Self::MountProtection,
        Self::Quota,
    ];

    /// Its name in a message.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::GroupDescriptor => "group descriptor",
            Self::Inode => "inode fields",
            Self::Map => "block map",
            Self::SharedBlock => "block map, twice used,",
            Self::Attributes => "extended attributes",
            Self::Directory => "directory",
            Self::Index => "directory index",
            Self::Tree => "directory tree",
            Self::LinkCount => "link count",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::Counts => "counts",
            Self::Orphans => "orphans",
            Self::Journal => "journal",
            Self::ResizeInode => "resize inode",
            Self::MountProtection => "multiple mount protection",
            Self::Quota => "quotas",
        }
    }

    /// Its name for programs; stable.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::GroupDescriptor => "group_descriptor",
            Self::Inode => "inode",
            Self::Map => "map",
            Self::SharedBlock => "shared_block",
            Self::Attributes => "attributes",
            Self::Directory => "directory",
            Self::Index => "index",
            Self::Tree => "tree",
            Self::LinkCount => "link_count",
            Self::BlockBitmap => "block_bitmap",
            Self::InodeBitmap => "inode_bitmap",
            Self::Counts => "counts",
            Self::Orphans => "orphans",
            Self::Journal => "journal",
            Self::ResizeInode => "resize_inode",
            Self::MountProtection => "mount_protection",
            Self::Quota => "quota",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The structure.
    pub what: What,
    /// Where it lies.
    pub place: Place,
    /// What is wrong with it.
    pub reason: Cow<'static, str>,
}

impl Problem {
    /// A problem that a parser found.
    #[must_use]
    pub(crate) fn of(what: What, corrupt: Corrupt) -> Self {
        Self { what, place: corrupt.place, reason: corrupt.reason }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.what.name(), self.place, self.reason)
    }
}

/// How much was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Groups.
    pub groups: u32,
    /// Inodes in use, the reserved ones included.
    pub inodes_used: u32,
    /// Directories among them.
    pub directories: u32,
    /// Clusters in use (blocks without `bigalloc`).
    pub clusters_used: u64,
}

/// What was found in short: of all problems, those not kept included.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Digest {
    /// What has problems, in the order of the first of each.
    pub subjects: Vec<What>,
    /// Inodes of directories with a broken block, record or index.
    pub directories: BTreeSet<u32>,
    /// Groups whose descriptor says that inodes are unused which are in use.
    pub unread: BTreeSet<u32>,
}

impl Digest {
    fn note(&mut self, what: What, place: Place) {
        if !self.subjects.contains(&what) {
            self.subjects.push(what);
        }
        let (Place::Inode(nr) | Place::FileBlock(nr, _)) = place else { return };
        if matches!(what, What::Directory | What::Index) {
            self.directories.insert(nr.get());
        }
    }
}

/// What a check has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What is wrong, in the order it was found; no more than [`Options::problems_max`].
    pub problems: Vec<Problem>,
    /// How many problems there are, those not kept included.
    pub problem_count: u64,
    /// All of them in short.
    pub digest: Digest,
    /// What differs from the ideal and is no problem: it is put right silently whenever the volume is opened
    /// for writing, such as the superblock's summary of what is free, or may be meant, such as late times.
    pub notes: Vec<Problem>,
    /// What could not be judged, by name. It is not counted as a problem.
    pub unchecked: Vec<String>,
    /// How much was looked at.
    pub counts: Counts,
}

impl Report {
    /// Whether no problem was found. What is [`unchecked`](Self::unchecked) is none.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    /// Adds a problem; keeps at most `max`.
    pub(crate) fn tell(&mut self, problem: Problem, max: usize) {
        self.problem_count = self.problem_count.saturating_add(1);
        self.digest.note(problem.what, problem.place);
        if self.problems.len() < max {
            self.problems.push(problem);
        }
    }

    /// How much it has: problems, notes and what was left.
    pub(crate) fn extent(&self) -> [u64; 3] {
        [self.problem_count, u64_of(self.notes.len()), u64_of(self.unchecked.len())]
    }

    /// Names something that was not judged, once.
    pub(crate) fn leave(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.unchecked.contains(&what) {
            self.unchecked.push(what);
        }
    }
}

/// Why a volume could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The device holds something else than a volume; the text says what, and what to do.
    #[error("{0}")]
    NotAVolume(String),
    /// The volume uses something that can't be read.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The system refused memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// Its map would not fit the memory.
    #[error("a volume of {0} clusters is too large to be checked in memory")]
    TooLarge(u64),
}
