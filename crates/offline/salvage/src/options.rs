//! How a volume is salvaged, and why it can't be.

use hectare_probe::WhichSuperblock;

/// How a volume is salvaged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The superblock to go by; the first that is usable, if none is given.
    pub superblock: Option<WhichSuperblock>,
    /// Don't replay the journal.
    pub no_journal: bool,
    /// Find removed files as well.
    pub deleted: bool,
}

/// Why nothing can be salvaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no usable superblock; with what is wrong with the first.
    #[error("no superblock is usable, nor any copy of it: {0}")]
    NoSuperblock(String),
    /// The volume uses something that is not handled.
    #[error("{0}")]
    Unsupported(String),
}
