//! Moves the blocks of files together in a volume while it is mounted.
//!
//! The tree is walked through the mount, as any program walks it, and the mount's server moves the blocks of
//! one inode at a time: it is asked by number over its control socket. So programs go on working in between,
//! and only the readers and writers of the file of the moment wait.
//!
//! Hazard: others change the tree meanwhile. What is gone is left out silently, as it needs no move any
//! more; a number that another file has by then is moved instead, which does no harm. Links are not
//! followed, and other mounts below are not entered.

use super::Mover;
use crate::failure::{Failure, Outcome};
use crate::name::shown;
use hectare_fuse::{MountedImage, mounted_image};
use hectare_monitor::{AskError, gather};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Moves what is at and below a path of a mount.
pub(super) fn run(top: &Path, mover: &mut Mover<'_>) -> Outcome {
    let mount = mounted_image(top).map_err(|error| failed(top, error))?;
    let device = fs::symlink_metadata(top).map_err(|error| failed(top, error))?.dev();
    mover.seen.clear();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        match look(&mount, device, &path, mover)? {
            Ok(below) => waiting.extend(below),
            Err(error) if error.kind() == ErrorKind::NotFound && path != top => {}
            Err(error) => mover.left_out.tell(shown(path.as_os_str().as_bytes()), error),
        }
    }
    Ok(())
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::of(shown(path.as_os_str().as_bytes()), error)
}

/// Moves one file or directory; returns what is in it, in the order of names.
fn look(
    mount: &MountedImage,
    device: u64,
    path: &Path,
    mover: &mut Mover<'_>,
) -> Outcome<io::Result<Vec<PathBuf>>> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) => return Ok(Err(error)),
    };
    if meta.dev() != device || !(meta.is_file() || meta.is_dir()) {
        return Ok(Ok(Vec::new()));
    }
    if meta.is_dir() || mover.is_first(meta.ino(), meta.nlink()) {
        let name = path.as_os_str().as_bytes();
        match gather(mount, meta.ino(), mover.arguments.dry_run) {
            Ok(found) => mover.count(name, (found.before, found.after, found.bytes))?,
            // The text may come from another user's program.
            Err(AskError::Refused(reason)) => mover.left_out.tell(shown(name), shown(reason.as_bytes())),
            Err(error) => return Err(failed(path, shown(error.to_string().as_bytes()))),
        }
    }
    if !meta.is_dir() {
        return Ok(Ok(Vec::new()));
    }
    Ok(fs::read_dir(path).and_then(|entries| {
        let mut below = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        below.sort_unstable_by(|a, b| b.cmp(a));
        Ok(below)
    }))
}
