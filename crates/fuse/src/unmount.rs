//! Ending a mount from outside, and knowing when it has ended.
//!
//! `umount` of a FUSE file system returns when it is off the tree; whoever serves it may still be writing. So
//! [`unmount`] goes on to wait until the image can be locked, which is when the volume has been closed.

use crate::mount::{detach, is_root};
use crate::mounts::{mounted_image, not_ours, resolved};
use std::fs::File;
use std::io;
use std::path::Path;

/// Takes an image off a folder, and returns when its volume is closed, if the image can be opened to wait for
/// that.
///
/// # Errors
/// If no image of ours is mounted there, or it is in use.
pub fn unmount(dir: &Path) -> io::Result<()> {
    let dir = resolved(dir)?;
    let mounted = mounted_image(&dir)?;
    if mounted.dir != dir {
        return Err(not_ours());
    }
    detach(&mounted.dir, !is_root())?;
    if let Ok(image) = File::open(&mounted.source) {
        image.lock_shared()?;
    }
    Ok(())
}
