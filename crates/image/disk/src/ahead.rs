//! Opens the files that a disk image names before it is opened itself.
//!
//! What is looked at for that is little: the head of a qcow2 and the name of its backing file, or the text of a VMDK
//! of several files. The same files are admitted as when the image is opened.

use crate::backing::Backing;
use crate::error::Result;
use crate::named::Named;
use crate::{qcow2, vmdk};
use hectare_device::FileDevice;
use hectare_probe::record::record;
use std::path::Path;

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
                if named.open(path.with_file_name(name)).is_none() {
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
            if !is_admitted {
                return Ok(());
            }
            let Some(file) = self.open(path.clone()) else { return Ok(()) };
            // One that is damaged is an error when it is used.
            next = qcow2::backing_of(file).unwrap_or(None);
        }
        Ok(())
    }
}
