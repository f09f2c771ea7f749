//! Ending a mount from outside, and knowing when it has ended.
//!
//! `umount2(2)` of a plain FUSE file system returns when it is off the tree; whoever serves it may still be
//! writing. So [`unmount`] goes on to wait until the image can be opened again, which is when the volume has
//! been closed.
//!
//! Hazard: the image of another user's mount is whatever that user named, and may be locked for as long as he
//! likes. So the wait has an end.

use crate::mount::{How, detach, is_root};
use crate::mounts::{MountedImage, mounted_image, mounted_on, not_ours, resolved};
use hectare_device::{FileOptions, Reason};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the end of whoever serves is waited for: a close writes what is in memory, which on a slow device
/// takes a while.
const PATIENCE: Duration = Duration::from_secs(120);

/// Takes an image off a folder, and returns when its volume is closed, if the image can be opened to wait for
/// that. Instead of the folder the image can be named, if it is mounted on one folder. Who unmounts lazily
/// does not wait.
///
/// # Errors
/// If no image of ours is mounted there, or it is in use; if it is off the folder, but not closed in time.
pub fn unmount(path: &Path, how: How) -> io::Result<()> {
    let mounted = find(path)?;
    detach(&mounted.dir, !is_root(), how)?;
    if how.lazy { Ok(()) } else { wait(&mounted.source) }
}

fn find(path: &Path) -> io::Result<MountedImage> {
    let path = resolved(path)?;
    let found = mounted_image(&path).ok().filter(|mounted| mounted.dir == path);
    if let Some(mounted) = found {
        return Ok(mounted);
    }
    match &mounted_on(&path)?[..] {
        [] => Err(not_ours()),
        [dir] => mounted_image(dir),
        [..] => Err(io::Error::other("it is mounted more than once: name the directory")),
    }
}

fn wait(image: &Path) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    // Each try waits for a second.
    while let Err(error) = FileOptions::new().open(image) {
        if !matches!(error.reason(), Reason::Busy(_)) {
            return Ok(());
        }
        if Instant::now() > until {
            let reason = format!("it is off the directory, but not closed yet: {error}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
    }
    Ok(())
}
