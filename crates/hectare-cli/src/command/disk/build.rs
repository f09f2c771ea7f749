//! `hectare disk build`.

use super::super::build::volume_source;
use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::new_disk::{Kind, NewDisk, nameless_twice};
use crate::output::{Output, reason};
use crate::progress::Progress;
use crate::reproducible::epoch;
use crate::size_arg::parse_size;
use hectare_device::os::{OsStrExt, borrowed};
use hectare_device::{Device, FileOptions, Overwrite, PendingFile};
use hectare_disk_build::{Disk, Environment, Identity, Made, Spec, TableKind};
use hectare_populate::Source;
use hectare_units::Bytes;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The most bytes of a description.
const TEXT_MAX: u64 = 4 << 20;

/// Make a disk with partitions from a description
///
/// SPEC is a file in TOML (docs/disks.md has its keys), or a directory of repart.d files. The disk has a GPT
/// or an MBR, blobs such as boot loaders before the partitions, ext2, ext3, ext4 and FAT volumes filled with
/// files, empty XFS volumes, copies of files, and dm-verity hash trees. The file appears under its name when
/// it is complete. Root hashes are written beside it (disk.roothash). With SOURCE_DATE_EPOCH the same
/// description and sources give the same bytes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare disk build disk.toml -o disk.img\n  \
    hectare disk build disk.toml -o disk.qcow2\n  \
    hectare disk build repart.d/ --root rootfs/ -o disk.img\n  \
    hectare disk build disk.toml -o - | zstd > disk.img.zst")]
pub(crate) struct Arguments {
    /// The description: a TOML file, or a directory of repart.d files
    spec: PathBuf,
    /// The disk to make, or - for standard output, which gets nothing else then
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The kind of the file [default: by its name, else raw]
    #[arg(long, value_name = "KIND")]
    format: Option<Kind>,
    /// Replace an existing file
    #[arg(short = 'F', long)]
    force: bool,
    /// The size of the disk, whatever the description says: bytes with K, M, G, T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// With repart.d files: the directory where paths to be copied start
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Derive UUIDs that are not given from this UUID, as systemd-repart does
    #[arg(long, value_name = "UUID", value_parser = parse_seed)]
    seed: Option<Identity>,
    /// Number of threads (as many as the machine runs at once, if not given)
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Print nothing but errors and warnings
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Print JSON: what was made
    #[arg(long)]
    json: bool,
}

fn parse_seed(text: &str) -> Result<Identity, String> {
    let bytes = hectare_mkfs::parse_uuid("--seed", text).map_err(|error| error.to_string())?;
    Ok(Identity::of_seed(bytes))
}

impl Arguments {
    fn is_stdout(&self) -> bool {
        self.output.as_os_str() == "-"
    }

    fn kind(&self) -> Outcome<Kind> {
        if !self.is_stdout() {
            return self.format.map_or_else(|| Kind::of_name(&self.output), Ok);
        }
        if self.format.is_some_and(|kind| kind != Kind::Raw) {
            return Err(Failure::Usage("standard output gets a raw disk only".to_owned()));
        }
        if self.json {
            return Err(Failure::Usage("--json prints to standard output, where the disk goes".to_owned()));
        }
        if io::stdout().is_terminal() {
            let reason = "standard output is a terminal: name a file, or use a pipe";
            return Err(Failure::Usage(reason.to_owned()));
        }
        Ok(Kind::Raw)
    }

    /// The name of the disk in messages.
    fn shown(&self) -> String {
        if self.is_stdout() {
            "standard output".to_owned()
        } else {
            shown(self.output.as_os_str().as_bytes())
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: hectare_disk_build::Error) -> Failure {
    Failure::Line(error.to_string())
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn device_failed(error: hectare_device::Error) -> Failure {
    Failure::Line(error.to_string())
}

fn read_spec(arguments: &Arguments) -> Outcome<Spec> {
    let path = &arguments.spec;
    let name = shown(path.as_os_str().as_bytes());
    let wrong = |error: &io::Error| Failure::of(&name, reason(error));
    let mut spec = if std::fs::metadata(path).map_err(|error| wrong(&error))?.is_dir() {
        Spec::from_repart(path, &arguments.root).map_err(failed)?
    } else {
        let file = File::open(path).map_err(|error| wrong(&error))?;
        let mut text = Vec::new();
        file.take(TEXT_MAX + 1).read_to_end(&mut text).map_err(|error| wrong(&error))?;
        if text.len() > TEXT_MAX.try_into().unwrap_or(usize::MAX) {
            return Err(Failure::of(&name, "it is too long for a description of a disk"));
        }
        let text =
            String::from_utf8(text).map_err(|_| Failure::of(&name, "it is no UTF-8, and so no TOML"))?;
        Spec::parse(path, &text).map_err(failed)?
    };
    if let Some(size) = arguments.size {
        spec.set_size(size).map_err(|reason| Failure::Usage(format!("--size: {reason}")))?;
    }
    for warning in spec.warnings() {
        tell(format_args!("warning: {warning}"));
    }
    Ok(spec)
}

/// A source of files of a volume.
fn open_source(argument: &OsStr) -> Result<Source, String> {
    match Source::from_argument(argument).map_err(|error| error.to_string())? {
        archive @ Source::Archive(_) => match volume_source::of(argument) {
            Ok(volume) => Ok(volume.unwrap_or(archive)),
            Err(Failure::Line(line) | Failure::Usage(line)) => Err(line),
            Err(_) => Err(format!("{}: it can't be read", shown(argument.as_bytes()))),
        },
        other => Ok(other),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let kind = arguments.kind()?;
    refuse_existing(arguments, &arguments.output)?;
    let spec = read_spec(arguments)?;
    let table = spec.table();
    let env = Environment {
        threads: arguments
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        epoch: epoch()?,
        identity: arguments.seed.unwrap_or_default(),
        replaces: (!arguments.is_stdout()).then_some(&*arguments.output),
        open: &open_source,
        warn: &|warning| tell(format_args!("warning: {warning}")),
    };
    let disk = Disk::plan(spec, &env).map_err(failed)?;
    let progress = Progress::new("writing");
    let made = if arguments.is_stdout() {
        let (device, file) = nameless_twice(disk.size())?;
        let made = disk.write(&device, &progress).map_err(failed)?;
        drop(progress);
        to_stdout(file)?;
        made
    } else {
        let overwrite = if arguments.force { Overwrite::Replace } else { Overwrite::Refuse };
        let new = NewDisk::create(&arguments.output, kind, disk.size(), overwrite)?;
        let made = disk.write(new.device(), &progress).map_err(failed)?;
        drop(progress);
        let hashes = root_hashes(arguments, &made, overwrite)?;
        new.finish()?;
        for hash in hashes {
            hash.publish().and_then(|file| file.flush()).map_err(device_failed)?;
        }
        made
    };
    say(arguments, table, &made, disk.size())
}

fn refuse_existing(arguments: &Arguments, path: &Path) -> Outcome {
    if arguments.is_stdout() || arguments.force || std::fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    Err(Failure::of(shown(path.as_os_str().as_bytes()), "the file exists; use --force to replace it"))
}

/// Files with the root hashes, which get their names when the disk has its.
fn root_hashes(arguments: &Arguments, made: &Made, overwrite: Overwrite) -> Outcome<Vec<PendingFile>> {
    let mut files = Vec::new();
    for hash in &made.root_hashes {
        let path = arguments.output.with_extension(&hash.suffix);
        let text = format!("{}\n", hash.hash);
        let file = FileOptions::new().write(true).create_pending(&path, Bytes::of(text.len()), overwrite);
        let file = file.map_err(device_failed)?;
        file.device().write_at(Bytes::ZERO, text.as_bytes()).map_err(device_failed)?;
        files.push(file);
    }
    Ok(files)
}

fn to_stdout(mut disk: File) -> Outcome {
    let copied = borrowed(&io::stdout()).try_clone_to_owned().and_then(|stdout| {
        // Not through a buffer, which would hide an error until after the end.
        io::copy(&mut disk, &mut File::from(stdout))
    });
    copied.map(drop).map_err(|error| Failure::of("standard output", reason(&error)))
}

/// What was made, for `--json`.
#[derive(Serialize)]
struct Json<'a> {
    table: &'static str,
    uuid: &'a str,
    size: u64,
    partitions: Vec<JsonPartition<'a>>,
}

#[derive(Serialize)]
struct JsonPartition<'a> {
    number: usize,
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    start: u64,
    size: u64,
    uuid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    roothash: Option<&'a str>,
}

fn say(arguments: &Arguments, table: TableKind, made: &Made, size: Bytes) -> Outcome {
    let table = if table == TableKind::Gpt { "gpt" } else { "mbr" };
    let hash =
        |number| made.root_hashes.iter().find(|hash| hash.number == number).map(|hash| hash.hash.as_str());
    if arguments.json {
        let partitions = made.partitions.iter().map(|part| JsonPartition {
            number: part.number,
            name: &part.name,
            kind: &part.kind,
            start: part.start.get(),
            size: part.len.get(),
            uuid: &part.uuid,
            roothash: hash(part.number),
        });
        let partitions = partitions.collect();
        return Output::report().json(&Json { table, uuid: &made.uuid, size: size.get(), partitions });
    }
    let mut lines = vec![format!("{}: {table} {}, {size} bytes", arguments.shown(), made.uuid)];
    for part in &made.partitions {
        let (number, kind, start, len, uuid) = (part.number, &part.kind, part.start, part.len, &part.uuid);
        let name = shown(part.name.as_bytes());
        lines.push(
            format!("{number:>3}  {start:>12} {len:>12}  {uuid}  {kind}  {name}").trim_end().to_owned(),
        );
        lines.extend(hash(number).map(|hash| format!("     root hash {hash}")));
    }
    if arguments.quiet {
        return Ok(());
    }
    if arguments.is_stdout() {
        lines.iter().for_each(tell);
        return Ok(());
    }
    let mut out = Output::report();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.finish()
}
