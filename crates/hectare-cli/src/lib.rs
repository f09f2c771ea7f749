//! The program `hectare`: real ext4 volumes on the command line, without root and without the kernel's file
//! system.
//!
//! This crate is the outermost layer: it reads arguments, calls the engine, the formatter and the populate
//! layer, and prints. No format knowledge and no rule of a file system belongs here. As a library it promises
//! nothing: it is one so that `hectare-lab` reads and prints as the command does ([`shared`]).
//!
//! Exit codes: 0 done, 1 failed with a line on standard error that names the thing and the reason, 2 wrong
//! usage.

// What only commands for Linux use.
#![cfg_attr(not(all(target_os = "linux", not(hectare_portable))), allow(dead_code))]

mod batch;
mod clock;
mod command;
mod copy;
mod directory;
mod disk_format;
mod dumpe2fs;
mod entry;
mod explanation;
mod failure;
mod free_extents;
mod heading;
mod image;
mod image_device;
mod image_path;
mod journal_search;
mod logical;
mod map;
mod markup;
mod memory;
mod mount_helper;
mod name;
mod new_disk;
mod os;
mod output;
mod partition_args;
mod passwd;
mod patience;
mod picture;
mod progress;
mod remote;
mod reporter;
mod reproducible;
mod size_arg;
#[cfg(feature = "store")]
mod store;
#[cfg(not(feature = "store"))]
mod store_absent;
mod umask;
mod version;
mod walk;
mod write_args;

/// What `hectare-lab` has of the command. No promise.
#[doc(hidden)]
pub mod shared {
    pub use crate::clock::short as short_time;
    pub use crate::explanation::{lines, text::Detail};
    pub use crate::failure::{Failure, Outcome, tell};
    pub use crate::image_device::Hold;
    pub use crate::logical::device;
    pub use crate::markup::escaped;
    pub use crate::name::{JsonName, shown};
    pub use crate::output::{Output, reason, write_file};
    pub use crate::partition_args::Part;
    pub use crate::reporter::{Reporter, is_misuse};
    pub use crate::size_arg::{parse_size, with_suffix};
    pub use crate::write_args::{Explain, Policies, Tuning, data_mode_parser};
}

use clap::{CommandFactory, Parser};
use reporter::Reporter;
use std::process::ExitCode;
#[cfg(not(feature = "store"))]
use store_absent as store;

const LONG: &str = "\
Makes, fills, reads and changes ext4 volumes in image files and on block devices, without \
root and without mounting them. What it writes, e2fsck finds clean and Linux mounts.

A file inside an image is named IMAGE:PATH, as in scp: `disk.img:/etc/fstab`. `disk.img:` is \
the root directory. An image may lie on a server: nbd://host/export, or nbd+unix:///export?socket=PATH; \
or in an object store: s3://bucket/volume, https://host/disk.img.";

const EXAMPLES: &str = "\
Examples:
  hectare mkfs disk.img 1G                    make an empty volume of 1 GiB
  hectare cp -a site/ disk.img:/srv           copy a directory into it
  hectare ls -l disk.img:/srv                 list a directory
  hectare cp disk.img:/srv/index.html .       copy a file out
  hectare build --from rootfs/ disk.img       make an image that just fits a directory
  hectare export disk.img -o disk.tar.gz      all of it as an archive
  hectare info disk.img                       superblock and group information
  hectare map disk.img -o disk.svg            a picture of its usage

`hectare --version --verbose` prints how it was built, and what it reads and writes.

Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard error that names the
object and the reason; with --json, the last one is a JSON object.";

/// Make, fill, inspect and change ext4 volumes from user space
#[derive(Parser)]
#[command(name = "hectare", version, long_about = LONG, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
struct Cli {
    #[command(flatten)]
    max_memory: memory::MaxMemory,
    #[command(flatten)]
    reconnect_timeout: patience::ReconnectTimeout,
    #[command(flatten)]
    store: store::StoreArguments,
    #[command(flatten)]
    tls: remote::Tls,
    #[command(flatten)]
    physical_volumes: logical::PhysicalVolumes,
    #[command(flatten)]
    cache: remote::Cache,
    #[command(flatten)]
    takeover: patience::Takeover,
    #[command(subcommand)]
    command: command::Command,
}

/// Runs the program with its arguments.
#[must_use]
pub fn main() -> ExitCode {
    // Before any thread is started: reading the umask means setting it.
    os::note_umask();
    let arguments = mount_helper::complete(std::env::args_os().collect(), |name| {
        Cli::command().find_subcommand(name).is_some()
    });
    let program = Cli::command();
    let arguments = command::mkfs::xfs::hand_over(arguments, &program);
    let at = command::mkfs::command_at(&arguments, &program);
    let arguments = command::find::spelt(arguments, at);
    let reporter = Reporter::of(&arguments, |name| program.find_subcommand(name).is_some());
    if let Err(failure) = os::check_arguments(&arguments) {
        return reporter.end(Err(failure));
    }
    if version::is_asked(&arguments) {
        return reporter.end(version::print());
    }
    let parsed = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) if reporter::is_misuse(&error) => return reporter.misuse(&error),
        Err(error) => return reporter.help(&error),
    };
    let Cli { max_memory, reconnect_timeout, store, tls, physical_volumes, cache, takeover, command } =
        parsed;
    reconnect_timeout.apply();
    physical_volumes.apply();
    store.apply();
    cache.apply();
    takeover.apply();
    let done = max_memory.apply().and_then(|()| tls.apply()).and_then(|()| command.run(Cli::command));
    store::print_costs();
    reporter.end(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_fits_a_terminal_of_80_columns() {
        fn check(command: &clap::Command) {
            let help = command.clone().term_width(80).render_long_help().to_string();
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        let mut command = Cli::command();
        command.build();
        check(&command);
    }
}
