//! Walks the tree of a volume that may be corrupt.
//!
//! A corrupt directory is reported and left out, and the walk continues. A directory has one parent; one that
//! is met twice is corrupt too (it could contain itself), and is not entered again, so that every walk ends.
//!
//! A walk holds some entries of each directory that it is in ([`Entries`]), however large that is. Ordered
//! lists hold all the names of a directory ([`Names`](hectare_export::Names)).

use crate::failure::{LeftOut, Outcome};
use crate::image::Image;
use crate::name::join;
use hectare_engine::{Cookie, DirEntry, Error, Metadata, Result, Volume};
use hectare_export::MET_TWICE;
use hectare_units::InodeNr;
use std::collections::HashSet;
use std::vec::IntoIter;

/// Entries of a directory that a walk holds.
const BATCH: usize = 256;

/// The directories already entered.
#[derive(Default)]
pub(crate) struct Entered(HashSet<InodeNr>);

impl Entered {
    /// Whether the directory may be entered: on the first time only.
    pub(crate) fn enter(&mut self, nr: InodeNr) -> bool {
        self.0.insert(nr)
    }
}

/// The entries of a directory without `.` and `..`, [`BATCH`] at a time, each batch sorted by the bytes of
/// its names: what is held does not grow with the directory.
pub(crate) struct Entries {
    nr: InodeNr,
    /// Where to continue; `None` at the end.
    at: Option<Cookie>,
    batch: IntoIter<DirEntry>,
}

impl Entries {
    /// All entries of a directory.
    pub(crate) fn of(nr: InodeNr) -> Self {
        Self { nr, at: Some(Cookie::START), batch: Vec::new().into_iter() }
    }

    /// The next entry; after an error there are no more.
    pub(crate) fn next(&mut self, volume: &Volume) -> Option<Result<DirEntry>> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(Ok(entry));
            }
            let batch = match volume.read_dir_at(self.nr, self.at.take()?, BATCH) {
                Ok(batch) => batch,
                Err(error) => return Some(Err(error)),
            };
            self.at = batch.last().map(|last| last.next);
            let mut batch: Vec<_> = batch.into_iter().filter(|e| e.name != b"." && e.name != b"..").collect();
            batch.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            self.batch = batch.into_iter();
        }
    }
}

/// What a walk has come to.
pub(crate) struct Met<'a> {
    /// Its inode.
    pub(crate) nr: InodeNr,
    /// The path to it.
    pub(crate) path: &'a [u8],
    /// The number of names between the start and it.
    pub(crate) depth: usize,
    /// Its metadata.
    pub(crate) meta: &'a Metadata,
}

/// What is done on a walk.
pub(crate) trait Visitor {
    /// Comes to an inode, parents first. Returns whether to enter it, if it is a directory.
    fn visit(&mut self, met: &Met<'_>) -> Outcome<bool>;

    /// Leaves a directory that was to be entered, and everything below it: nothing, if that was met before.
    fn leave(&mut self, path: &[u8], depth: usize) -> Outcome {
        let _ = (path, depth);
        Ok(())
    }
}

/// Walks an inode and, if it is a directory, everything below it. What can't be read is reported and left out.
///
/// # Errors
/// The visitor's.
pub(crate) fn tree(
    image: &Image,
    root: InodeNr,
    path: &[u8],
    left_out: &LeftOut,
    visitor: &mut impl Visitor,
) -> Outcome {
    let mut entered = Entered::default();
    let mut levels: Vec<(Vec<u8>, Entries)> = Vec::new();
    let mut next = Some((root, path.to_vec()));
    loop {
        if let Some((nr, path)) = next.take() {
            match image.volume().stat(nr) {
                Ok(meta) => {
                    let met = Met { nr, path: &path, depth: levels.len(), meta: &meta };
                    if visitor.visit(&met)? && meta.is_dir() {
                        if entered.enter(nr) {
                            levels.push((path, Entries::of(nr)));
                        } else {
                            left_out.tell(image.show(&path), MET_TWICE);
                            visitor.leave(&path, levels.len())?;
                        }
                    }
                }
                Err(error) => left_out.tell(image.show(&path), error),
            }
        }
        let Some((path, entries)) = levels.last_mut() else { return Ok(()) };
        match entries.next(image.volume()) {
            Some(Ok(entry)) => next = Some((entry.inode, join(path, &entry.name))),
            Some(Err(error)) => left_out.tell(image.show(path), error),
            None => {
                let (path, _) = levels.pop().expect("there is a last level");
                visitor.leave(&path, levels.len())?;
            }
        }
    }
}

/// Visits an inode and, if it is a directory, everything below it, parents first. Failures are reported and
/// left out.
pub(crate) fn each(
    image: &Image,
    root: InodeNr,
    path: &[u8],
    left_out: &LeftOut,
    visit: impl FnMut(InodeNr) -> Result<()>,
) -> Outcome {
    struct Each<'a, F>(&'a Image, &'a LeftOut, F);
    impl<F: FnMut(InodeNr) -> Result<()>> Visitor for Each<'_, F> {
        fn visit(&mut self, met: &Met<'_>) -> Outcome<bool> {
            let done = self.2(met.nr);
            let enters = done.is_ok();
            if let Err(error) = done {
                self.1.tell(self.0.show(met.path), error);
            }
            Ok(enters)
        }
    }
    tree(image, root, path, left_out, &mut Each(image, left_out, visit))
}

/// Removes a name, a directory with everything below it. What fails is reported and stays.
pub(crate) fn remove(image: &Image, parent: InodeNr, name: &[u8], path: &[u8], left_out: &LeftOut) {
    let volume = image.volume();
    let mut entered = Entered::default();
    let mut levels: Vec<Emptied> = Vec::new();
    let mut next = Some((parent, name.to_vec(), path.to_vec()));
    loop {
        if let Some((parent, name, path)) = next.take() {
            let below = match volume.unlink(parent, &name) {
                Err(Error::IsADirectory) => volume.lookup(parent, &name).map(Some),
                done => done.map(|()| None),
            };
            match below {
                Ok(Some(nr)) if entered.enter(nr) => {
                    levels.push(Emptied { parent, name, path, entries: Entries::of(nr) });
                }
                Ok(Some(_)) => left_out.tell(image.show(&path), MET_TWICE),
                Ok(None) => {}
                Err(error) => left_out.tell(image.show(&path), error),
            }
        }
        let Some(level) = levels.last_mut() else { return };
        match level.entries.next(volume) {
            Some(Ok(entry)) => {
                let path = join(&level.path, &entry.name);
                next = Some((level.entries.nr, entry.name, path));
            }
            Some(Err(error)) => {
                left_out.tell(image.show(&level.path), error);
                levels.pop();
            }
            None => {
                match volume.rmdir(level.parent, &level.name) {
                    // The entries left in it have been reported.
                    Err(Error::NotEmpty) if left_out.outcome().is_err() => {}
                    Err(error) => left_out.tell(image.show(&level.path), error),
                    Ok(()) => {}
                }
                levels.pop();
            }
        }
    }
}

/// A directory that is being emptied before its removal.
struct Emptied {
    parent: InodeNr,
    name: Vec<u8>,
    path: Vec<u8>,
    entries: Entries,
}
