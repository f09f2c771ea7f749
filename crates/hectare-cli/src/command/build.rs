//! `hectare build`.

pub(super) mod content;
mod goal;
mod like;
pub(super) mod volume_source;

use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::os::same_file;
use crate::output::{Output, write_file};
use crate::partition_args;
use crate::progress::Progress;
use crate::remote::first_features;
use crate::reproducible::epoch as source_date_epoch;
use content::{ContentArguments, read};
use goal::Target;
use hectare_device::Overwrite;
use hectare_device::os::OsStrExt;
use hectare_mkfs::whole_pages;
use hectare_populate::{Explanation, Image, ImageError, Size, Tree, reproducible};
use hectare_units::Bytes;
use hectare_units::hex;
use serde::Serialize;
use std::ffi::OsString;
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
    hectare build --from oci:layout:v1 --platform linux/arm64 disk.img\n  \
    hectare build --from rootfs/ --partition 2 -F sdcard.img\n  \
    hectare build --from rootfs/ --add motd:/etc/motd -o - | zstd > disk.img.zst")]
pub(crate) struct Arguments {
    /// A source: a directory, a tar file (plain, gzip, zstd, xz or bzip2), - for one on standard input, or
    /// a container image: oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker-archive:FILE[:TAG]; @DIGEST may
    /// be in place of :TAG; or an ext2, ext3 or ext4 image, IMAGE[:DIR]
    #[arg(long, required = true, value_name = "SOURCE")]
    from: Vec<OsString>,
    /// Keep inodes and blocks of unchanged files where this older image has them, and print how much differs
    #[arg(long, value_name = "OLD", conflicts_with_all = ["size", "free"])]
    like: Option<PathBuf>,
    /// Print what each part of the size is for
    #[arg(long)]
    explain_size: bool,
    #[command(flatten)]
    content: ContentArguments,
    /// Write to this file how the container image is to be run, as JSON: entry point, environment, user,
    /// working directory
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read and verify the sources, and make no image
    #[arg(long, conflicts_with_all = ["size", "free", "like", "explain_size", "config"])]
    verify_only: bool,
    /// Replace an existing image, or what a device or part holds
    #[arg(short = 'F', long)]
    force: bool,
    /// Print JSON: what was made, and what each part of the size is for
    #[arg(long)]
    json: bool,
    /// The image to make, as -o
    #[arg(required_unless_present_any = ["verify_only", "output"], conflicts_with = "output")]
    image: Option<PathBuf>,
    /// The image to make: a file, a block device, or - for standard output, which gets nothing else then
    #[arg(short, long, value_name = "IMAGE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    part: partition_args::Part,
}

impl Arguments {
    /// The image to make.
    fn image(&self) -> &Path {
        self.output
            .as_deref()
            .or(self.image.as_deref())
            .expect("an image is required where it is not only verified")
    }

    /// The size to make for a target: of one that is there, all of it, if no other is given.
    fn size_for(&self, target: &Target<'_>) -> Outcome<Size> {
        if target.is_stdout() && (self.json || self.explain_size) {
            let reason = "--json and --explain-size print to standard output, where the image goes";
            return Err(Failure::Usage(reason.to_owned()));
        }
        let Some(room) = target.room() else { return self.content.size() };
        if self.like.is_some() {
            let reason = "--like makes images in files only: make one, and copy it to the device";
            return Err(Failure::of(target.shown(), reason));
        }
        match self.content.size()? {
            Size::Default => Ok(Size::Exactly(whole_pages(room))),
            Size::Exactly(asked) => target.check_room(asked).map(|()| Size::Exactly(asked)),
            other => Ok(other),
        }
    }

    /// Prints one line about what was made: not where the image goes.
    fn remark(&self, line: &str) -> Outcome {
        if self.image().as_os_str() == "-" {
            tell(line);
            return Ok(());
        }
        let mut out = Output::report();
        writeln!(out, "{line}")?;
        out.finish()
    }
}

impl hectare_populate::Progress for Progress {
    fn advance(&self, bytes: Bytes) {
        self.bytes(bytes.get());
    }
}

/// The file that is to say how the container image is run, and its text.
fn image_config<'a>(arguments: &'a Arguments, tree: &'a Tree) -> Outcome<Option<(&'a Path, &'a str)>> {
    let Some(path) = arguments.config.as_deref() else { return Ok(None) };
    if same_file(path, arguments.image()) {
        return Err(Failure::Usage("--config: that is the image's name; give another file".to_owned()));
    }
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
    let mut out = Output::report();
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
    let mut format = arguments.content.format_options()?;
    let epoch = source_date_epoch()?;
    if arguments.verify_only {
        return verified(arguments, &read(&arguments.from, &arguments.content, epoch, None)?);
    }
    format.features.splice(..0, first_features(arguments.image(), &format));
    let target = Target::of(arguments.image(), arguments.part)?;
    let size = arguments.size_for(&target)?;
    let replaced = (!target.is_stdout()).then(|| arguments.image());
    let tree = read(&arguments.from, &arguments.content, epoch, replaced)?;
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
        // Advice to ask for more would not help.
        ImageError::TooSmall { enough, .. } if target.room().is_some_and(|room| enough > room) => {
            target.check_room(enough).err().unwrap_or_else(|| Failure::of(target.shown(), error))
        }
        ImageError::TooSmall { .. } => Failure::of(target.shown(), error),
        other => Failure::Line(other.to_string()),
    };
    let zeroed = target.room().is_none();
    let image = match like {
        Some(like) => Image::plan_like(&tree, &format, like, zeroed),
        None => Image::plan(&tree, &format, size, zeroed),
    };
    let image = image.map_err(failed)?;
    target.check_room(image.size())?;
    if let (Size::Exactly(asked), None) = (size, target.room())
        && asked != image.size()
    {
        let (name, whole) = (target.shown(), image.size());
        tell(format_args!("{name}: note: {asked} bytes are not whole blocks; the image has {whole} bytes"));
    }
    let goal = target.open(image.size(), arguments.force)?;
    let progress = Progress::new("writing");
    image.write(goal.device(), arguments.content.threads(), &progress).map_err(failed)?;
    drop(progress);
    if let Some((path, text)) = config {
        let overwrite = if arguments.force { Overwrite::Replace } else { Overwrite::Refuse };
        write_file(path, format!("{text}\n").as_bytes(), overwrite)?;
    }
    let changed = arguments.like.as_deref().map(|old| {
        let block_size = image.format().geometry().block_size;
        like::compare(old, goal.device(), image.size(), block_size)
    });
    let changed = changed.transpose()?;
    goal.finish()?;
    if let (Some(old), Some(changed), false) = (&arguments.like, &changed, arguments.json) {
        arguments.remark(&like::report(old, changed))?;
    }
    if arguments.content.dedupes() && !arguments.json {
        let (files, bytes) = (tree.duplicates(), image.shared());
        arguments
            .remark(&format!("{files} files share {bytes} bytes of blocks with files of the same content"))?;
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
    /// With `--dedupe`, the files that share blocks with one before them, and the bytes of those blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_bytes: Option<u64>,
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
        return Output::report().json(&Json {
            size: image.size().get(),
            free,
            data: totals.data.get(),
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            special: totals.special,
            uuid_hex: hex(&image.format().superblock().uuid()),
            parts: explanation.parts.iter().map(part).collect(),
            duplicate_files: arguments.content.dedupes().then(|| tree.duplicates()),
            shared_bytes: arguments.content.dedupes().then(|| image.shared().get()),
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
    let mut out = Output::report();
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
