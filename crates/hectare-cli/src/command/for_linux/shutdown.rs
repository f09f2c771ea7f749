//! `hectare shutdown`.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use hectare_engine::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Shut down a mounted volume at once, as a power cut would (root only)
///
/// Every operation on the mount fails with EIO from then on, and nothing more is written. Unmount it; the
/// next opening of the image recovers it. For crash tests. The ioctl EXT4_IOC_SHUTDOWN does the same as this
/// command without an option, whatever its mode (FUSE does not pass the mode on), but does not write back the
/// kernel's cache first.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare shutdown --cut /mnt; umount /mnt; hectare check disk.img")]
pub(crate) struct Arguments {
    /// Commit all changes so far to the journal, and write nothing else
    #[arg(long, conflicts_with = "cut")]
    flush_log: bool,
    /// Write nothing
    #[arg(long)]
    cut: bool,
    /// The directory it is mounted on
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
