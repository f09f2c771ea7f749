//! `hectare salvage`.

mod archive;
mod origin;

use crate::copy::host::{LocalTarget, Rights};
use crate::copy::volume::Inside;
use crate::copy::{Goal, Made, Options as CopyOptions, Target, copy};
use crate::failure::{Failure, LeftOut, Outcome, tell};
use crate::image::Image;
use crate::image_device::{Hold, refuse_other};
use crate::logical::device;
use crate::name::shown;
use crate::os::{is_root, same_file};
use crate::output::{reason, refuse_input, write_file};
use crate::partition_args::Part;
use crate::progress::{Meter, Progress};
use crate::write_args::parse_which;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hectare_device::os::{OsStrExt, path_of};
use hectare_device::{Device, FileOptions, Overwrite};
use hectare_engine::{OpenOptions, Volume};
use hectare_mkfs::FormatOptions;
use hectare_salvage::{Options, Report, Salvage, Step, Watch, WhichSuperblock};
use hectare_units::Bytes;
use origin::Found;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufWriter, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Doubtful files that are named on standard error.
const NAMED_MAX: usize = 20;

/// Bring everything plausible out of a damaged volume
///
/// Inodes are searched for in all inode tables, also those of groups whose descriptors are broken, and names
/// in directories and in blocks of lost directories; what has no name gets lost+found/#INODE. Owners, modes,
/// times, extended attributes, links, devices and holes are kept. Nothing is written to the device; what
/// can't be read of it is zeros, and reported. `hectare check` says what is wrong with a volume. Files that
/// claim more than the device can hold are left out by name, so that no image fills a disk.
///
/// With --deleted, removed files come out as well, in the directory `deleted`: those of which the journal
/// still has a copy of the inode, or of which the extent tree is left. Nothing shows whether their content
/// was overwritten since; the report ranks them by how much of their space is free.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare salvage broken.img -o saved --report report.json\n  \
    hectare salvage /dev/sdb1 -o saved --resume          (continues after an interruption)\n  \
    hectare salvage broken.img -o tar:- | ssh host tar -xpf - -C /srv\n  \
    hectare salvage --deleted disk.img -o saved\n\n\
    Exit codes: 0 all of it is whole, 1 something is doubtful or could not be copied, 2 wrong usage.")]
pub(crate) struct Arguments {
    /// The damaged image or block device
    device: PathBuf,
    /// A directory, which is made if it is missing; tar:FILE or tar:- for an archive; or a file or block
    /// device with a volume to copy into (a missing FILE.img becomes a new one)
    #[arg(short, long, value_name = "DIR|tar:FILE|IMAGE")]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| Output::parse(&text)))]
    output: Output,
    /// Write what is doubtful and why to a file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Find removed files as well
    #[arg(long)]
    deleted: bool,
    /// Continue in a directory that has the files of an interrupted run: those that are complete are left
    #[arg(long)]
    resume: bool,
    /// Go by the superblock in block N (a backup, as in e2fsck -b) [default: the first that is whole]
    #[arg(long, value_name = "N|auto", value_parser = parse_which)]
    superblock: Option<WhichSuperblock>,
    /// Don't replay the journal
    #[arg(long)]
    no_journal: bool,
    /// Read without a lock, even during writes by others
    #[arg(long)]
    no_lock: bool,
    #[command(flatten)]
    part: Part,
}

/// Where it all goes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Output {
    Directory(PathBuf),
    Stdout,
    Tar(PathBuf),
    Image(PathBuf),
}

impl Output {
    /// Where it goes, if that has a name.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) | Self::Tar(path) | Self::Image(path) => Some(path),
            Self::Stdout => None,
        }
    }

    #[allow(clippy::unnecessary_wraps)] // the form that clap wants
    fn parse(text: &OsStr) -> Result<Self, Infallible> {
        let bytes = text.as_bytes();
        if let Some(file) = bytes.strip_prefix(b"tar:") {
            return Ok(if file == b"-" { Self::Stdout } else { Self::Tar(path_of(file)) });
        }
        let place = PathBuf::from(text);
        let is_image = match fs::metadata(&place) {
            Ok(found) => !found.is_dir(),
            Err(_) => bytes.ends_with(b".img"),
        };
        Ok(if is_image { Self::Image(place) } else { Self::Directory(place) })
    }
}

/// Shows the progress of a survey.
struct Shown(Meter);

impl Watch for Shown {
    fn advance(&self, step: Step, done: u64, all: u64) {
        let what = match step {
            Step::Inodes => "reading inodes",
            Step::Names => "reading names",
            Step::Log => "reading the journal",
            Step::Scan => "searching",
        };
        self.0.show(what, done, all);
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    arguments.check()?;
    let name = shown(arguments.device.as_os_str().as_bytes());
    let hold = if arguments.no_lock { Hold::Nobody } else { Hold::Writers };
    let device: Arc<dyn Device> = device(&arguments.device, arguments.part, hold)?;
    let Arguments { superblock, no_journal, deleted, .. } = *arguments;
    let options = Options {
        superblock: superblock.filter(|which| *which != WhichSuperblock::Auto),
        no_journal,
        deleted,
    };
    let watch = Shown(Meter::new());
    let salvage = Salvage::survey(Arc::clone(&device), &options, &watch);
    let salvage = salvage.map_err(|error| {
        // Only now: the start of a volume may have been overwritten with something else.
        refuse_other(&*device, &arguments.part.shown(&name)).err().unwrap_or(Failure::of(&name, error))
    })?;
    drop(watch);
    let salvage = Arc::new(salvage);
    let copied = arguments.copy(&salvage);
    let report = salvage.report();
    let reported = arguments.report.as_deref().map_or(Ok(()), |file| {
        let text = serde_json::to_vec_pretty(&report).map_err(|error| Failure::of("JSON", error))?;
        write_file(file, &text, Overwrite::Replace)
    });
    tell_doubts(&name, &report);
    match (copied, reported) {
        // What was left out was printed already; that there is no report was not.
        (Err(Failure::Told), Err(unwritten)) => return Err(unwritten),
        (copied, reported) => copied.and(reported)?,
    }
    let is_whole = report.doubtful.is_empty() && report.volume.is_empty() && report.unreadable.is_empty();
    if is_whole { Ok(()) } else { Err(Failure::Told) }
}

impl Arguments {
    /// Refuses what can't be meant, before anything is read.
    fn check(&self) -> Outcome {
        if self.resume && !matches!(self.output, Output::Directory(_)) {
            return Err(Failure::Usage("--resume: only a directory can be continued".to_owned()));
        }
        let refuse_source = |path: &Path| refuse_input(path, &[&self.device]);
        if let Some(report) = self.report.as_deref() {
            refuse_source(report)?;
            if self.output.path().is_some_and(|output| same_file(report, output)) {
                let name = shown(report.as_os_str().as_bytes());
                return Err(Failure::Usage(format!(
                    "--report {name}: that is the output; give another file"
                )));
            }
        }
        match &self.output {
            Output::Stdout if std::io::stdout().is_terminal() => {
                Err(Failure::Usage("standard output is a terminal: name a file, or use a pipe".to_owned()))
            }
            Output::Image(path) => refuse_source(path),
            _ => Ok(()),
        }
    }

    fn copy(&self, salvage: &Arc<Salvage>) -> Outcome {
        let progress = Progress::of_size("copying", salvage.content_len().get());
        match &self.output {
            Output::Directory(path) => self.to_directory(path, salvage, &progress),
            Output::Image(path) => {
                let image = image_to_fill(path, salvage.device_len())?;
                let target = Inside { image: &image };
                let top = hectare_units::InodeNr::ROOT;
                let copied = run_copy(&Found::all(Arc::clone(salvage)), &target, top, &progress);
                let left_out = matches!(copied, Err(Failure::Told));
                image.close(if left_out { Ok(()) } else { copied })?;
                if left_out { Err(Failure::Told) } else { Ok(()) }
            }
            Output::Stdout => {
                let out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
                let left_out = LeftOut::default();
                archive::write(salvage, out, &left_out, &progress)
                    .and_then(|mut out| out.flush())
                    .map_err(|error| Failure::of("standard output", reason(&error)))?;
                left_out.outcome()
            }
            Output::Tar(path) => {
                let name = || shown(path.as_os_str().as_bytes());
                let file = hectare_export::NewFile::create(path, Overwrite::Refuse)
                    .map_err(|error| Failure::Line(error.to_string()))?;
                let left_out = LeftOut::default();
                archive::write(salvage, file, &left_out, &progress)
                    .and_then(hectare_export::NewFile::publish)
                    .map_err(|error| Failure::of(name(), reason(&error)))?;
                left_out.outcome()
            }
        }
    }

    fn to_directory(&self, path: &Path, salvage: &Arc<Salvage>, progress: &Progress) -> Outcome {
        let fail = |why: String| Failure::of(shown(path.as_os_str().as_bytes()), why);
        match fs::create_dir(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(fail(reason(&error)));
            }
            _ => {}
        }
        let mut entries = fs::read_dir(path).map_err(|error| fail(reason(&error)))?;
        if !self.resume && entries.next().is_some() {
            return Err(fail("the directory is not empty; --resume continues an interrupted run".to_owned()));
        }
        let is_root = is_root();
        let rights = Rights { attributes: true, set_id: is_root, devices: is_root };
        let (target, found) = if self.resume {
            let found = Found::without_complete(Arc::clone(salvage), path);
            (LocalTarget::resumed(path, rights), found.map_err(|error| fail(reason(&error)))?)
        } else {
            (LocalTarget::in_empty(path, rights), Found::all(Arc::clone(salvage)))
        };
        let target = target.map_err(fail)?;
        let copied = run_copy(&found, &target, target.top(), progress);
        target.tell_lost();
        copied
    }
}

fn run_copy<T: Target>(found: &Found, target: &T, top: T::Dir, progress: &Progress) -> Outcome {
    let options = CopyOptions {
        recursive: true,
        preserve: true,
        hard_links: true,
        follow: false,
        threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        latest: None,
    };
    let goal = Goal { dir: top, name: None, path: Vec::new() };
    copy(found, target, (found.root(), Vec::new()), goal, options, progress, &mut Made::new(false))
}

/// The volume to copy into: the one that is there, or a new one, somewhat larger than the damaged device.
fn image_to_fill(path: &Path, device: Bytes) -> Outcome<Image> {
    if !path.exists() {
        let len = Bytes::new((device.get() + device.get() / 8 + (64 << 20)).next_multiple_of(1 << 20));
        let file = FileOptions::new().write(true).create(path, len, Overwrite::Refuse);
        let file: Arc<dyn Device> = Arc::new(file.map_err(|error| Failure::Line(error.to_string()))?);
        let made = Volume::format(
            file,
            &FormatOptions::default(),
            hectare_engine::Overwrite::Refuse,
            OpenOptions::default(),
        );
        made.and_then(|volume| volume.close())
            .map_err(|error| Failure::of(shown(path.as_os_str().as_bytes()), error))?;
    }
    Image::to_fill(path)
}

/// Names what is doubtful.
fn tell_doubts(name: &str, report: &Report) {
    for note in &report.volume {
        tell(format_args!("{name}: {note}"));
    }
    for range in report.unreadable.iter().take(NAMED_MAX) {
        tell(format_args!("{name}: {} bytes from {} can't be read", range.len, range.at));
    }
    for doubtful in report.doubtful.iter().take(NAMED_MAX) {
        let path = shown(doubtful.path.as_bytes());
        tell(format_args!("{name}:/{path}: doubtful: {}", doubtful.doubts.join("; ")));
    }
    let more = report.doubtful.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        tell(format_args!("{name}: {more} more are doubtful: --report names them all"));
    }
    let found = report.deleted.len();
    let removed = if found > 0 { format!(", {found} removed files") } else { String::new() };
    tell(format_args!(
        "{name}: {} files and directories{removed}; {} are doubtful",
        report.nodes,
        report.doubtful.len()
    ));
}
