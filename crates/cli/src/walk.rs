//! Walking the tree of a volume that may be broken.
//!
//! A broken directory is named and left out, and the walk goes on. A directory has one parent; one that is
//! met twice is broken too (it could hold itself), and is not entered again, so that every walk ends.

use crate::failure::LeftOut;
use crate::image::Image;
use crate::name::join;
use hectare_engine::{DirEntry, Error, Kind, Result};
use hectare_units::InodeNr;
use std::collections::HashSet;

/// What is said of a directory that is met twice.
pub(crate) const MET_TWICE: &str = "the directory is corrupt: it was met before on another path";

/// The directories that were entered.
#[derive(Default)]
pub(crate) struct Entered(HashSet<InodeNr>);

impl Entered {
    /// Whether the directory may be entered: it was not yet.
    pub(crate) fn enter(&mut self, nr: InodeNr) -> bool {
        self.0.insert(nr)
    }
}

/// The entries of a directory without `.` and `..`, sorted by the bytes of their names.
pub(crate) fn sorted(image: &Image, nr: InodeNr) -> Result<Vec<DirEntry>> {
    let mut entries = image.volume().list(nr)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Whether an entry is a directory; the inode is asked where the directory does not say.
pub(crate) fn is_directory(image: &Image, entry: &DirEntry) -> Result<bool> {
    match entry.kind {
        Some(kind) => Ok(kind == Kind::Directory),
        None => Ok(image.volume().stat(entry.inode)?.is_dir()),
    }
}

/// Visits an inode and, if it is a directory, everything below it, parents first. What fails is told and left
/// out.
pub(crate) fn each(
    image: &Image,
    root: InodeNr,
    path: &[u8],
    left_out: &LeftOut,
    mut visit: impl FnMut(InodeNr) -> Result<()>,
) {
    let mut entered = Entered::default();
    let mut stack = vec![(root, path.to_vec())];
    while let Some((nr, path)) = stack.pop() {
        let mut step = || -> Result<Vec<DirEntry>> {
            visit(nr)?;
            if !image.volume().stat(nr)?.is_dir() {
                return Ok(Vec::new());
            }
            if !entered.enter(nr) {
                left_out.tell(image.show(&path), MET_TWICE);
                return Ok(Vec::new());
            }
            sorted(image, nr)
        };
        match step() {
            Ok(entries) => {
                let below = entries.into_iter().rev();
                stack.extend(below.map(|entry| (entry.inode, join(&path, &entry.name))));
            }
            Err(error) => left_out.tell(image.show(&path), error),
        }
    }
}

/// Removes what a name stands for, a directory with all below it. What fails is told and stays.
pub(crate) fn remove(image: &Image, parent: InodeNr, name: &[u8], path: &[u8], left_out: &LeftOut) {
    let volume = image.volume();
    let mut entered = Entered::default();
    let mut stack = vec![(parent, name.to_vec(), path.to_vec(), false)];
    while let Some((parent, name, path, emptied)) = stack.pop() {
        if emptied {
            match volume.rmdir(parent, &name) {
                // Whatever stayed in it was told.
                Err(Error::NotEmpty) if left_out.outcome().is_err() => {}
                Err(error) => left_out.tell(image.show(&path), error),
                Ok(()) => {}
            }
            continue;
        }
        let below = match volume.unlink(parent, &name) {
            Ok(()) => continue,
            Err(Error::IsADirectory) => {
                volume.lookup(parent, &name).and_then(|nr| Ok((entered.enter(nr), nr, volume.list(nr)?)))
            }
            Err(error) => Err(error),
        };
        match below {
            Ok((true, nr, entries)) => {
                let below: Vec<_> =
                    entries.into_iter().map(|e| (nr, e.name.clone(), join(&path, &e.name), false)).collect();
                stack.push((parent, name, path, true));
                stack.extend(below);
            }
            Ok((false, ..)) => left_out.tell(image.show(&path), MET_TWICE),
            Err(error) => left_out.tell(image.show(&path), error),
        }
    }
}
