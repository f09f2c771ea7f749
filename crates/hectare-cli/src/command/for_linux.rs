//! Commands that need Linux: mounts and questions to their servers. Another host has `not_here` in its
//! place, which refuses the same names: a command that is added here is added there. `store` needs no Linux,
//! and is in both for its place in the help.

mod logging;
mod mount;
mod shutdown;
mod stats;
mod sync;
mod umount;

#[cfg(feature = "store")]
use super::store;
use crate::failure::Outcome;

// No documentation: it would become that of the program.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Mount(mount::Arguments),
    Umount(umount::Arguments),
    Shutdown(shutdown::Arguments),
    Stats(stats::Arguments),
    #[cfg(feature = "store")]
    Store(store::Arguments),
    Sync(sync::Arguments),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Mount(arguments) => mount::run(&arguments),
            Self::Umount(arguments) => umount::run(&arguments),
            Self::Shutdown(arguments) => shutdown::run(&arguments),
            Self::Stats(arguments) => stats::run(&arguments),
            #[cfg(feature = "store")]
            Self::Store(arguments) => store::run(&arguments),
            Self::Sync(arguments) => sync::run(&arguments),
        }
    }
}
