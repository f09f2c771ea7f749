//! `hectare umount`, which `umount` runs as `umount.fuseblk.hectare` and `umount.fuse.hectare`.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use hectare_fuse::How;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Take a mounted image off a folder, and wait until it is closed
///
/// The image can be copied or opened by others when this returns. What root mounts, `umount` waits for as
/// well; mounts of others it leaves earlier, as `fusermount3 -u` does, unless it finds this program as
/// umount.fuse.hectare.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare umount /mnt\n  hectare umount disk.img")]
pub(crate) struct Arguments {
    /// Take it off at once, even if it is in use: it is closed when its last user leaves
    #[arg(short, long)]
    lazy: bool,
    /// End requests that nobody answers with an error (root only)
    #[arg(short, long)]
    force: bool,
    /// What umount(8) passes on to whoever unmounts for it: nothing that matters here
    #[arg(short = 'n', short_alias = 'v', hide = true, action = clap::ArgAction::Count)]
    no_table: u8,
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    /// The folder it is mounted on, or the image
    dir: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    hectare_fuse::unmount(&arguments.dir, How { lazy: arguments.lazy, force: arguments.force })
        .map_err(|error| Failure::of(shown(arguments.dir.as_os_str().as_bytes()), error))
}
