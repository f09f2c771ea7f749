//! `hectare sync`.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use hectare_monitor::AskError;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Make everything written to a mount durable, and wait for it
///
/// `sync` and `sync -f` do the same on a mount that root made (fuseblk, Linux 6.18). On other mounts they
/// return at once, and everything is durable about a second later. Only root and the user who mounted the
/// image may use this.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare sync /mnt")]
pub(crate) struct Arguments {
    /// The directory an image is mounted on, or anything below it
    dir: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    // The error's text may come from another user.
    let said = |error: AskError| shown(error.to_string().as_bytes());
    hectare_monitor::sync(&arguments.dir)
        .map_err(|error| Failure::of(shown(arguments.dir.as_os_str().as_bytes()), said(error)))
}
