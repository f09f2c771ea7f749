//! `hectare umount`, which `umount` runs as `umount.fuseblk.hectare` and `umount.fuse.hectare`.

use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use hectare_fuse::{How, Unmounted};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Unmount an image, and wait until it is closed
///
/// The image is closed when this returns. `umount` waits likewise on mounts that root made; on other mounts
/// it returns earlier, as `fusermount3 -u` does, unless this program is installed as umount.fuse.hectare.
/// When root unmounts another user's mount, the image is neither opened nor waited for: it is that user's
/// business.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare umount /mnt\n  hectare umount disk.img")]
pub(crate) struct Arguments {
    /// Detach it at once, even if it is in use; the image is closed when the last open file is closed
    #[arg(short, long)]
    lazy: bool,
    /// Fail all requests that the server has not answered (root only)
    #[arg(short, long)]
    force: bool,
    /// Options that umount(8) passes to its helpers, ignored
    #[arg(short = 'n', short_alias = 'v', hide = true, action = clap::ArgAction::Count)]
    no_table: u8,
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    /// The directory it is mounted on, or the image
    dir: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let dir = shown(arguments.dir.as_os_str().as_bytes());
    let how = How { lazy: arguments.lazy, force: arguments.force };
    match hectare_fuse::unmount(&arguments.dir, how) {
        Ok(Unmounted::AsAsked) => {}
        Ok(Unmounted::ServerOf(user)) => tell(format_args!(
            "{dir}: unmounted; the server of user {user} may still be writing to the image, not waited for"
        )),
        Err(error) => return Err(Failure::of(dir, error)),
    }
    Ok(())
}
