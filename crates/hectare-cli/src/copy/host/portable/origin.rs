//! A directory of the host as the origin of a copy.
//!
//! The operand is looked up as its user named it, links included if they are to be followed; below it none
//! is. A file that changes while it is read is copied up to its size when it was opened.

use super::{failed, identity, look, meta_of, replaced};
use crate::copy::ends::{Content, Meta, Named, Origin, Reason, Xattrs};
use crate::failure::tell;
use crate::name::shown;
use crate::os::drive_len;
use hectare_device::os::{Errno, FileExt, OsStrExt, borrowed, name_bytes, path_of};
use hectare_engine::Volume;
use hectare_host::{FileType, Stat, data_of, losses, stat_of, stat_open};
use hectare_units::InodeNr;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::vec::IntoIter;

/// The host as an origin: messages name paths as they were given.
#[derive(Default)]
pub(crate) struct LocalOrigin {
    /// Whether what is not read was reported.
    reported: OnceLock<()>,
}

/// A path.
#[derive(Clone)]
pub(crate) struct Node(Arc<Path>);

impl Node {
    /// A file or directory named by the user.
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.into())
    }

    fn stat(&self, follow: bool) -> Result<Stat, Reason> {
        let metadata =
            look(&self.0, follow).map_err(failed)?.ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
        Ok(stat_of(&metadata))
    }

    /// Whether it is what `meta` is of.
    fn is(&self, stat: &Stat, file_type: FileType, meta: &Meta) -> bool {
        identity(&self.0, stat) == meta.id && stat.file_type == file_type
    }
}

/// An open file of the host, with its size when it was opened.
pub(crate) struct OpenedFile {
    file: File,
    stat: Stat,
}

impl Content for OpenedFile {
    fn size(&self) -> u64 {
        self.stat.size
    }

    fn ranges(&self) -> Result<Vec<(u64, u64)>, Reason> {
        let all = vec![(0, self.stat.size)];
        if self.stat.size == 0 || self.stat.sectors.saturating_mul(512) >= self.stat.size {
            return Ok(all); // no holes
        }
        let found = data_of(borrowed(&self.file), self.stat.size).map_err(|error| match error {
            Errno::NOENT => "it was truncated meanwhile".to_owned(),
            error => failed(error.into()),
        })?;
        Ok(found.unwrap_or(all))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, Reason> {
        self.file.read_at(buffer, at).map_err(failed)
    }
}

/// An entry of a directory.
fn named(entry: io::Result<DirEntry>) -> Result<Named<Node>, Reason> {
    let entry = entry.map_err(failed)?;
    let name = entry.file_name();
    match name_bytes(&name) {
        Ok(bytes) => Ok((bytes.to_vec(), Node(entry.path().into()))),
        Err(error) => Err(format!("{}: {error}", name.display())),
    }
}

impl Origin for LocalOrigin {
    type Node = Node;
    type File = OpenedFile;
    type Children = IntoIter<Result<Named<Node>, Reason>>;

    fn meta(&self, node: &Node, follow: bool) -> Result<Meta, Reason> {
        let stat = node.stat(follow)?;
        meta_of(&stat, identity(&node.0, &stat))
    }

    fn children(&self, node: &Node, meta: &Meta) -> Result<Self::Children, Reason> {
        // The top may be a link that the user named; what it leads to is what was examined.
        if !node.is(&node.stat(true)?, FileType::Directory, meta) {
            return Err(replaced());
        }
        let mut children: Vec<_> = fs::read_dir(&*node.0).map_err(failed)?.map(named).collect();
        children.sort_by(|a, b| match (a, b) {
            (Ok(a), Ok(b)) => a.0.cmp(&b.0),
            (a, b) => a.is_err().cmp(&b.is_err()),
        });
        Ok(children.into_iter())
    }

    fn next_child(&self, children: &mut Self::Children) -> Option<Result<Named<Node>, Reason>> {
        children.next()
    }

    fn open(&self, node: &Node, follow: bool, meta: &Meta) -> Result<OpenedFile, Reason> {
        // Before it is opened: a pipe would make the copy wait.
        if !node.is(&node.stat(follow)?, FileType::RegularFile, meta) {
            return Err(replaced());
        }
        let file = File::open(&*node.0).map_err(failed)?;
        let stat = stat_open(borrowed(&file)).map_err(|error| failed(error.into()))?;
        if !node.is(&stat, FileType::RegularFile, meta) {
            return Err(replaced());
        }
        Ok(OpenedFile { file, stat })
    }

    fn read_link(&self, node: &Node) -> Result<Vec<u8>, Reason> {
        let target: PathBuf = fs::read_link(&*node.0).map_err(failed)?;
        let mut target = name_bytes(target.as_os_str()).map_err(failed)?.to_vec();
        if cfg!(windows) {
            target.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
        }
        Ok(target)
    }

    /// None are read, which is reported once.
    fn xattrs(&self, node: &Node, _follow: bool) -> Result<Xattrs, Reason> {
        self.reported.get_or_init(|| {
            let place = node.0.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(&node.0);
            for loss in losses() {
                tell(format_args!("{}: note: {loss}", shown(place.as_os_str().as_bytes())));
            }
        });
        Ok(Vec::new())
    }

    fn inode_in(&self, _node: &Node, _volume: &Volume) -> Option<InodeNr> {
        None
    }

    fn last_name<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let is_separator = |byte: &u8| std::path::is_separator(char::from(*byte));
        let mut names = path[drive_len(&path_of(path))..].rsplit(is_separator);
        names.find(|name| !name.is_empty()).unwrap_or_default()
    }

    fn show(&self, path: &[u8]) -> String {
        shown(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_of_a_path_is_that_of_its_copy() {
        let origin = LocalOrigin::default();
        for (path, name) in [("a/b", "b"), ("a/b//", "b"), ("a/.", "."), ("/", ""), ("..", "..")] {
            assert_eq!(origin.last_name(path.as_bytes()), name.as_bytes());
        }
        for (path, name) in [(r"C:\a\b", "b"), (r"C:a", "a"), (r"C:\", ""), (r"C:", "")] {
            let name = if cfg!(windows) { name } else { path };
            assert_eq!(origin.last_name(path.as_bytes()), name.as_bytes());
        }
    }
}
