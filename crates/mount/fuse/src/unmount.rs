//! Unmounts from outside, and waits until the mount has ended.
//!
//! `umount2(2)` of a plain FUSE file system returns when it is off the tree; its server may still be writing.
//! So [`unmount`] then waits until the image can be opened again, which is when the volume has been closed.
//!
//! Hazard: the image of another user's mount is whatever that user named: a pipe, a device, a locked file. So
//! that is not opened, and the result says that the wait was skipped. The caller's own image may also be
//! locked by other processes, so the wait has an end.

use crate::mount::{How, detach};
use crate::mountinfo::{MountedImage, mounted_image, mounted_on, not_ours, resolved};
use crate::root::is_root;
use hectare_device::{FileOptions, Reason};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for the server to end: closing writes what is in memory, which takes a while on a slow
/// device.
const PATIENCE: Duration = Duration::from_secs(120);

/// What has been waited for when a mount is off its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// The volume is closed, or the caller did not want to wait.
    AsAsked,
    /// Nothing: the server and the image are those of this user, by number.
    ServerOf(u32),
}

/// Unmounts an image, and returns when its volume is closed, if the caller mounted it and it can be opened to
/// wait for that. Instead of the directory the image can be named, if it is mounted on one. A lazy unmount
/// does not wait.
///
/// # Errors
/// If no image of ours is mounted there, or it is in use; if it is unmounted, but not closed in time.
pub fn unmount(path: &Path, how: How) -> io::Result<Unmounted> {
    let mounted = find(path)?;
    detach(&mounted.dir, !is_root(), how)?;
    if how.lazy {
        return Ok(Unmounted::AsAsked);
    }
    if mounted.user != rustix::process::geteuid().as_raw() {
        return Ok(Unmounted::ServerOf(mounted.user));
    }
    wait(&mounted.source).map(|()| Unmounted::AsAsked)
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
