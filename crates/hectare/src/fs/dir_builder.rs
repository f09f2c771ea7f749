//! How a directory is made.

use crate::error::Result;
use crate::fs::made::Made;
use crate::path::VolumePath;
use crate::volume::Volume;
use std::io::ErrorKind;

/// How a directory is made, as in `std`: a setter changes the options in place, and returns them for the next.
///
/// ```
/// use hectare::fs::DirBuilder;
/// # use hectare::device::{Bytes, MemoryDevice};
/// # let device = std::sync::Arc::new(MemoryDevice::new(Bytes::mib(16)));
/// # hectare::mkfs::Format::new().on_device(&*device)?;
/// # let volume = hectare::Volume::options().write(true).open_device(device)?;
/// DirBuilder::new().mode(0o700).owner(1000, 1000).create(&volume, "/home")?;
/// assert_eq!(volume.metadata("/home")?.mode(), 0o700);
/// # Ok::<(), hectare::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirBuilder {
    recursive: bool,
    made: Made,
}

impl DirBuilder {
    /// One directory, with mode 0755 and the owner of the volume's new files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes those above it that are missing as well, with the same mode and owner; one that exists is no
    /// error.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.recursive = recursive;
        self
    }

    /// The permission bits of what is made.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.made.mode = Some(mode);
        self
    }

    /// Owner and group of what is made, instead of the volume's own.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Self {
        self.made.owner = Some((uid, gid));
        self
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// If there is something at the path, or no directory above it; if recursive, if something else than a
    /// directory is in the way.
    pub fn create(&self, volume: &Volume, path: impl VolumePath) -> Result<()> {
        let path = path.volume_path();
        if !self.recursive {
            return self.make(volume, &path);
        }
        // What could not be made for lack of the directory above it, the deepest first.
        let mut missing: Vec<&[u8]> = Vec::new();
        let mut at: &[u8] = &path;
        while !at.is_empty() {
            match self.make_or_find(volume, at) {
                Err(error) if error.kind() == ErrorKind::NotFound => missing.push(at),
                Err(error) => return Err(error),
                Ok(()) => break,
            }
            at = above(at);
        }
        missing.into_iter().rev().try_for_each(|path| self.make_or_find(volume, path))
    }

    fn make(&self, volume: &Volume, path: &[u8]) -> Result<()> {
        let creation = self.made.creation(volume.creation());
        volume.engine().create_dir(path, creation).map(drop).map_err(|cause| volume.error(path, cause))
    }

    /// Makes a directory, unless there is one.
    fn make_or_find(&self, volume: &Volume, path: &[u8]) -> Result<()> {
        match self.make(volume, path) {
            Err(_) if volume.engine().metadata(path).is_ok_and(|found| found.is_dir()) => Ok(()),
            made => made,
        }
    }
}

/// The path of the directory that holds what is at `path`; empty if that is its first name.
fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let name = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let end = path[..name].iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}
