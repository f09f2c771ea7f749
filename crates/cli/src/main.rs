//! The binary `hectare`: real ext4 volumes on the command line, without root and without the kernel's file
//! system.
//!
//! This crate is the outermost layer: it reads arguments, calls the engine, the formatter and the populate
//! layer, and prints. No format knowledge and no rule of a file system belongs here.
//!
//! Exit codes: 0 done, 1 failed with a line on standard error that names the thing and the reason, 2 wrong
//! usage.

mod clock;
mod command;
mod copy;
mod dumpe2fs;
mod entry;
mod explanation;
mod failure;
mod free_extents;
mod image;
mod image_path;
mod logging;
mod markup;
mod memory;
mod mount_helper;
mod name;
mod names;
mod output;
mod partition_args;
mod passwd;
mod picture;
mod progress;
#[cfg(feature = "lab")]
mod spinner;
mod umask;
mod walk;
mod write_args;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use failure::{Failure, tell};
use std::process::ExitCode;

const LONG: &str = "\
Makes, fills, reads and changes ext4 volumes in image files and on block devices, without \
root and without mounting them. What it writes, e2fsck finds clean and Linux mounts.

A file inside an image is named IMAGE:PATH, as in scp: `disk.img:/etc/fstab`. `disk.img:` is \
the root directory.";

const EXAMPLES: &str = "\
Examples:
  hectare mkfs disk.img 1G                    make an empty volume of 1 GiB
  hectare cp -a site/ disk.img:/srv           copy a directory into it
  hectare ls -l disk.img:/srv                 list a directory
  hectare cp disk.img:/srv/index.html .       copy a file out
  hectare build --from rootfs/ disk.img       make an image that just fits a directory
  hectare info disk.img                       superblock and group information
  hectare map disk.img -o disk.svg            a picture of its usage

Exit codes: 0 done, 1 failed (one line on standard error names the object and the reason),
2 wrong usage (1 and one line for mkfs, as with other formatters).";

/// Make, fill, inspect and change ext4 volumes from user space
#[derive(Parser)]
#[command(name = "hectare", version, long_about = LONG, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
struct Cli {
    #[command(flatten)]
    max_memory: memory::MaxMemory,
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    // Before any thread is started: reading the umask means setting it.
    umask::note();
    let arguments = mount_helper::complete(std::env::args_os().collect(), |name| {
        Cli::command().find_subcommand(name).is_some()
    });
    let arguments = command::mkfs::xfs::hand_over(arguments.into_iter());
    let formats = command::mkfs::is_named(&arguments);
    let Cli { max_memory, command } = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) if formats && error.use_stderr() => {
            tell(one_line(&misuse(&error)));
            return ExitCode::FAILURE;
        }
        Err(error) => error.exit(),
    };
    match max_memory.apply().and_then(|()| command.run()) {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Line(line)) => {
            tell(one_line(&line));
            ExitCode::FAILURE
        }
        Err(Failure::Usage(message)) => {
            let error = Cli::command().error(clap::error::ErrorKind::ArgumentConflict, message);
            let _ = error.print(); // nothing can be done where standard error is closed
            ExitCode::from(2)
        }
    }
}

/// The error of a command line, and what to do: the first paragraph of clap's message.
fn misuse(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let wrong = lines.join(" ");
    let hint = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(meant)) => format!("did you mean {meant}?"),
        _ => "see `--help`".to_owned(),
    };
    format!("{}; {hint}", wrong.strip_prefix("error: ").unwrap_or(&wrong))
}

/// Messages can carry text from an image, which must not look like a second line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_wrong_with_a_command_line_is_one_line_with_what_to_do() {
        let missing = "the following required arguments were not provided: <IMAGE>; see `--help`";
        for (words, expected) in [
            ("hectare mkfs", missing),
            ("hectare mkfs --forc a 1G", "unexpected argument '--forc' found; did you mean --force?"),
        ] {
            let error = Cli::try_parse_from(words.split(' ')).err().unwrap();
            assert_eq!(misuse(&error), expected);
        }
    }
}
