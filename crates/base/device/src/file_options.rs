//! What a file or block device is opened or made with. How that is done is the affair of the host: `file` on
//! Linux, `portable` elsewhere.

/// What to do about a file that already has the name of a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// Fail and leave it as it is.
    Refuse,
    /// Take its place.
    Replace,
}

/// How to open a file or block device. As made: for reading only, locked, through the page cache.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    pub(crate) write: bool,
    pub(crate) shared: bool,
    pub(crate) direct: bool,
    /// Whether a pending file is its owner's alone while it has a hidden name.
    pub(crate) private: bool,
}

impl FileOptions {
    /// For reading only, locked against writers, through the page cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether changes are allowed. A writer has exclusive use.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Whether a lock is taken (default: yes): a file lock on a regular file, exclusive use of a block
    /// device. Without it others may write meanwhile.
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.shared = !exclusive;
        self
    }

    /// Whether the host's page cache is bypassed.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }
}
