//! What is told of the progress.

/// What is being done before anything can be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reading inode tables.
    Inodes,
    /// Reading directories.
    Names,
    /// Reading the journal for removed files.
    Log,
    /// Reading the blocks that belong to nobody.
    Scan,
}

/// Is informed of the progress.
pub trait Watch {
    /// So much of a step is done, in a unit of its own.
    fn advance(&self, step: Step, done: u64, all: u64);
}
