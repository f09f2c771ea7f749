//! Moves blocks in a volume while it is mounted: those of files together, or all to the front.
//!
//! The tree is walked through the mount, as any program walks it, and the mount's server moves the blocks of
//! one inode, or one extent, at a time: it is asked by number over its control socket. So programs go on working
//! in between, and only the readers and writers of the file of the moment wait.
//!
//! Hazard: others change the tree meanwhile. What is gone is left out silently, as it needs no move any
//! more; a number that another file has by then is moved instead, which does no harm. Links are not
//! followed, and other mounts below are not entered.

use super::Mover;
use super::pack::{Move, movable};
use super::whole::Space;
use crate::failure::{Failure, LeftOut, Outcome};
use crate::name::shown;
use hectare_engine::Error;
use hectare_ext4::extent::Extent;
use hectare_fuse::{MountedImage, mounted_image};
use hectare_monitor::{AskError, Free, extents, free_runs, gather, move_extent, sync};
use hectare_units::{GroupNr, InodeNr};
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Moves the blocks of what is at and below a path of a mount together.
pub(super) fn gather_below(top: &Path, mover: &mut Mover<'_>) -> Outcome {
    let mount = mounted_image(top).map_err(|error| failed(top, error))?;
    let left_out = mover.left_out;
    mover.seen.clear();
    walk(top, left_out, |path, meta| {
        if !meta.is_dir() && !mover.is_first(meta.ino(), meta.nlink()) {
            return Ok(());
        }
        let name = path.as_os_str().as_bytes();
        match gather(&mount, meta.ino(), mover.arguments.dry_run) {
            Ok(found) => mover.count(name, (found.before, found.after, found.bytes)),
            // What was removed meanwhile needs no move; another file may have the name by now.
            Err(AskError::Refused(reason)) if path != top && reason == Error::NotFound.to_string() => Ok(()),
            Err(error) => refused(path, error, left_out),
        }
    })
}

/// Visits the files and directories at and below a path of a mount.
fn walk(top: &Path, left_out: &LeftOut, mut visit: impl FnMut(&Path, &Metadata) -> Outcome) -> Outcome {
    let device = fs::symlink_metadata(top).map_err(|error| failed(top, error))?.dev();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        match look(device, &path, &mut visit)? {
            Ok(below) => waiting.extend(below),
            Err(error) if error.kind() == ErrorKind::NotFound && path != top => {}
            Err(error) => left_out.tell(shown(path.as_os_str().as_bytes()), error),
        }
    }
    Ok(())
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::of(shown(path.as_os_str().as_bytes()), error)
}

/// Notes what the server refuses; that it does not answer is a failure. The text may come from another user's
/// program.
fn refused(path: &Path, error: AskError, left_out: &LeftOut) -> Outcome {
    match error {
        AskError::Refused(reason) => {
            left_out.tell(shown(path.as_os_str().as_bytes()), shown(reason.as_bytes()));
            Ok(())
        }
        error => Err(failed(path, shown(error.to_string().as_bytes()))),
    }
}

/// Visits one file or directory; returns what is in it, in the order of names.
fn look(
    device: u64,
    path: &Path,
    visit: &mut impl FnMut(&Path, &Metadata) -> Outcome,
) -> Outcome<io::Result<Vec<PathBuf>>> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) => return Ok(Err(error)),
    };
    if meta.dev() != device || !(meta.is_file() || meta.is_dir()) {
        return Ok(Ok(Vec::new()));
    }
    visit(path, &meta)?;
    if !meta.is_dir() {
        return Ok(Ok(Vec::new()));
    }
    Ok(fs::read_dir(path).and_then(|entries| {
        let mut below = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        below.sort_unstable_by(|a, b| b.cmp(a));
        Ok(below)
    }))
}

/// A mount, for making its free space whole.
pub(super) struct Mount<'a> {
    top: &'a Path,
    image: MountedImage,
    /// What its server says of the first group.
    first: Free,
}

impl<'a> Mount<'a> {
    /// The mount that a path belongs to.
    pub(super) fn of(top: &'a Path) -> Outcome<Self> {
        let image = mounted_image(top).map_err(|error| failed(top, error))?;
        let first = free_runs(&image, GroupNr::new(0)).map_err(|error| no_answer(top, &error))?;
        Ok(Self { top, image, first })
    }

    /// Whether blocks are allocated in clusters.
    pub(super) const fn has_clusters(&self) -> bool {
        self.first.has_clusters
    }

    /// The extents of files at and below the path that may move.
    pub(super) fn movable(&self, left_out: &LeftOut) -> Outcome<Vec<(InodeNr, Extent)>> {
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        walk(self.top, left_out, |path, meta| {
            if !meta.is_file() || meta.nlink() > 1 && !seen.insert(meta.ino()) {
                return Ok(());
            }
            let Ok(nr) = u32::try_from(meta.ino()).map(InodeNr::new) else { return Ok(()) };
            match extents(&self.image, nr) {
                Ok(found) => all.extend(movable(&found).map(|extent| (nr, extent))),
                // A file that was removed meanwhile needs no move.
                Err(AskError::Refused(_)) if fs::symlink_metadata(path).is_err() => {}
                Err(error) => refused(path, error, left_out)?,
            }
            Ok(())
        })?;
        Ok(all)
    }
}

fn no_answer(path: &Path, error: &AskError) -> Failure {
    failed(path, shown(error.to_string().as_bytes()))
}

impl Space for Mount<'_> {
    fn name(&self) -> String {
        shown(self.top.as_os_str().as_bytes())
    }

    fn block_bytes(&self) -> u64 {
        self.first.block_bytes
    }

    fn free_runs(&self, left_out: &LeftOut) -> Outcome<Vec<Range<u64>>> {
        let mut free = Vec::new();
        for group in (0..self.first.groups).map(GroupNr::new) {
            match free_runs(&self.image, group) {
                Ok(found) => free.extend(found.runs),
                Err(error) => refused(self.top, error, left_out)?,
            }
        }
        Ok(free)
    }

    fn move_extent(&self, &Move { nr, extent, to }: &Move, left_out: &LeftOut) -> Outcome<bool> {
        match move_extent(&self.image, nr, extent, to) {
            Ok(moved) => Ok(moved),
            Err(error) => refused(self.top, error, left_out).map(|()| false),
        }
    }

    fn settle(&self) -> Outcome {
        sync(self.top).map_err(|error| no_answer(self.top, &error))
    }
}
