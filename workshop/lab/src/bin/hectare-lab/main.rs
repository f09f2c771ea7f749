//! The program `hectare-lab`: experiments on volumes.
//!
//! It reads arguments and prints as `hectare` does, by the same code ([`hectare_cli::shared`]); the experiments are
//! the library's. Exit codes: 0 done, 1 failed with a line on standard error, 2 wrong usage.

mod age;
mod bench;
mod manual;
mod mechanisms;
mod reproduce;
mod spinner;

use clap::{CommandFactory, Parser};
use hectare_cli::shared::{Outcome, Reporter, is_misuse};
use std::ffi::OsString;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  hectare-lab reproduce                       list the published experiments
  hectare-lab reproduce overwrite --quick     repeat one, in small
  hectare-lab bench small-files --on engine:disk.img --policy mballoc,hybrid
  hectare-lab age --fill 95 --mean 64K disk.img
  hectare-lab mechanisms                      what policies are made of

Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard error that names the
object and the reason; with --json, the last one is a JSON object.";

/// Measure, age and compare ext4 volumes, and repeat published experiments on them
#[derive(Parser)]
#[command(name = "hectare-lab", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// No documentation: it would become that of the program.
#[derive(clap::Subcommand)]
enum Command {
    Age(age::Arguments),
    Bench(bench::Arguments),
    Reproduce(reproduce::Arguments),
    Mechanisms(mechanisms::Arguments),
    Manual(manual::Arguments),
    Completions(manual::Completions),
}

impl Command {
    fn run(self) -> Outcome {
        match self {
            Self::Age(arguments) => age::run(&arguments),
            Self::Bench(arguments) => bench::run(&arguments),
            Self::Reproduce(arguments) => reproduce::run(&arguments),
            Self::Mechanisms(arguments) => mechanisms::run(&arguments),
            Self::Manual(arguments) => manual::run(&arguments),
            Self::Completions(arguments) => manual::completions(&arguments),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let reporter =
        Reporter::new("hectare-lab", &arguments, |name| Cli::command().find_subcommand(name).is_some());
    let done = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command.run(),
        Err(error) if is_misuse(&error) => return reporter.misuse(&error),
        Err(error) => return reporter.help(&error),
    };
    reporter.end(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
