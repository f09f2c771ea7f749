//! Files that a disk image names, opened ahead: for a process that gives up opening files before it reads an image.
//!
//! What can't be opened is an error only when the image needs it.

use crate::error::{Error, Result};
use hectare_device::{FileDevice, FileOptions};
use std::path::{Path, PathBuf};

/// Files that an image names, open for reading, and locked against writers.
#[derive(Default)]
pub struct Named {
    files: Vec<(PathBuf, FileDevice)>,
    /// The first one that could not be opened, and why.
    failed: Option<(PathBuf, Error)>,
}

impl Named {
    /// Opens a file; `None` if that failed.
    pub(crate) fn open(&mut self, path: PathBuf) -> Option<&FileDevice> {
        match FileOptions::new().exclusive(true).open(&path) {
            Ok(file) => self.files.push((path, file)),
            Err(error) => {
                self.failed = Some((path, error.into()));
                return None;
            }
        }
        self.files.last().map(|(_, file)| file)
    }

    /// A file by the path by which the image names it, if it is open; an error if it could not be opened.
    pub(crate) fn take(&mut self, path: &Path) -> Result<Option<FileDevice>> {
        if let Some((_, why)) = self.failed.as_ref().filter(|(failed, _)| failed == path) {
            return Err(why.clone());
        }
        let at = self.files.iter().position(|(known, _)| known == path);
        Ok(at.map(|at| self.files.swap_remove(at).1))
    }
}
