//! `hectare umount`.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Take a mounted image off a folder, and wait until it is closed
///
/// The image can be copied or opened by others when this returns. `umount` and `fusermount3 -u` end a mount,
/// too, but return earlier.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare umount /mnt")]
pub(crate) struct Arguments {
    /// The folder it is mounted on
    dir: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    hectare_fuse::unmount(&arguments.dir)
        .map_err(|error| Failure::of(shown(arguments.dir.as_os_str().as_bytes()), error))
}
