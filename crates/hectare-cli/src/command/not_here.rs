//! Commands that need Linux (`for_linux`), on another host: not in the help, and typed, they say so.

use super::moved::Words;
#[cfg(feature = "store")]
use super::store;
use crate::failure::{Failure, Outcome};

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
        };
        Err(Failure::of(name, "not on this host: the command needs Linux"))
    }
}
