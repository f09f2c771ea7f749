//! Commands that have moved to another program, or that this build lacks: not in the help, and typed, they say so.

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
    Age(Words),
    #[command(hide = true)]
    Bench(Words),
    #[command(hide = true)]
    Reproduce(Words),
    #[cfg(not(feature = "store"))]
    #[command(hide = true)]
    Store(Words),
}

impl Command {
    /// Says where it is.
    pub(crate) fn run(self) -> Outcome {
        let name = match self {
            Self::Age(_) => "age",
            Self::Bench(_) => "bench",
            Self::Reproduce(_) => "reproduce",
            #[cfg(not(feature = "store"))]
            Self::Store(_) => return Err(ended(format!("store: {}", crate::store_absent::REASON))),
        };
        Err(ended(format!("{name}: a command of another program: run hectare-lab {name}")))
    }
}

/// As for wrong usage.
fn ended(line: String) -> Failure {
    Failure::Ended { line: Some(line), code: 2 }
}
