//! `hectare mount`.
//!
//! In the background by default: the process starts itself once more (before it has any thread), and ends
//! when the other one says over a pipe that the mount can be used, or has told on standard error why not.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use crate::part;
use hectare_device::Device;
use hectare_engine::Volume;
use hectare_fuse::{MountOptions, OPTIONS, serve};
use hectare_units::Bytes;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What the process in the background says once the mount can be used.
const READY: &str = "ready";

/// Mount an image on a folder (FUSE), for any program to use
#[derive(clap::Args)]
#[command(
    long_about = "\
Mounts an image on a folder. Everybody may do that with fusermount3 (package fuse3); `umount`, \
`fusermount3 -u` or `hectare umount` end it, and so do SIGTERM and SIGINT to the process.

In /etc/fstab the type is fuse.hectare:
  /srv/disk.img  /mnt/disk  fuse.hectare  noauto,allow_other  0  0",
    after_help = after_help()
)]
pub(crate) struct Arguments {
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTION,...", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
    /// The process in the background: says on standard output when the mount can be used
    #[arg(long, hide = true)]
    background: bool,
    /// What mount(8) passes on to whoever mounts for it: nothing that matters here
    #[arg(short = 'n', short_alias = 's', hide = true, action = clap::ArgAction::Count)]
    no_table: u8,
    #[arg(short = 'v', hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    /// The image, a file or block device
    image: PathBuf,
    /// The folder to mount it on
    dir: PathBuf,
}

fn after_help() -> String {
    let mut help = String::from("Options (-o):\n");
    for row in OPTIONS.iter().filter(|row| !row.help().is_empty()) {
        help.push_str(&format!("  {:<20} {}\n", row.usage(), row.help()));
    }
    help + "\nExamples:\n  hectare mount disk.img /mnt\n  hectare mount -o ro,offset=1048576 sda.img /mnt"
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut options = MountOptions::default();
    for list in &arguments.options {
        options.add(list).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    if options.offset != 0 && !part::is_whole() {
        return Err(Failure::Usage("the part of the image is named twice".into()));
    }
    if arguments.background {
        serve_here(arguments, &options, in_background)
    } else if arguments.foreground || options.foreground {
        serve_here(arguments, &options, || {})
    } else {
        start(arguments)
    }
}

/// Mounts and serves until the end.
fn serve_here(arguments: &Arguments, options: &MountOptions, ready: impl FnOnce()) -> Outcome {
    if arguments.background {
        // The terminal's signals are not for it. It fails only where it has been done already.
        let _ = rustix::process::setsid();
    }
    let name = shown(arguments.image.as_os_str().as_bytes());
    let fail = |error: &dyn std::fmt::Display| Failure::of(&name, error);
    let device = device(arguments, options)?;
    let volume = Volume::open(device, options.open_options()).map_err(|error| fail(&error))?;
    let source = arguments.image.canonicalize().unwrap_or_else(|_| arguments.image.clone());
    serve(volume, &source.to_string_lossy(), &arguments.dir, options, ready).map_err(|error| {
        Failure::of(format_args!("{name} on {}", shown(arguments.dir.as_os_str().as_bytes())), error)
    })
}

/// The image, or the part of it that `-o offset=`, `--offset` or `--partition` name.
fn device(arguments: &Arguments, options: &MountOptions) -> Outcome<Arc<dyn Device>> {
    let write = !options.read_only;
    if options.offset == 0 {
        return crate::image::device(&arguments.image, write);
    }
    part::from_offset(crate::image::file_device(&arguments.image, write)?, Bytes::new(options.offset))
}

/// Starts the process in the background and waits until it can be used.
fn start(arguments: &Arguments) -> Outcome {
    let fail = |error: std::io::Error| Failure::of("the process in the background can't be started", error);
    let mut command = Command::new("/proc/self/exe");
    command.args(["mount", "--background"]).args(part::arguments());
    for list in &arguments.options {
        command.arg("-o").arg(list);
    }
    command.arg("--").arg(&arguments.image).arg(&arguments.dir);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
    let mut said = String::new();
    if let Some(output) = server.stdout.take() {
        BufReader::new(output).read_line(&mut said).map_err(fail)?;
    }
    if said.trim_end() == READY {
        return Ok(());
    }
    server.wait().map_err(fail)?;
    Err(Failure::Told)
}

/// Leaves the starter's folder and its standard streams, and says that the mount can be used.
fn in_background() {
    let _ = std::env::set_current_dir("/");
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    if let Ok(nowhere) = &nowhere {
        let _ = rustix::stdio::dup2_stderr(nowhere);
    }
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{READY}").and_then(|()| output.flush());
    if let Ok(nowhere) = &nowhere {
        let _ = rustix::stdio::dup2_stdout(nowhere);
    }
}
