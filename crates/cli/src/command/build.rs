//! `hectare build`.

mod like;
mod volume_source;

use super::format_options::{FormatArguments, usage};
use crate::container::refuse_container_name;
use crate::failure::{Failure, Outcome, tell};
use crate::image_device::{Hold, device};
use crate::name::{hex, shown};
use crate::output::{Output, write_file};
use crate::partition_args;
use crate::progress::Progress;
use crate::size_arg::parse_size;
use hectare_device::{Device, FileDevice, FileOptions, Overwrite, PendingFile};
use hectare_mkfs::{FormatOptions, FsType, refuse_occupied, whole_pages};
use hectare_populate::{
    Excludes, Explanation, Image, ImageError, Options, Platform, Size, Source, Tree, reproducible,
};
use hectare_units::Bytes;
use serde::Serialize;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Make an image from a directory, a tar archive or a container image
///
/// Owners, modes, times (to the nanosecond), hard links, symbolic links, device nodes, holes, extended
/// attributes, ACLs and capabilities are kept. Several sources are layers: later ones win, and OCI whiteouts
/// are honoured. Every layer of a container image is compared with its digests. The size is exact: the image
/// holds everything, and no more than requested. With SOURCE_DATE_EPOCH set, the same sources give the same
/// bytes, whatever the number of threads.
#[allow(rustdoc::broken_intra_doc_links)] // help texts, where [:X] may be left out
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare build --from rootfs/ disk.img\n  \
    hectare build --from base.tar --from app.tar --size 2G disk.img\n  \
    docker export box | hectare build --from - --free 100M disk.img\n  \
    docker save alpine | hectare build --from - disk.img\n  \
    hectare build --from oci:layout:v1 --platform linux/arm64 disk.img")]
pub(crate) struct Arguments {
    /// A source: a directory, a tar file (plain, gzip, zstd, xz or bzip2), - for one on standard input, or
    /// a container image: oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:TAG]; @DIGEST may
    /// be in place of :TAG; or an ext2, ext3 or ext4 image, IMAGE[:DIR]
    #[arg(long, required = true, value_name = "SOURCE")]
    from: Vec<OsString>,
    /// Size: min for the smallest that holds everything, or bytes with K, M, G, T; min plus 10 % if not given
    #[arg(long, value_name = "min|SIZE", conflicts_with = "free")]
    size: Option<String>,
    /// Leave this much free: bytes with K, M, G, T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    free: Option<u64>,
    /// Keep inodes and blocks of unchanged files where this older image has them, and print how much differs
    #[arg(long, value_name = "OLD", conflicts_with_all = ["size", "free"])]
    like: Option<PathBuf>,
    /// Print what each part of the size is for
    #[arg(long)]
    explain_size: bool,
    /// Exclude files that match a pattern, as in .gitignore
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Seal files that match a pattern, as in .gitignore, with fs-verity (SHA-256); needs -O verity
    #[arg(long, value_name = "PATTERN")]
    fs_verity: Vec<OsString>,
    /// Give everything to this owner: UID:GID
    #[arg(long, value_name = "UID:GID", value_parser = crate::passwd::Owner::parse)]
    owner: Option<crate::passwd::Owner>,
    /// Change permissions, as in chmod: u=rwX,go=rX; D: and F: before a clause limit it to directories or the
    /// rest
    #[arg(long, value_name = "MODES", value_parser = super::chmod::parse_mode)]
    modes: Option<hectare_populate::ModeChange>,
    #[command(flatten)]
    described: super::described::DescribedArguments,
    /// Accept an empty archive
    #[arg(long)]
    allow_empty: bool,
    /// Refuse sources that unpack to more than this: bytes with K, M, G, T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// Of a container image for several platforms, take this one: OS/ARCHITECTURE[/VARIANT] (this machine's,
    /// if not given)
    #[arg(long, value_name = "PLATFORM", value_parser = Platform::parse)]
    platform: Option<Platform>,
    /// Write to this file how the container image is to be run, as JSON: entry point, environment, user,
    /// working directory
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read and verify the sources, and make no image
    #[arg(long, conflicts_with_all = ["size", "free", "like", "explain_size", "config"])]
    verify_only: bool,
    /// Type: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    #[command(flatten)]
    format: FormatArguments,
    /// Number of threads (as many as the machine runs at once, if not given)
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Replace an existing image
    #[arg(short = 'F', long)]
    force: bool,
    /// Print JSON: what was made, and what each part of the size is for
    #[arg(long)]
    json: bool,
    /// The image to make
    #[arg(required_unless_present = "verify_only")]
    image: Option<PathBuf>,
}

impl Arguments {
    /// The image to make.
    fn image(&self) -> &Path {
        self.image.as_deref().expect("an image is required where it is not only verified")
    }

    fn shown(&self) -> String {
        shown(self.image().as_os_str().as_bytes())
    }

    fn threads(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    fn size(&self) -> Outcome<Size> {
        Ok(match (self.size.as_deref(), self.free) {
            (Some("min"), _) => Size::Min,
            (Some(text), _) => Size::Exactly(Bytes::new(parse_size(text).map_err(Failure::Usage)?)),
            (None, Some(free)) => Size::Free(Bytes::new(free)),
            (None, None) => Size::Default,
        })
    }

    fn source_options(&self, epoch: Option<i64>) -> Outcome<Options> {
        let mut excludes = Excludes::default();
        for pattern in &self.exclude {
            excludes.add(pattern.as_bytes()).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        let owner = match self.owner {
            None => None,
            Some(crate::passwd::Owner { uid: Some(uid), gid: Some(gid) }) => Some((uid, gid)),
            Some(_) => return Err(Failure::Usage("--owner: give both, UID:GID".to_owned())),
        };
        self.described.fill(Options {
            owner,
            modes: self.modes.clone(),
            source_date_epoch: epoch,
            excludes,
            threads: self.threads(),
            allow_empty: self.allow_empty,
            platform: self.platform.clone(),
            max_size: self.max_size.map(Bytes::new),
            ..Options::default()
        })
    }

    /// The format's options: mke2fs's, but without blocks reserved for root unless requested.
    fn format_options(&self) -> Outcome<FormatOptions> {
        let mut options = self.format.options()?;
        options.fs_type = FsType::by_name(&self.fs_type).map_err(usage)?;
        if !self.format.asks_for_reserve() {
            options.reserved_percent = 0.0;
        }
        Ok(options)
    }
}

/// `SOURCE_DATE_EPOCH`, if it is set.
pub(super) fn epoch(options: &FormatOptions) -> Option<i64> {
    std::env::var_os("SOURCE_DATE_EPOCH").map(|_| options.now.seconds)
}

/// Where the image is written.
enum Goal {
    /// A block device, written in place.
    Device(FileDevice),
    /// A file that gets its name when it is complete.
    New(PendingFile),
}

impl Goal {
    fn open(arguments: &Arguments, size: Bytes) -> Outcome<Self> {
        let failed = |error: hectare_device::Error| Failure::Line(error.to_string());
        let path = arguments.image();
        let options = FileOptions::new().write(true);
        if is_block_device(path) {
            let device = options.open(path).map_err(failed)?;
            if !arguments.force {
                refuse_occupied(&device).map_err(|error| Failure::Line(error.to_string()))?;
            }
            return Ok(Self::Device(device));
        }
        if path.exists() && !arguments.force {
            return Err(Failure::of(arguments.shown(), "the file exists; use --force to replace it"));
        }
        let overwrite = if arguments.force { Overwrite::Replace } else { Overwrite::Refuse };
        Ok(Self::New(options.create_pending(path, size, overwrite).map_err(failed)?))
    }

    fn device(&self) -> &FileDevice {
        match self {
            Self::Device(device) => device,
            Self::New(pending) => pending.device(),
        }
    }

    fn finish(self) -> Outcome {
        let failed = |error: hectare_device::Error| Failure::Line(error.to_string());
        match self {
            Self::Device(device) => device.flush().map_err(failed),
            Self::New(pending) => pending.publish().and_then(|device| device.flush()).map_err(failed),
        }
    }
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device())
}

impl hectare_populate::Progress for Progress {
    fn advance(&self, bytes: Bytes) {
        self.bytes(bytes.get());
    }
}

/// Reads the sources, and reports what is worth knowing of them.
fn read(arguments: &Arguments, epoch: Option<i64>) -> Outcome<Tree> {
    let failed = |error: hectare_populate::Error| Failure::Line(error.to_string());
    let sources =
        arguments.from.iter().map(|argument| match Source::from_argument(argument).map_err(failed)? {
            // Only what would be read as an archive may be a volume: a pipe must not be opened twice.
            archive @ Source::Archive(_) => Ok(volume_source::of(argument)?.unwrap_or(archive)),
            other => Ok(other),
        });
    let sources = sources.collect::<Outcome<_>>()?;
    let mut tree = Tree::build(sources, &arguments.source_options(epoch)?).map_err(failed)?;
    let mut sealed = Excludes::default();
    for pattern in &arguments.fs_verity {
        let added = sealed.add_of(pattern.as_bytes(), "--fs-verity");
        added.map_err(|error| Failure::Usage(error.to_string()))?;
    }
    if !sealed.is_empty() {
        tree.seal(&sealed);
    }
    for warning in tree.warnings() {
        tell(format_args!("warning: {warning}"));
    }
    for (name, count) in tree.left_out() {
        tell(format_args!(
            "note: attribute {} of {count} files left out: ext4 has none of its kind",
            shown(name)
        ));
    }
    Ok(tree)
}

/// The file that is to say how the container image is run, and its text.
fn image_config<'a>(arguments: &'a Arguments, tree: &'a Tree) -> Outcome<Option<(&'a Path, &'a str)>> {
    let Some(path) = arguments.config.as_deref() else { return Ok(None) };
    if path.exists() && !arguments.force {
        let name = shown(path.as_os_str().as_bytes());
        return Err(Failure::of(name, "the file exists; use --force to replace it"));
    }
    let text = tree.image_config().ok_or_else(|| {
        Failure::Usage("--config: no container image is among the sources, which would have one".to_owned())
    })?;
    Ok(Some((path, text)))
}

/// Reports what sources that were only verified hold.
fn verified(arguments: &Arguments, tree: &Tree) -> Outcome {
    let totals = tree.totals();
    let mut out = Output::new();
    if arguments.json {
        return out.json(&Verified {
            data: totals.data.get(),
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            special: totals.special,
        });
    }
    let (files, directories) = (totals.files, totals.directories);
    writeln!(out, "verified: {files} files in {directories} directories, {} bytes of data", totals.data)?;
    out.finish()
}

/// What sources hold, for `--json`.
#[derive(Serialize)]
struct Verified {
    data: u64,
    files: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let format = arguments.format_options()?;
    let epoch = epoch(&format);
    if arguments.verify_only {
        return verified(arguments, &read(arguments, epoch)?);
    }
    refuse_container_name(arguments.image())?;
    let size = arguments.size()?;
    let device_size = is_block_device(arguments.image())
        .then(|| {
            device(arguments.image(), partition_args::Part::default(), Hold::Writers)
                .map(|device| device.len())
        })
        .transpose()?;
    if arguments.like.is_some() && device_size.is_some() {
        let reason = "--like makes images in files only: make one, and copy it to the device";
        return Err(Failure::of(arguments.shown(), reason));
    }
    let size = match (size, device_size) {
        (Size::Default, Some(whole)) => Size::Exactly(whole_pages(whole)),
        (size, _) => size,
    };
    let tree = read(arguments, epoch)?;
    let config = image_config(arguments, &tree)?;
    let like = arguments.like.as_deref().map(like::read).transpose()?;
    let format = match &like {
        Some(like) => like::options(like, &format, epoch),
        None => format,
    };
    let format = match epoch {
        Some(epoch) => reproducible(&format, epoch, &tree),
        None => format,
    };
    let failed = |error: ImageError| match error {
        ImageError::TooSmall { .. } => Failure::of(arguments.shown(), error),
        other => Failure::Line(other.to_string()),
    };
    let image = match like {
        Some(like) => Image::plan_like(&tree, &format, like, device_size.is_none()),
        None => Image::plan(&tree, &format, size, device_size.is_none()),
    };
    let image = image.map_err(failed)?;
    if let (Size::Exactly(asked), None) = (size, device_size)
        && asked != image.size()
    {
        let (name, whole) = (arguments.shown(), image.size());
        tell(format_args!("{name}: note: {asked} bytes are not whole blocks; the image has {whole} bytes"));
    }
    let goal = Goal::open(arguments, image.size())?;
    let progress = Progress::new("writing");
    image.write(goal.device(), arguments.threads(), &progress).map_err(failed)?;
    drop(progress);
    if let Some((path, text)) = config {
        write_file(path, format!("{text}\n").as_bytes())?;
    }
    let changed = arguments.like.as_deref().map(|old| {
        let block_size = image.format().geometry().block_size;
        like::compare(old, goal.device(), image.size(), block_size)
    });
    let changed = changed.transpose()?;
    goal.finish()?;
    if let (Some(old), Some(changed), false) = (&arguments.like, &changed, arguments.json) {
        let mut out = Output::new();
        writeln!(out, "{}", like::report(old, changed))?;
        out.finish()?;
    }
    say(arguments, &tree, &image, changed.map(|changed| changed.blocks))
}

/// One part of the size, for `--json`.
#[derive(Serialize)]
struct Part {
    name: &'static str,
    bytes: u64,
    hint: &'static str,
}

/// What was made, for `--json`.
#[derive(Serialize)]
struct Json {
    size: u64,
    free: u64,
    data: u64,
    files: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    uuid_hex: String,
    parts: Vec<Part>,
    /// With `--like`, the blocks that differ from the old image.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_blocks: Option<u64>,
    /// The process's peak memory, in KiB; `None` where the system does not report it.
    peak_kib: Option<u64>,
}

fn say(arguments: &Arguments, tree: &Tree, image: &Image<'_>, changed: Option<u64>) -> Outcome {
    let totals = tree.totals();
    let explanation = image.explain().map_err(|error| Failure::Line(error.to_string()))?;
    let geometry = image.format().geometry();
    let free = image.free().bytes(geometry.block_size).get();
    if arguments.json {
        let part = |part: &hectare_populate::Part| Part {
            name: part.name,
            bytes: part.bytes.get(),
            hint: part.hint,
        };
        return Output::new().json(&Json {
            size: image.size().get(),
            free,
            data: totals.data.get(),
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            special: totals.special,
            uuid_hex: hex(&image.format().superblock().uuid()),
            parts: explanation.parts.iter().map(part).collect(),
            changed_blocks: changed,
            peak_kib: peak_kib(),
        });
    }
    if !arguments.explain_size {
        return Ok(());
    }
    explain(&explanation)
}

fn explain(explanation: &Explanation) -> Outcome {
    let mut out = Output::new();
    for part in &explanation.parts {
        let percent = 100.0 * ratio(part.bytes, explanation.total);
        let hint = if part.hint.is_empty() { String::new() } else { format!("  ({})", part.hint) };
        writeln!(out, "{:>16} {percent:5.1} %  {}{hint}", part.bytes.get(), part.name)?;
    }
    writeln!(
        out,
        "{:>16} 100.0 %  the image; the files hold {} bytes of data",
        explanation.total.get(),
        explanation.data
    )?;
    out.finish()
}

#[allow(clippy::cast_precision_loss)] // a figure for people
fn ratio(part: Bytes, whole: Bytes) -> f64 {
    part.get() as f64 / whole.get().max(1) as f64
}

/// `VmHWM` of this process.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
