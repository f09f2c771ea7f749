//! The entries of a directory, a few at a time.

use crate::error::{Error, Result};
use crate::fs::file::{Access, File};
use crate::fs::metadata::{FileType, Metadata};
use crate::path::to_host;
use crate::volume::Volume;
use hectare_engine::{Cookie, Corrupt, DirEntry as Entry, Error as Cause, OpenFile, Place};
use hectare_units::InodeNr;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Entries read at a time.
const STEP: usize = 256;

/// The entries of a directory, without `.` and `..`, in the order of its hash: what is added or removed
/// meanwhile may be among them or not, every other entry is, once.
pub struct ReadDir {
    directory: Arc<Directory>,
    from: Cookie,
    ready: VecDeque<Entry>,
    ended: bool,
}

/// A listing that waits until directories in it were listed.
pub(crate) struct Paused {
    nr: InodeNr,
    path_len: usize,
    from: Cookie,
    ready: VecDeque<Entry>,
    ended: bool,
}

struct Directory {
    volume: Volume,
    path: Box<[u8]>,
    nr: InodeNr,
}

impl ReadDir {
    pub(crate) fn new(volume: &Volume, path: &[u8], nr: InodeNr) -> Self {
        let directory = Arc::new(Directory { volume: volume.clone(), path: path.into(), nr });
        Self { directory, from: Cookie::default(), ready: VecDeque::new(), ended: false }
    }

    /// The number of the directory's inode.
    pub(crate) fn ino(&self) -> u64 {
        self.directory.nr.get().into()
    }

    /// The generation of the directory's inode; 0 if it can't be read, which listing it reports.
    pub(crate) fn generation(&self) -> u32 {
        let Directory { volume, nr, .. } = &*self.directory;
        volume.engine().stat(*nr).map_or(0, |found| found.generation)
    }

    /// What is needed to list the rest later. Its path is not kept, but its length: [`resume`](Self::resume).
    pub(crate) fn pause(self) -> Paused {
        let Self { directory, from, ready, ended } = self;
        Paused { nr: directory.nr, path_len: directory.path.len(), from, ready, ended }
    }

    /// The listing of a directory above this one, whose path is the beginning of this one's.
    pub(crate) fn resume(&self, above: Paused) -> Self {
        let Directory { volume, path, .. } = &*self.directory;
        let Paused { nr, path_len, from, ready, ended } = above;
        Self { from, ready, ended, ..Self::new(volume, &path[..path_len], nr) }
    }

    /// Reads on; afterwards there is an entry, or the directory has ended.
    fn refill(&mut self) -> Result<()> {
        let Directory { volume, path, nr } = &*self.directory;
        while self.ready.is_empty() && !self.ended {
            let read = match volume.engine().read_dir_at(*nr, self.from, STEP) {
                // It was there before: it was removed meanwhile, and nothing is left in it.
                Err(Cause::NotFound) if self.from != Cookie::default() => Vec::new(),
                read => read.map_err(|cause| volume.error(path, cause))?,
            };
            let Some(last) = read.last() else {
                self.ended = true;
                break;
            };
            self.from = last.next;
            self.ready.extend(read.into_iter().filter(|entry| entry.name != b"." && entry.name != b".."));
        }
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Err(error) = self.refill() {
                self.ended = true;
                return Some(Err(error));
            }
            let mut entry = self.ready.pop_front()?;
            if entry.kind.is_some() || self.directory.complete(&mut entry) {
                return Some(Ok(DirEntry { directory: Arc::clone(&self.directory), entry }));
            }
        }
    }
}

impl Directory {
    /// Reads what an entry is, which a directory without `filetype` does not say; false if its name was removed
    /// after it was read. An inode that can't be read is left to [`DirEntry::file_type`] to report.
    fn complete(&self, entry: &mut Entry) -> bool {
        let engine = self.volume.engine();
        match engine.stat(entry.inode) {
            Ok(found) => entry.kind = Some(found.kind),
            Err(Cause::NotFound) => {
                return !matches!(engine.lookup(self.nr, &entry.name), Err(Cause::NotFound));
            }
            Err(_) => {}
        }
        true
    }
}

/// An entry of a directory.
pub struct DirEntry {
    directory: Arc<Directory>,
    entry: Entry,
}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        to_host(self.entry.name.clone())
    }

    /// The name's bytes.
    #[must_use]
    pub fn file_name_bytes(&self) -> &[u8] {
        &self.entry.name
    }

    /// The path that the directory was read by, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        to_host(self.path_bytes()).into()
    }

    fn path_bytes(&self) -> Vec<u8> {
        let mut path = self.directory.path.to_vec();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&self.entry.name);
        path
    }

    /// The entries of the directory that this is, whatever its name leads to by now.
    pub(crate) fn read_dir(&self) -> ReadDir {
        ReadDir::new(&self.directory.volume, &self.path_bytes(), self.entry.inode)
    }

    /// The generation of its inode: `None` if that is gone, 0 if it can't be read, which listing it reports.
    pub(crate) fn generation(&self) -> Option<u32> {
        match self.directory.volume.engine().stat(self.entry.inode) {
            Err(Cause::NotFound) => None,
            found => Some(found.map_or(0, |found| found.generation)),
        }
    }

    /// Whether the directory that this is has this name still, and does not lie where the name is. What can't be
    /// read is reported when it is listed.
    pub(crate) fn is_misplaced(&self) -> bool {
        let Directory { volume, nr, .. } = &*self.directory;
        let (engine, own) = (volume.engine(), self.entry.inode);
        // The name is looked up last: a directory that was moved meanwhile has it no more.
        engine.lookup(own, b"..").is_ok_and(|above| above != *nr)
            && engine.lookup(*nr, &self.entry.name).is_ok_and(|found| found == own)
    }

    /// The error that the directory that this is has a second name.
    pub(crate) fn is_met_twice(&self) -> Error {
        let place = Place::Inode(self.entry.inode);
        let cause = Corrupt::new("the directory", place, "it was met before on another path");
        self.directory.volume.error(&self.path_bytes(), cause.into())
    }

    /// The number of the inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.entry.inode.get().into()
    }

    /// What the inode says of its file. A symbolic link is not followed.
    ///
    /// # Errors
    /// If the inode is gone or damaged.
    pub fn metadata(&self) -> Result<Metadata> {
        let volume = &self.directory.volume;
        let found = volume.engine().stat(self.entry.inode);
        found.map(Metadata).map_err(|cause| volume.error(&self.path_bytes(), cause))
    }

    /// What it is: as the directory says, else as the inode does.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub fn file_type(&self) -> Result<FileType> {
        match self.entry.kind {
            Some(kind) => Ok(FileType(kind)),
            None => Ok(self.metadata()?.file_type()),
        }
    }

    /// Opens it for reading.
    ///
    /// # Errors
    /// If it is no regular file.
    pub fn open(&self) -> Result<File> {
        let volume = &self.directory.volume;
        let path = self.path_bytes();
        let open: Result<OpenFile, _> = volume.engine().open_inode(self.entry.inode);
        let open = open.map_err(|cause| volume.error(&path, cause))?;
        Ok(File::new(volume, &path, open, Access::READ))
    }
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadDir").field(&to_host(self.directory.path.to_vec())).finish()
    }
}

impl std::fmt::Debug for Paused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Paused").field(&self.nr).finish()
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
