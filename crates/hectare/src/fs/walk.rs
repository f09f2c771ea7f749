//! Everything below a directory, one entry at a time.
//!
//! Invariants: it ends on every volume, since a directory that is met again is not entered; and it has the path
//! of the innermost directory only, since paths of all levels would take memory by the square of the depth.
//!
//! A directory is met again for one of three reasons: it was moved meanwhile, and is listed once; its number was
//! given to a new directory, which has another generation; or the volume is damaged and gives it two names, of
//! which at most one is where its `..` leads. Only that is an error.

use crate::error::Result;
use crate::fs::read_dir::{DirEntry, Paused, ReadDir};
use std::collections::HashMap;

/// Everything below a directory: each directory comes before what it holds, in the order of [`ReadDir`].
/// Symbolic links are not followed. A directory that is moved meanwhile is listed once. After an error it
/// continues with what is next to the place.
///
/// Its memory grows with the number of directories.
#[derive(Debug)]
pub struct Walk {
    /// The directory that is being listed.
    innermost: Option<ReadDir>,
    /// Those that it lies in, the outermost first.
    above: Vec<Paused>,
    /// The directory that came last: it is listed next.
    entered: Option<ReadDir>,
    /// The inodes of all directories that were met.
    met: HashMap<u64, Met>,
}

/// What was found when a directory was met.
#[derive(Clone, Copy, Debug)]
struct Met {
    generation: u32,
    /// Whether its `..` led elsewhere than where it was met.
    misplaced: bool,
}

impl Walk {
    pub(crate) fn new(top: ReadDir) -> Self {
        let met = HashMap::from([(top.ino(), Met { generation: top.generation(), misplaced: false })]);
        Self { innermost: Some(top), above: Vec::new(), entered: None, met }
    }

    /// Leaves out what the directory holds that came last; nothing if that was none.
    pub fn skip_dir(&mut self) {
        self.entered = None;
    }

    /// Lists the directory that was entered, before the rest of the one that it lies in.
    fn descend(&mut self) {
        if let Some(entered) = self.entered.take() {
            self.above.extend(self.innermost.replace(entered).map(ReadDir::pause));
        }
    }

    /// Notes a directory as the one that is listed next.
    fn enter(&mut self, entry: &DirEntry) -> Result<()> {
        if !entry.file_type()?.is_dir() {
            return Ok(());
        }
        // A directory that is gone by now is listed as an empty one.
        let Some(generation) = entry.generation() else { return Ok(()) };
        let now = Met { generation, misplaced: entry.is_misplaced() };
        match self.met.insert(entry.ino(), now).filter(|before| before.generation == generation) {
            Some(before) if before.misplaced || now.misplaced => Err(entry.is_met_twice()),
            Some(_) => Ok(()),
            None => {
                self.entered = Some(entry.read_dir());
                Ok(())
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.descend();
        loop {
            let mut listed = self.innermost.take()?;
            let Some(found) = listed.next() else {
                self.innermost = self.above.pop().map(|above| listed.resume(above));
                continue;
            };
            self.innermost = Some(listed);
            return Some(found.and_then(|entry| self.enter(&entry).map(|()| entry)));
        }
    }
}
