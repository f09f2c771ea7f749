//! `hectare-lab manual` and `hectare-lab completions`.

use crate::Cli;
use clap::CommandFactory;
use clap_complete::Shell;
use hectare_cli::shared::{Failure, Outcome, Output, reason, shown};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Write the manual pages into a directory
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory, which must exist; pages of the same names are replaced
    directory: PathBuf,
}

/// Print completions for a shell
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let failed = |error: std::io::Error| {
        Failure::of(shown(arguments.directory.as_os_str().as_bytes()), reason(&error))
    };
    clap_mangen::generate_to(Cli::command(), &arguments.directory).map_err(failed)
}

pub(crate) fn completions(arguments: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "hectare-lab", &mut text);
    let mut out = Output::listing();
    out.bytes(&text)?;
    out.finish()
}
