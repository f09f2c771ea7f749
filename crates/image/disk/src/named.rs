//! Files that a disk image names, opened ahead: for a process that gives up opening files before it reads an image.
//!
//! What is looked at for that is little: the head of a qcow2 and the name of its backing file, or the text of a VMDK
//! of several files. The same files are admitted as when the image is opened; what can't be opened is an error
//! only when the image needs it.

use crate::error::{Error, Result};
use crate::{Backing, qcow2, vmdk};
use hectare_device::{FileDevice, FileOptions};
use hectare_probe::record::record;
use std::path::{Path, PathBuf};

/// Files that an image names, open for reading, and locked against writers.
#[derive(Default)]
pub struct Named {
    files: Vec<(PathBuf, FileDevice)>,
    /// The first one that could not be opened, and why.
    failed: Option<(PathBuf, Error)>,
}

impl Named {
    /// Opens what an image names, and what these name in turn.
    ///
    /// # Errors
    /// If the image can't be read.
    pub fn by(file: &FileDevice, path: &Path, backing: Backing) -> Result<Self> {
        let mut named = Self::default();
        let Some(head) = record(file, 0, 8)? else { return Ok(named) };
        if head.bytes(0, 4) == qcow2::MAGIC {
            named.chain(file, path, backing)?;
        } else if head.bytes(0, 8) == vmdk::TEXT_MAGIC {
            for name in vmdk::names(file)? {
                if !named.open(path.with_file_name(name)) {
                    break;
                }
            }
        }
        Ok(named)
    }

    /// The files behind a qcow2, each of which may be one with another behind it.
    fn chain(&mut self, file: &FileDevice, path: &Path, backing: Backing) -> Result<()> {
        let directory = qcow2::directory_of(path);
        let (mut path, mut next) = (path.to_owned(), qcow2::backing_of(file)?);
        for _ in 0..qcow2::CHAIN_MAX {
            let Some(name) = next else { return Ok(()) };
            path = match path.parent() {
                Some(parent) => parent.join(name),
                None => name,
            };
            let is_beside = directory.is_some() && qcow2::directory_of(&path) == directory;
            let is_admitted = backing == Backing::Anywhere || is_beside;
            if !is_admitted || !self.open(path.clone()) {
                return Ok(());
            }
            let Some((_, file)) = self.files.last() else { return Ok(()) };
            // One that is damaged is an error when it is used.
            next = qcow2::backing_of(file).unwrap_or(None);
        }
        Ok(())
    }

    /// Opens a file; whether that worked.
    fn open(&mut self, path: PathBuf) -> bool {
        match FileOptions::new().exclusive(true).open(&path) {
            Ok(file) => self.files.push((path, file)),
            Err(error) => {
                self.failed = Some((path, error.into()));
                return false;
            }
        }
        true
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
