//! `hectare manual`.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use crate::output::reason;
use hectare_device::os::OsStrExt;
use std::path::PathBuf;

/// Write the manual pages of all commands into a directory
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare manual ~/.local/share/man/man1 && man hectare-build")]
pub(crate) struct Arguments {
    /// The directory, which must exist; pages of the same names are replaced
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, program: clap::Command) -> Outcome {
    let failed = |error: std::io::Error| {
        Failure::of(shown(arguments.directory.as_os_str().as_bytes()), reason(&error))
    };
    clap_mangen::generate_to(program, &arguments.directory).map_err(failed)
}
