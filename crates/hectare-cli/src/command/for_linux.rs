//! Commands that need Linux: mounts, questions to their servers, experiments. Another host has `not_here` in its
//! place, which refuses the same names: a command that is added here is added there. `store` needs no Linux,
//! and is in both for its place in the help.

#[cfg(feature = "lab")]
mod age;
#[cfg(feature = "lab")]
mod bench;
mod logging;
mod mount;
#[cfg(feature = "lab")]
mod reproduce;
mod shutdown;
#[cfg(feature = "lab")]
mod spinner;
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
    #[cfg(feature = "lab")]
    Age(age::Arguments),
    #[cfg(feature = "lab")]
    Bench(bench::Arguments),
    #[cfg(feature = "lab")]
    Reproduce(reproduce::Arguments),
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
            #[cfg(feature = "lab")]
            Self::Age(arguments) => age::run(&arguments),
            #[cfg(feature = "lab")]
            Self::Bench(arguments) => bench::run(&arguments),
            #[cfg(feature = "lab")]
            Self::Reproduce(arguments) => reproduce::run(&arguments),
        }
    }
}
