//! How far a check is, for callers that show it.

/// What a check is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Looking at every inode; counted in groups.
    Inodes,
    /// Reading directories; counted in directories.
    Directories,
    /// Comparing bitmaps; counted in groups.
    Bitmaps,
}

/// Called for every piece of work that is done, from any thread: what is being done, how much of it is done,
/// and how much there is. Where one thread begins anew, because several found something, the numbers do too.
pub type Watch<'a> = dyn Fn(Step, u64, u64) + Sync + 'a;
