//! Reads the data of files: opens them, reads by segments, checks that nothing changed.
//!
//! A writer opens a file, copies its [`segments`](Tree::segments) from [`Content::fd`] (with
//! `copy_file_range`, or through [`Content::read_exact_at`]), and then calls [`Content::verify`], which
//! compares the file with the scan. So a change before, between or during the copy is found, as long as it
//! changes the size or the modification time; it is also looked for when reading fails, because it explains
//! more than the failure.
//!
//! An [`Opener`] remembers the directory it last opened a file in, so that files taken in the order of their
//! ids cost one `openat` each. Use one for each thread.

use super::folder::timestamp;
use super::host_file;
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use crate::time::PackedTime;
use crate::tree::{FileData, HostFile, NodeId, NodeKind, SourceDevice, Tree};
use hectare_device::os::{self, BorrowedFd, Errno, borrowed};
use hectare_host::{FileType, Folder, Identity, stat_open};
use hectare_units::{Bytes, index_of, u64_of, usize_of};
use std::fs;

/// Opens the data of files.
#[derive(Debug)]
pub struct Opener<'t> {
    tree: &'t Tree,
    /// The directory last used: which source, which node.
    dir: Option<(u16, NodeId, Folder)>,
    quiet: bool,
}

/// The data of a file, opened for reading.
#[derive(Debug)]
pub struct Content<'t> {
    tree: &'t Tree,
    node: NodeId,
    file: File<'t>,
}

#[derive(Debug)]
enum File<'t> {
    /// A file of a directory; its identity, size and time when scanned.
    Own { file: fs::File, identity: Identity, size: u64, mtime: PackedTime, source: &'t SourceHandle },
    /// A file that was named by itself; its size when added.
    Host { file: fs::File, named: &'t HostFile, size: u64 },
    /// The archive that holds the file.
    Archive { source: &'t SourceHandle, fd: BorrowedFd<'t>, len: Bytes, mtime: PackedTime },
}

impl Tree {
    /// A new opener.
    #[must_use]
    pub fn opener(&self) -> Opener<'_> {
        Opener { tree: self, dir: None, quiet: true }
    }

    /// The path in its directory of a file that a later layer has linked.
    fn kept_path(&self, node: NodeId) -> Option<&[u8]> {
        let NodeKind::File { data, .. } = self.node(node).kind else { return None };
        self.linked.get(&data).map(|path| &**path)
    }

    /// The path of a file in the directory it comes from.
    fn source_path(&self, node: NodeId) -> Vec<u8> {
        self.kept_path(node).map_or_else(|| self.path(node), <[u8]>::to_vec)
    }
}

impl<'t> Opener<'t> {
    /// Opens the data of a regular file.
    ///
    /// # Errors
    /// If it can't be opened, or is no longer there.
    ///
    /// # Panics
    /// If the node is not a regular file of this tree.
    pub fn open(&mut self, node: NodeId) -> Result<Content<'t>, Error> {
        let tree = self.tree;
        let NodeKind::File { size, data } = tree.node(node).kind else {
            panic!("node {} is not a regular file", node.get());
        };
        let file = match tree.files[usize_of(data)] {
            FileData::Folder { inode, mtime, place, .. } => {
                let SourceDevice { source, device } = tree.places[usize::from(place)];
                let file = self.open_in_folder(source, node)?;
                let identity = Identity { device, inode };
                File::Own { file, identity, size, mtime, source: &tree.sources[usize::from(source)] }
            }
            FileData::Archive { source, .. } => match &tree.sources[usize::from(source)] {
                source @ SourceHandle::Archive { file, len, mtime, .. } => {
                    File::Archive { source, fd: borrowed(file), len: *len, mtime: *mtime }
                }
                _ => unreachable!("archive data comes from an archive"),
            },
            FileData::Host { at, .. } => {
                let named = &tree.host_files[usize_of(at)];
                File::Host { file: host_file::open(&named.path)?, named, size }
            }
        };
        Ok(Content { tree, node, file })
    }

    fn open_in_folder(&mut self, source: u16, node: NodeId) -> Result<fs::File, Error> {
        let tree = self.tree;
        let handle = &tree.sources[usize::from(source)];
        let SourceHandle::Folder { root, .. } = handle else {
            unreachable!("data of a directory comes from a directory");
        };
        let failed = |errno: Errno| Error::io_listed(handle.shown(&tree.source_path(node)), "open", errno);
        if let Some(path) = tree.kept_path(node) {
            let (parent, name) = path
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or((&[][..], path), |at| (&path[..at], &path[at + 1..]));
            let dir = root.reach(parent).map_err(failed)?;
            return dir.open_file(name, &mut self.quiet).map_err(failed);
        }
        let parent = tree.parent(node);
        let dir = match self.dir.take() {
            Some((known_source, known, dir)) if known_source == source && known == parent => dir,
            _ => root.reach(&tree.path(parent)).map_err(failed)?,
        };
        let file = dir.open_file(tree.name(node), &mut self.quiet).map_err(failed);
        self.dir = Some((source, parent, dir));
        file
    }
}

impl Content<'_> {
    /// What to read from, at the [`source`](crate::Segment::source) offsets of the file's segments.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.file {
            File::Own { file, .. } | File::Host { file, .. } => borrowed(file),
            File::Archive { fd, .. } => *fd,
        }
    }

    /// Fills `buffer` from offset `source` of [`fd`](Self::fd).
    ///
    /// # Errors
    /// If it can't be read, or ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], source: Bytes) -> Result<(), Error> {
        let mut done = 0;
        while done < buffer.len() {
            match os::read_at(self.fd(), &mut buffer[done..], source.get() + u64_of(done)) {
                Ok(0) => return Err(self.ended_early()),
                Ok(len) => done += len,
                Err(errno) => return Err(self.failed(errno.raw_os_error())),
            }
        }
        Ok(())
    }

    /// Reads all data through `buffer`, hands on pieces with their places in the file, and verifies the file.
    ///
    /// # Errors
    /// If it can't be read, or is not what was scanned.
    pub(crate) fn read_data(
        &self,
        buffer: &mut [u8],
        visit: &mut dyn FnMut(Bytes, &[u8]),
    ) -> Result<(), Error> {
        for segment in self.tree.segments(self.node) {
            let mut done = Bytes::ZERO;
            while done < segment.len {
                let piece = (segment.len - done).min(Bytes::of(buffer.len()));
                let room = &mut buffer[..index_of(piece.get())];
                self.read_exact_at(room, segment.source + done)?;
                visit(segment.at + done, room);
                done += piece;
            }
        }
        self.verify()
    }

    /// The error for a file that ended before all of it was read.
    pub(crate) fn ended_early(&self) -> Error {
        let shorter = Error::Changed { path: self.shown(), what: "it became shorter" };
        self.verify().err().unwrap_or(shorter)
    }

    /// The error for a file whose reading failed with this `errno` value.
    pub(crate) fn failed(&self, errno: i32) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno);
        self.verify().err().unwrap_or_else(|| Error::io(self.shown(), "read", cause))
    }

    /// Whether the file is still what was scanned. Call it after the last read.
    ///
    /// # Errors
    /// [`Error::Changed`] if its size or modification time is another, or it is another file.
    pub fn verify(&self) -> Result<(), Error> {
        let stat =
            stat_open(self.fd()).map_err(|errno| Error::io(self.shown(), "read the metadata", errno))?;
        let (expected, expected_size, expected_mtime) = match &self.file {
            File::Own { identity, size, mtime, .. } => (*identity, *size, *mtime),
            File::Host { named, size, .. } => (named.identity, *size, named.mtime),
            File::Archive { len, mtime, .. } => (stat.identity, len.get(), *mtime),
        };
        // The number of a file that is gone may be given to something else at once.
        let what = if stat.file_type != FileType::RegularFile || stat.identity != expected {
            "it was replaced"
        } else if stat.size < expected_size {
            "it became shorter"
        } else if stat.size > expected_size {
            "it grew"
        } else if PackedTime::new(timestamp(stat.mtime)) != expected_mtime {
            "it was modified"
        } else {
            return Ok(());
        };
        Err(Error::Changed { path: self.shown(), what })
    }

    /// The file as named in errors; for an archive that changed, the archive.
    fn shown(&self) -> ShownPath {
        match &self.file {
            File::Own { source, .. } => source.shown(&self.tree.source_path(self.node)),
            File::Host { named, .. } => ShownPath::new(&named.path),
            File::Archive { source, .. } => source.shown(&[]),
        }
    }
}
