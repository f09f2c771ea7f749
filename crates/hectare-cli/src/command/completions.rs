//! `hectare completions`.

use crate::failure::Outcome;
use crate::output::Output;
use clap_complete::Shell;

/// Print completions for a shell
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hectare completions bash > ~/.local/share/bash-completion/completions/hectare"
)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, mut program: clap::Command) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "hectare", &mut text);
    let mut out = Output::listing();
    out.bytes(&text)?;
    out.finish()
}
