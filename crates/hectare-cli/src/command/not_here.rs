//! Commands that need Linux (`for_linux`), on another host: not in the help, and typed, they say so.

#[cfg(feature = "store")]
use super::store;
use crate::failure::{Failure, Outcome};
use std::ffi::OsString;

/// What follows such a command.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Words {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    #[command(hide = true)]
    Mount(Words),
    #[command(hide = true)]
    Umount(Words),
    #[command(hide = true)]
    Shutdown(Words),
    #[command(hide = true)]
    Stats(Words),
    #[cfg(feature = "store")]
    Store(store::Arguments),
    #[command(hide = true)]
    Sync(Words),
    #[command(hide = true)]
    Age(Words),
    #[command(hide = true)]
    Bench(Words),
    #[command(hide = true)]
    Reproduce(Words),
}

impl Command {
    /// Says that it is not there.
    pub(crate) fn run(self) -> Outcome {
        let name = match self {
            Self::Mount(_) => "mount",
            Self::Umount(_) => "umount",
            Self::Shutdown(_) => "shutdown",
            Self::Stats(_) => "stats",
            #[cfg(feature = "store")]
            Self::Store(arguments) => return store::run(&arguments),
            Self::Sync(_) => "sync",
            Self::Age(_) => "age",
            Self::Bench(_) => "bench",
            Self::Reproduce(_) => "reproduce",
        };
        Err(Failure::of(name, "not on this host: the command needs Linux"))
    }
}
