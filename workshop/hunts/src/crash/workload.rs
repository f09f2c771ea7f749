//! The workloads, by the operations they consist of.
//!
//! A [`Generator`] chooses each operation from the state that those before it left, so that all of them
//! succeed; the same seed chooses the same.

mod generate;

pub(super) use generate::Generator;

/// What is done to a volume until it crashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Workload {
    /// Creating, linking, renaming, removing.
    Names,
    /// Appending and syncing.
    Append,
    /// Overwriting.
    Overwrite,
    /// Truncating and growing, of open unlinked files too.
    Truncate,
    /// Allocating, punching, zeroing, moving ranges.
    Fallocate,
    /// Extended attributes.
    Xattr,
    /// Directories of hundreds of names.
    Directory,
    /// All of it, by several threads.
    Mixed,
    /// Files of many extents, whose trees are deep.
    Large,
    /// A volume that runs full.
    Full,
    /// All of it, while a thread of the volume commits at any time.
    Committer,
}

/// What an operation may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Create,
    MakeDir,
    Symlink,
    Link,
    Rename,
    Exchange,
    Unlink,
    RemoveDir,
    SetXattr,
    RemoveXattr,
    Append,
    Overwrite,
    WriteFar,
    Comb,
    Cut,
    Grow,
    Allocate,
    Punch,
    Zero,
    Collapse,
    Insert,
    Close,
    SyncFile,
    SyncData,
    SyncDir,
    SyncAll,
}

use Verb::{
    Allocate, Append, Close, Collapse, Comb, Create, Cut, Exchange, Grow, Insert, Link, MakeDir, Overwrite,
    Punch, RemoveDir, RemoveXattr, Rename, SetXattr, Symlink, SyncAll, SyncData, SyncDir, SyncFile, Unlink,
    WriteFar, Zero,
};

type Weights = &'static [(u64, Verb)];

const NAMES: Weights = &[
    (30, Create),
    (8, MakeDir),
    (6, Symlink),
    (8, Link),
    (20, Rename),
    (4, Exchange),
    (18, Unlink),
    (5, RemoveDir),
    (6, Append),
    (3, Close),
    (4, SyncAll),
    (4, SyncDir),
    (4, SyncFile),
];
const APPEND: Weights = &[
    (50, Append),
    (20, SyncFile),
    (8, SyncData),
    (6, Create),
    (3, Unlink),
    (6, Close),
    (2, Rename),
    (1, SyncAll),
];
const OVERWRITE: Weights = &[
    (50, Overwrite),
    (8, Append),
    (6, WriteFar),
    (14, SyncData),
    (4, SyncFile),
    (4, Create),
    (2, Unlink),
    (3, Close),
    (1, SyncAll),
];
const TRUNCATE: Weights = &[
    (22, Cut),
    (10, Grow),
    (22, Append),
    (8, WriteFar),
    (6, Overwrite),
    (8, Create),
    (7, Unlink),
    (4, Rename),
    (6, Close),
    (8, SyncFile),
    (3, SyncData),
    (3, SyncAll),
];
const FALLOCATE: Weights = &[
    (14, Allocate),
    (14, Punch),
    (12, Zero),
    (6, Collapse),
    (6, Insert),
    (16, Append),
    (12, Overwrite),
    (4, WriteFar),
    (5, Cut),
    (3, Grow),
    (5, Create),
    (3, Unlink),
    (4, Close),
    (9, SyncFile),
    (4, SyncData),
    (2, SyncAll),
];
const XATTR: Weights = &[
    (45, SetXattr),
    (18, RemoveXattr),
    (8, Create),
    (3, MakeDir),
    (4, Symlink),
    (3, Link),
    (6, Unlink),
    (3, Rename),
    (8, SyncFile),
    (2, SyncDir),
    (3, SyncAll),
];
const DIRECTORY: Weights = &[
    (60, Create),
    (6, Link),
    (4, Symlink),
    (12, Rename),
    (24, Unlink),
    (2, MakeDir),
    (1, RemoveDir),
    (3, SyncDir),
    (3, SyncAll),
];
const MIXED: Weights = &[
    (12, Create),
    (4, MakeDir),
    (3, Symlink),
    (4, Link),
    (9, Rename),
    (2, Exchange),
    (8, Unlink),
    (2, RemoveDir),
    (8, SetXattr),
    (3, RemoveXattr),
    (14, Append),
    (10, Overwrite),
    (4, WriteFar),
    (5, Cut),
    (3, Grow),
    (4, Allocate),
    (4, Punch),
    (4, Zero),
    (2, Collapse),
    (2, Insert),
    (5, Close),
    (5, SyncFile),
    (3, SyncData),
    (2, SyncDir),
    (2, SyncAll),
];
const LARGE: Weights = &[
    (22, Comb),
    (8, Append),
    (8, WriteFar),
    (10, Overwrite),
    (10, Cut),
    (4, Grow),
    (12, Punch),
    (8, Allocate),
    (8, Zero),
    (6, Collapse),
    (6, Insert),
    (6, Create),
    (4, Unlink),
    (4, Close),
    (8, SyncFile),
    (4, SyncData),
    (2, SyncAll),
];
const FULL: Weights = &[
    (26, Append),
    (12, WriteFar),
    (10, Overwrite),
    (14, Allocate),
    (6, Punch),
    (8, Cut),
    (14, Create),
    (5, MakeDir),
    (5, Symlink),
    (4, Link),
    (5, Rename),
    (10, Unlink),
    (8, SetXattr),
    (2, RemoveXattr),
    (4, Close),
    (8, SyncFile),
    (3, SyncData),
    (2, SyncDir),
    (3, SyncAll),
];

impl Workload {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Names,
        Self::Append,
        Self::Overwrite,
        Self::Truncate,
        Self::Fallocate,
        Self::Xattr,
        Self::Directory,
        Self::Mixed,
        Self::Large,
        Self::Full,
        Self::Committer,
    ];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Append => "append",
            Self::Overwrite => "overwrite",
            Self::Truncate => "truncate",
            Self::Fallocate => "fallocate",
            Self::Xattr => "xattr",
            Self::Directory => "directory",
            Self::Mixed => "mixed",
            Self::Large => "large",
            Self::Full => "full",
            Self::Committer => "committer",
        }
    }

    /// The workload with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// How many threads work.
    #[must_use]
    pub const fn threads(self) -> usize {
        if matches!(self, Self::Mixed) { 4 } else { 1 }
    }

    /// Whether a thread of the volume commits.
    pub(super) const fn has_committer(self) -> bool {
        matches!(self, Self::Committer)
    }

    /// Whether there is little space.
    pub(super) const fn runs_full(self) -> bool {
        matches!(self, Self::Full)
    }

    /// Whether a run does the same each time.
    #[must_use]
    pub const fn follows_from_its_seed(self) -> bool {
        self.threads() == 1 && !self.has_committer()
    }

    const fn weights(self) -> Weights {
        match self {
            Self::Names => NAMES,
            Self::Append => APPEND,
            Self::Overwrite => OVERWRITE,
            Self::Truncate => TRUNCATE,
            Self::Fallocate => FALLOCATE,
            Self::Xattr => XATTR,
            Self::Directory => DIRECTORY,
            Self::Mixed | Self::Committer => MIXED,
            Self::Large => LARGE,
            Self::Full => FULL,
        }
    }

    /// Names there are at most in a thread's tree.
    const fn names_max(self) -> usize {
        match self {
            Self::Directory => 250,
            Self::Names | Self::Full => 40,
            Self::Large => 5,
            _ => 12,
        }
    }

    /// Bytes of a file at most.
    const fn size_max(self) -> u64 {
        if matches!(self, Self::Large) { 1 << 20 } else { 96 << 10 }
    }

    /// Bytes that one operation changes at most.
    const fn change_max(self) -> u64 {
        if matches!(self, Self::Large) { 256 << 10 } else { 16 << 10 }
    }
}
