//! `hectare mount`.
//!
//! In the background by default: the process starts itself once more (before it has any thread), and ends
//! when the new process reports over a pipe that the mount is ready, or has reported on standard error why it
//! isn't. From then on the background process has no standard streams and logs its messages ([`logging`]).
//!
//! Checks that may prevent the mount come first (the directory, the log file, the address for statistics, the
//! image); what needs the mount comes last (the control socket, without which the mount works as well).
//!
//! Privileges end in between ([`Prepared`]): what needs them is opened, a process that keeps them for
//! mounting and unmounting is started ([`keeper_command`]), and all others are dropped before the image is
//! read, and before the first thread is started. Two things are looked at earlier: of a qcow2 or VMDK the names
//! of the files that it needs, which have to be opened ([`Named`]); of an export the address of its host. It is
//! connected to afterwards, as it will be after a lost connection, with the rights that remain.

use super::logging::{self, LogTarget};
use crate::failure::{Failure, Outcome};
use crate::image_device::disk_with;
use crate::logical::{PhysicalVolumes, volume_in};
use crate::name::shown;
use crate::partition_args::{Part, from_offset};
use crate::remote::{self, is_address, why_not_mounted};
use crate::write_args::Tolerant;
use hectare_device::{Device, FileDevice, FileOptions, Reason, StatsDevice};
use hectare_disk::Named;
use hectare_engine::{JournalDevice, Volume};
use hectare_fuse::{
    Confined, Image, Keeper, MountOptions, Mounting, OPTIONS, Operations, REMOUNT, confine, is_root,
    metrics_address, mounted_image, mounted_on, serve,
};
use hectare_monitor::{Monitor, ServerReport, Watched, bind, may_remount, own_folder};
use hectare_nbd::NbdDevice;
use hectare_units::Bytes;
use log::LevelFilter;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What the background process reports once the mount is ready.
const READY: &str = "ready";

/// Mount an image on a directory (FUSE), for any program to use
#[allow(rustdoc::broken_intra_doc_links)] // help texts, where [:X] may be left out
#[derive(clap::Args)]
#[command(
    long_about = "\
Mounts an image on a directory. Any user can do that with fusermount3 (package fuse3); `umount`, \
`fusermount3 -u` or `hectare umount` end it, and so do SIGTERM and SIGINT to the process.

In /etc/fstab the type is fuse.hectare:
  /srv/disk.img  /mnt/disk  fuse.hectare  noauto,allow_other  0  0
`mount` looks for the program in /usr/local/bin, /usr/bin and the like only, and calls it directly if there \
are links to it in /sbin (docs/operating.md). Set-ID bits and device nodes of an image have no effect unless \
root asks for them: by `suid` and `dev`, or, through mount.fuse, which adds these two by itself, by \
`allow_suid` and `allow_dev`.",
    after_help = after_help()
)]
pub(crate) struct Arguments {
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTION,...", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Stay in the foreground, and log to standard error
    #[arg(long)]
    foreground: bool,
    /// Serve statistics over HTTP at [HOST:]PORT: /metrics for Prometheus, and a live page at /
    ///
    /// Without a host, and unless --metrics-public is given, only this machine can reach them.
    #[arg(long, value_name = "ADDRESS", value_parser = metrics_address)]
    metrics: Option<SocketAddr>,
    /// Serve them to other machines, too: any client can read all metrics, and change nothing
    #[arg(long)]
    metrics_public: bool,
    /// Record the search of the last 10,000 allocation requests: `hectare explain DIR` shows it
    #[arg(long)]
    explain: bool,
    /// Append the log to a file; by default the background process uses the system's log
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Log level: off, error, warn, info, debug or trace [default: HECTARE_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LevelFilter>,
    /// The background process: reports on standard output when the mount is ready
    #[arg(long, hide = true)]
    background: bool,
    /// The process that mounts and unmounts for the server
    #[arg(long, hide = true)]
    keeper: bool,
    /// `mount.fuse` has added options
    #[arg(long = crate::mount_helper::ADDED, hide = true)]
    by_mount_fuse: bool,
    /// Flags that mount(8) passes to its helpers: nothing that matters here
    #[arg(short = 'n', short_alias = 's', hide = true, action = clap::ArgAction::Count)]
    no_table: u8,
    #[arg(short = 'v', hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    #[command(flatten)]
    part: Part,
    #[command(flatten)]
    tolerant: Tolerant,
    /// The image: a file, a block device or an export (nbd://...)
    image: PathBuf,
    /// The directory to mount it on; with -o remount it can be given alone
    dir: Option<PathBuf>,
}

fn after_help() -> String {
    let mut help = String::from("Options (-o):\n");
    for row in OPTIONS.iter().filter(|row| !row.help().is_empty() && !row.is_for_benchmarks()) {
        help.push_str(&format!("  {:<20} {}\n", row.usage(), row.help()));
    }
    help + "\nExamples:\n  hectare mount disk.img /mnt\n  hectare mount -o ro,offset=1048576 sda.img /mnt\n  \
            hectare mount --metrics 9100 disk.img /mnt      (then open http://127.0.0.1:9100/)"
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.remounts() {
        return remount(arguments);
    }
    let options = arguments.options()?;
    if arguments.tolerant.is_given() && !options.read_only {
        let reason = "a damaged image can only be mounted for reading: add -o ro";
        return Err(Failure::Usage(reason.into()));
    }
    if options.offset != 0 && !arguments.part.is_whole() {
        return Err(Failure::Usage("the part of the image is named twice".into()));
    }
    if arguments.keeper || arguments.background {
        // It was started by way of /proc/self/exe, and would be listed as "exe".
        let _ = rustix::thread::set_name(c"hectare");
    }
    if arguments.keeper {
        keep(arguments, &options)
    } else if arguments.background {
        serve_here(arguments, &options, in_background)
    } else if options.foreground {
        serve_here(arguments, &options, || {})
    } else {
        start(arguments)
    }
}

impl Arguments {
    /// The mount point.
    fn dir(&self) -> Outcome<&Path> {
        let missing = || Failure::Usage("the directory to mount it on is missing".into());
        self.dir.as_deref().ok_or_else(missing)
    }

    /// Whether an existing mount is to be changed.
    fn remounts(&self) -> bool {
        self.options.iter().any(|list| list.split(',').any(|option| option == REMOUNT))
    }

    /// The options of `-o`, and of the equivalent flags.
    fn options(&self) -> Outcome<MountOptions> {
        let mut options = MountOptions::default();
        for list in &self.options {
            options.add(list).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        if self.by_mount_fuse {
            options.drop_added();
        }
        if (options.suid || options.dev) && !is_root() {
            let reason = "mount options 'suid' and 'dev': only root may ask for them";
            return Err(Failure::Usage(reason.into()));
        }
        options.foreground |= self.foreground;
        options.explain |= self.explain;
        options.metrics_public |= self.metrics_public;
        options.metrics = self.metrics.or(options.metrics);
        options.log = self.log_level.or(options.log);
        options.log_file = self.log.clone().or(options.log_file);
        Ok(options)
    }

    /// The equivalent arguments for the background process.
    fn for_background(&self) -> Vec<OsString> {
        let mut arguments = self.for_other("--background");
        arguments.extend(self.part.arguments().into_iter().map(OsString::from));
        arguments.extend(PhysicalVolumes::arguments());
        arguments.extend(remote::arguments());
        arguments.extend(self.tolerant.arguments().into_iter().map(OsString::from));
        if let Some(address) = self.metrics {
            arguments.extend(["--metrics".into(), address.to_string().into()]);
        }
        if self.metrics_public {
            arguments.push("--metrics-public".into());
        }
        if self.explain {
            arguments.push("--explain".into());
        }
        if let Some(file) = &self.log {
            arguments.extend(["--log".into(), file.into()]);
        }
        if let Some(level) = self.log_level {
            arguments.extend(["--log-level".into(), level.to_string().into()]);
        }
        arguments.extend(["--".into(), self.image.clone().into()]);
        arguments.extend(self.dir.clone().map(OsString::from));
        arguments
    }

    /// The first arguments of another process of this program, and the options.
    fn for_other(&self, what: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["mount".into(), what.into()];
        arguments.extend(self.by_mount_fuse.then(|| format!("--{}", crate::mount_helper::ADDED).into()));
        for list in &self.options {
            arguments.extend(["-o".into(), list.into()]);
        }
        arguments
    }
}

/// Changes an existing mount.
fn remount(arguments: &Arguments) -> Outcome {
    let dir = arguments.dir.as_ref().unwrap_or(&arguments.image);
    let list = arguments.options.join(",");
    let fail = |error: &dyn std::fmt::Display| Failure::of(shown(dir.as_os_str().as_bytes()), error);
    let mounted = mounted_image(dir).map_err(|error| fail(&error))?;
    may_remount(&mounted, &list).map_err(|error| fail(&shown(error.to_string().as_bytes())))?;
    hectare_fuse::remount(&mounted, &list, arguments.by_mount_fuse).map_err(|error| fail(&error))?;
    // A mount that takes no more changes is not expected to write anything later.
    hectare_monitor::sync(dir).map_err(|error| fail(&shown(error.to_string().as_bytes())))
}

/// Mounts and unmounts on behalf of a server.
fn keep(arguments: &Arguments, options: &MountOptions) -> Outcome {
    let source = arguments.image.to_string_lossy();
    hectare_fuse::keep(&Mounting { source: &source, dir: arguments.dir()?, options })
        .map_err(|error| Failure::of("the keeper of a mount", error))
}

/// Mounts and serves until the end, which is logged.
fn serve_here(arguments: &Arguments, options: &MountOptions, ready: impl FnOnce()) -> Outcome {
    if arguments.background {
        // Detach from the terminal's signals. It fails only where that has been done already.
        let _ = rustix::process::setsid();
    }
    let place = log_place(arguments, options)?;
    let level = logging::level(options.log)?;
    let prepared = Prepared::new(arguments, options);
    // The first thread: without privileges, as all later ones.
    if let Some(place) = place {
        logging::start(level, place);
    }
    let served = prepared.and_then(|prepared| serve_watched(arguments, options, prepared, ready));
    if let (true, Err(Failure::Line(line))) = (arguments.background, &served) {
        // Standard error may be gone.
        log::error!("{line}");
    }
    logging::flush();
    served
}

fn log_place(arguments: &Arguments, options: &MountOptions) -> Outcome<Option<LogTarget>> {
    Ok(match &options.log_file {
        Some(file) => Some(LogTarget::file(file)?),
        None if arguments.background => LogTarget::system(),
        None => Some(LogTarget::StandardError),
    })
}

/// Where the bytes of an image are, with everything open that can't be opened later.
enum Source {
    File(Box<FileDevice>, Named),
    /// Connections are made later, when there may be threads.
    Export(remote::Export),
}

impl Source {
    fn open(image: &Path, dir: &Path, part: Part, options: &MountOptions) -> Outcome<Self> {
        if let Some(why) = why_not_mounted(image) {
            return Err(Failure::of(shown(image.as_os_str().as_bytes()), why));
        }
        if is_address(image) {
            let export = remote::Export::of(image, !options.read_only)?;
            return Ok(Self::Export(export.looked_up()?));
        }
        let file = open(image, dir, options)?;
        let path = image.canonicalize().unwrap_or_else(|_| image.to_owned());
        let named = Named::by(&file, &path, part.backing());
        Ok(Self::File(Box::new(file), named.map_err(|error| Failure::Line(error.to_string()))?))
    }

    fn port(&self) -> Option<u16> {
        match self {
            Self::File(..) => None,
            Self::Export(export) => export.port(),
        }
    }
}

/// Everything that needs privileges, done; and no privileges left.
struct Prepared {
    image: PathBuf,
    dir: PathBuf,
    source: Source,
    journal: Option<JournalDevice>,
    keeper: Keeper,
    listener: Option<TcpListener>,
    confined: Confined,
}

impl Prepared {
    fn new(arguments: &Arguments, options: &MountOptions) -> Outcome<Self> {
        let name = shown(arguments.image.as_os_str().as_bytes());
        let fail = |error: &dyn std::fmt::Display| Failure::of(&name, error);
        let dir = folder(arguments.dir()?)?;
        let listener = options.metrics.map(|address| bind(address, options.metrics_public)).transpose();
        let listener = listener.map_err(|error| fail(&error))?;
        let source = Source::open(&arguments.image, &dir, arguments.part, options)?;
        PhysicalVolumes::open_early(!options.read_only)?;
        let journal = options.journal.as_deref().map(|path| open_journal(path, options)).transpose()?;
        let image = match &source {
            Source::Export(export) => export.name().into(),
            Source::File(..) => arguments.image.canonicalize().unwrap_or_else(|_| arguments.image.clone()),
        };
        let keeper = Keeper::start(&mut keeper_command(arguments, &image, &dir)).map_err(|error| {
            fail(&format_args!("the process that mounts can't be started: {error}; is /proc mounted?"))
        })?;
        // A mount works without a control socket; its absence is reported when it is needed.
        let control = own_folder().ok();
        let confined = confine(control.as_deref(), source.port()).map_err(|error| fail(&error))?;
        Ok(Self { image, dir, source, journal, keeper, listener, confined })
    }
}

/// The directory to mount on, without links.
fn folder(dir: &Path) -> Outcome<PathBuf> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::of(shown(dir.as_os_str().as_bytes()), format_args!("it can't be mounted on: {error}"))
    };
    // A mount point in use, by another user's server or a dead one, can't be inspected.
    let looked = dir.canonicalize().and_then(|found| Ok((found.metadata()?, found)));
    let (kind, found) = looked.map_err(|error| fail(&crate::output::reason(&error)))?;
    if kind.is_dir() { Ok(found) } else { Err(fail(&"it is no directory")) }
}

/// Opens the image; if that fails because it is mounted, reports where, and what to do.
fn open(image: &Path, dir: &Path, options: &MountOptions) -> Outcome<FileDevice> {
    let opened = FileOptions::new().write(!options.read_only).open(image);
    opened.map_err(|error| {
        let places = mounted_on(&image.canonicalize().unwrap_or_default()).unwrap_or_default();
        let name = shown(image.as_os_str().as_bytes());
        match (error.reason(), places.first()) {
            (Reason::Busy(_), Some(there)) if there == dir => {
                Failure::of(name, "it is mounted there already")
            }
            (Reason::Busy(_), Some(there)) => {
                let [there, dir] = [there, dir].map(|path| shown(path.as_os_str().as_bytes()));
                let what = format_args!(
                    "it is mounted on {there} already; `mount --bind {there} {dir}` shows it there, too, \
                     `hectare umount {there}` ends it"
                )
                .to_string();
                Failure::of(name, what)
            }
            _ => Failure::Line(error.to_string()),
        }
    })
}

/// Opens the journal that lies on a device or in a file of its own.
fn open_journal(path: &Path, options: &MountOptions) -> Outcome<JournalDevice> {
    let opened = FileOptions::new().write(!options.read_only).open(path);
    let device = opened.map_err(|error| Failure::Line(error.to_string()))?;
    Ok(JournalDevice(Arc::new(device)))
}

fn keeper_command(arguments: &Arguments, image: &Path, dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments.for_other("--keeper")).arg("--").args([image, dir]);
    command
}

/// Serves, with the control socket and the statistics.
fn serve_watched(
    arguments: &Arguments,
    options: &MountOptions,
    prepared: Prepared,
    ready: impl FnOnce(),
) -> Outcome {
    let Prepared { image, dir, source, journal, keeper, listener, confined } = prepared;
    confined.log();
    if arguments.by_mount_fuse && is_root() {
        log::info!("mount.fuse adds dev and suid by itself: only allow_dev and allow_suid have an effect");
    }
    let name = shown(arguments.image.as_os_str().as_bytes());
    let fail = |error: &dyn std::fmt::Display| Failure::of(&name, error);
    let (claim, disk, server): (_, Arc<dyn Device>, _) = match source {
        Source::File(file, named) => {
            let claim = file.claim().map_err(|error| fail(&error))?;
            (Some(claim), disk_with(*file, &image, arguments.part, named)?, None)
        }
        Source::Export(export) => {
            let device = Arc::new(export.connect()?);
            (None, Arc::clone(&device) as _, Some(server_counters(device)))
        }
    };
    let device = match options.offset {
        0 if arguments.part.is_whole() => volume_in(disk, &image)?,
        0 => arguments.part.of(disk)?,
        offset => from_offset(disk, Bytes::new(offset))?,
    };
    let device = Arc::new(StatsDevice::new(device));
    let below: Arc<dyn Device> = Arc::clone(&device) as _;
    let mut open_options = options.open_options();
    arguments.tolerant.apply(&name, &*below, &mut open_options)?;
    open_options.journal = journal;
    let volume = Volume::open(below, open_options).map_err(|error| fail(&error))?;
    let operations = Arc::<Operations>::default();
    let watched = Watched {
        volume: volume.clone(),
        device,
        server,
        operations: Arc::clone(&operations),
        image: image.clone(),
        dir: dir.clone(),
        options: options.clone(),
    };
    let mut monitor = Monitor::start(watched).map_err(|error| fail(&error))?;
    if let Some(listener) = listener {
        monitor.serve_http(listener).map_err(|error| fail(&error))?;
    }
    let ready = || {
        if let Err(error) = monitor.serve_control() {
            log::warn!(error:%; "`hectare stats` will not work");
        }
        ready();
    };
    let what = Mounting { source: &image.to_string_lossy(), dir: &dir, options };
    serve(volume, &what, Some(Image { claim, keeper }), operations, ready)
        .map_err(|error| Failure::of(format_args!("{name} on {}", shown(dir.as_os_str().as_bytes())), error))
}

/// Reads the counters of a connection for the monitor.
fn server_counters(device: Arc<NbdDevice>) -> Box<dyn Fn() -> ServerReport + Send + Sync> {
    Box::new(move || ServerReport { requests: device.requests(), reconnects: device.reconnects() })
}

/// Starts the background process and waits until the mount is ready.
fn start(arguments: &Arguments) -> Outcome {
    let fail = |error: std::io::Error| Failure::of("the process in the background can't be started", error);
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments.for_background());
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

/// Leaves the starter's directory and its standard streams, and reports that the mount is ready.
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
