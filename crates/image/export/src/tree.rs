//! A directory of a volume with everything below it: what is exported or compared.
//!
//! Reading adds the place to every error. Two things of the format are no content and are left out: the empty
//! `lost+found` at a volume's root, and `.` and `..`.
//!
//! Encrypted files are refused, and directories, too: their names are text that stands for other names.

use crate::error::{Error, Result};
use crate::names::Names;
use hectare_engine::{InodeFlags, Metadata, OpenFile, Volume};
use hectare_units::InodeNr;

/// Where e2fsck puts files that have lost their names.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// A directory of a volume.
pub struct Tree<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// The directory.
    pub top: InodeNr,
    /// Names a path below the directory in messages; the empty path is the directory.
    pub show: &'a dyn Fn(&[u8]) -> String,
}

impl Tree<'_> {
    /// An error at a path.
    pub(crate) fn refuse(&self, path: &[u8], reason: impl ToString) -> Error {
        Error::Content { place: (self.show)(path), reason: reason.to_string() }
    }

    /// The place added to an error of the engine.
    pub(crate) fn at<T>(&self, path: &[u8], result: hectare_engine::Result<T>) -> Result<T> {
        result.map_err(|error| self.refuse(path, error))
    }

    pub(crate) fn stat(&self, path: &[u8], nr: InodeNr) -> Result<Metadata> {
        let meta = self.at(path, self.volume.stat(nr))?;
        if meta.flags.contains(InodeFlags::ENCRYPT) {
            return Err(self.refuse(path, "it is encrypted: its names and content can't be read"));
        }
        Ok(meta)
    }

    pub(crate) fn xattrs(&self, path: &[u8], nr: InodeNr) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut xattrs = self.at(path, self.volume.xattrs(nr))?;
        xattrs.sort_unstable();
        Ok(xattrs)
    }

    pub(crate) fn target(&self, path: &[u8], nr: InodeNr) -> Result<Vec<u8>> {
        self.at(path, self.volume.read_link_at(nr))
    }

    pub(crate) fn open(&self, path: &[u8], nr: InodeNr) -> Result<OpenFile> {
        self.at(path, self.volume.open_inode(nr))
    }

    /// The names in a directory, in the order of their bytes.
    pub(crate) fn names(&self, path: &[u8], nr: InodeNr) -> Result<Names> {
        let empty = nr == InodeNr::ROOT && self.at(path, self.has_empty_lost_and_found())?;
        self.at(path, self.wanted(nr, empty))
    }

    fn wanted(&self, nr: InodeNr, without_lost_and_found: bool) -> hectare_engine::Result<Names> {
        Names::sorted(self.volume, nr, |entry| match entry.name {
            b"." | b".." => false,
            name => !(without_lost_and_found && name == LOST_AND_FOUND),
        })
    }

    fn has_empty_lost_and_found(&self) -> hectare_engine::Result<bool> {
        let nr = match self.volume.lookup(InodeNr::ROOT, LOST_AND_FOUND) {
            Err(hectare_engine::Error::NotFound) => return Ok(false),
            found => found?,
        };
        Ok(self.volume.stat(nr)?.is_dir() && self.wanted(nr, false)?.left() == 0)
    }
}
