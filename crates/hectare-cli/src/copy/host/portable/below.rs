//! Looks up what is below a directory, without following a link on the way.

use hectare_host::{Folder, Stat};
use std::ffi::CString;
use std::io;
use std::path::Path;

/// A directory.
pub(crate) struct Below(Folder);

impl Below {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Folder::open(path)?))
    }

    /// The metadata of a name in a directory below it, if it is there.
    pub(crate) fn stat(&self, parent: &[u8], name: &[u8]) -> Option<Stat> {
        self.0.reach(parent).ok()?.stat(&CString::new(name).ok()?).ok()
    }
}
