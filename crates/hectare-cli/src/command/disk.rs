//! `hectare disk`: whole disks.

mod build;

use crate::failure::Outcome;

/// Make whole disks
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What is done with a disk.
#[derive(clap::Subcommand)]
enum Command {
    Build(Box<build::Arguments>),
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Build(arguments) => build::run(arguments),
    }
}
