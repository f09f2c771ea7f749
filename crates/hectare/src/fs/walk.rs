//! Everything below a directory, one entry at a time.
//!
//! Invariant: it ends on every volume. A directory that is met again, which only a damaged volume has, is
//! reported and not entered.

use crate::error::Result;
use crate::fs::{DirEntry, ReadDir};
use std::collections::HashSet;

/// Everything below a directory: each directory comes before what it holds, in the order of [`ReadDir`].
/// Symbolic links are not followed. After an error it continues with what is next to the place.
///
/// Its memory grows with the number of directories.
#[derive(Debug)]
pub struct Walk {
    /// The directories that are being listed, the innermost last.
    levels: Vec<ReadDir>,
    /// The directory that came last: it is listed next.
    entered: Option<ReadDir>,
    /// The inodes of all directories that were met.
    met: HashSet<u64>,
}

impl Walk {
    pub(crate) fn new(top: ReadDir) -> Self {
        Self { met: HashSet::from([top.ino()]), entered: Some(top), levels: Vec::new() }
    }

    /// Leaves out what the directory holds that came last; nothing if that was none.
    pub fn skip_dir(&mut self) {
        self.entered = None;
    }

    /// Notes a directory as the one that is listed next.
    fn enter(&mut self, entry: &DirEntry) -> Result<()> {
        if !entry.file_type()?.is_dir() {
            return Ok(());
        }
        if !self.met.insert(entry.ino()) {
            return Err(entry.is_met_twice());
        }
        self.entered = Some(entry.read_dir());
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.levels.extend(self.entered.take());
        loop {
            match self.levels.last_mut()?.next() {
                None => self.levels.pop(),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => return Some(self.enter(&entry).map(|()| entry)),
            };
        }
    }
}
