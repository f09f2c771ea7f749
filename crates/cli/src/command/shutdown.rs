//! `hectare shutdown`.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use hectare_engine::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// End the use of a mounted image at once, as if the power was cut (root only)
///
/// Every operation on the mount fails from then on, and nothing more is written: `umount` it, and whoever
/// opens the image next recovers it. To test what survives a crash. `EXT4_IOC_SHUTDOWN` does the same as
/// without an option, but for what the kernel has not written back yet: its mode does not get through FUSE.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare shutdown --cut /mnt; umount /mnt; hectare check disk.img")]
pub(crate) struct Arguments {
    /// Write only the metadata changed so far, through the journal
    #[arg(long, conflicts_with = "cut")]
    flush_log: bool,
    /// Write nothing
    #[arg(long)]
    cut: bool,
    /// The folder it is mounted on
    dir: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let how = match (arguments.flush_log, arguments.cut) {
        (true, _) => Shutdown::FlushLog,
        (_, true) => Shutdown::Cut,
        _ => Shutdown::Flush,
    };
    hectare_fuse::shut_down(&arguments.dir, how)
        .map_err(|error| Failure::of(shown(arguments.dir.as_os_str().as_bytes()), error))
}
