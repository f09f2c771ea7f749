//! `hectare mkfs`: ext2, ext3 and ext4. XFS has other options and so a command of its own ([`xfs`]), to which
//! `-t xfs` hands over as mkfs(8) does.

mod goal;
pub(crate) mod xfs;

use super::format_options::{FormatArguments, usage, with_suffix};
use crate::failure::{Failure, Outcome};
use crate::name::{hex, shown};
use crate::output::Output;
use goal::Goal;
use hectare_mkfs::{FormatOptions, FsType, Plan, Usage, execute};
use hectare_units::{Bytes, GroupNr};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Make an empty volume
///
/// Takes mke2fs's options, with its defaults. SIZE is in KiB, or in blocks if -b is given, or has a suffix: s
/// (512 bytes), K, M, G, T. A missing image file is made, and needs SIZE; it appears only when it is
/// finished.
///
/// Nothing is overwritten that holds a file system or a partition table unless --force is given.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare mkfs disk.img 1G\n  \
    hectare mkfs -t ext4 -b 4096 -L data -m 0 disk.img 20G\n  \
    hectare mkfs -O bigalloc -C 65536 disk.img 1T")]
pub(crate) struct Arguments {
    /// The kind: ext2, ext3 or ext4; with xfs the options are those of mkfs.xfs
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    /// How it will be used: floppy, small, default, big, huge, news, largefile, largefile4
    #[arg(short = 'T', value_name = "USAGE")]
    usage: Option<String>,
    #[command(flatten)]
    format: FormatArguments,
    /// Overwrite what the image holds
    #[arg(short = 'F', long)]
    force: bool,
    /// Only say what would be made
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Print JSON: what was made
    #[arg(long)]
    json: bool,
    /// The image file or block device
    image: PathBuf,
    /// The size; that of the file or device if not given
    size: Option<String>,
}

impl Arguments {
    fn options(&self) -> Outcome<FormatOptions> {
        let mut options = self.format.options()?;
        options.fs_type = FsType::by_name(&self.fs_type).map_err(usage)?;
        options.usage = self.usage.as_deref().map(Usage::by_name).transpose().map_err(usage)?;
        Ok(options)
    }

    fn size(&self) -> Outcome<Option<Bytes>> {
        let plain = self.format.block_size.unwrap_or(1024);
        let size = self.size.as_deref().map(|text| with_suffix(text, plain)).transpose();
        Ok(size.map_err(Failure::Usage)?.map(Bytes::new))
    }

    fn shown(&self) -> String {
        shown(self.image.as_os_str().as_bytes())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let options = arguments.options()?;
    let size = arguments.size()?;
    if arguments.dry_run {
        let size = match size {
            Some(size) => size,
            None => crate::image::device(&arguments.image, false)?.len(),
        };
        return say(arguments, &plan(arguments, &options, size, true)?);
    }
    let goal = Goal::open(&arguments.image, &arguments.shown(), size, arguments.force)?;
    let whole = goal.device().len();
    let size = size.unwrap_or(whole).min(whole);
    let plan = plan(arguments, &options, size, goal.device().is_zeroed())?;
    let failed = |error: hectare_mkfs::Error| failed(&arguments.shown(), &error);
    execute(&plan, goal.device(), &plan.empty(), threads()).map_err(failed)?;
    goal.finish()?;
    say(arguments, &plan)
}

fn plan(arguments: &Arguments, options: &FormatOptions, size: Bytes, zeroed: bool) -> Outcome<Plan> {
    Plan::new(options, size, zeroed).map_err(|error| failed(&arguments.shown(), &error))
}

/// As many threads as there are processors.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What to say of an image that can't be made.
fn failed(shown: &str, error: &hectare_mkfs::Error) -> Failure {
    match error {
        hectare_mkfs::Error::Option { .. } => Failure::Usage(error.to_string()),
        // These name the device themselves.
        hectare_mkfs::Error::Device(_) | hectare_mkfs::Error::Occupied { .. } => {
            Failure::Line(error.to_string())
        }
        other => Failure::of(shown, other),
    }
}

#[derive(Serialize)]
struct Json {
    blocks: u64,
    block_size: u32,
    inodes: u32,
    inode_size: u32,
    groups: u32,
    cluster_size: u64,
    reserved_blocks: u64,
    uuid_hex: String,
    features: Vec<String>,
    superblock_backups: Vec<u64>,
    notes: Vec<String>,
}

/// Says what was made, as mke2fs does.
fn say(arguments: &Arguments, plan: &Plan) -> Outcome {
    let (sb, geometry) = (plan.superblock(), plan.geometry());
    let block = geometry.block_size.bytes().get();
    let backups = (1..geometry.groups()).map(GroupNr::new).filter(|group| geometry.has_super(*group));
    let backups: Vec<u64> = backups.map(|group| geometry.super_block(group).get()).collect();
    let notes: Vec<String> = plan.notes().iter().map(ToString::to_string).collect();
    if arguments.json {
        return Output::new().json(&Json {
            blocks: geometry.blocks_count.get(),
            block_size: geometry.block_size.get(),
            inodes: geometry.inodes_count(),
            inode_size: geometry.inode_size,
            groups: geometry.groups(),
            cluster_size: block << geometry.cluster_ratio_shift,
            reserved_blocks: sb.reserved_blocks().get(),
            uuid_hex: hex(&sb.uuid()),
            features: geometry.features.names(),
            superblock_backups: backups,
            notes,
        });
    }
    for note in notes {
        crate::failure::tell(format_args!("{}: note: {note}", arguments.shown()));
    }
    if arguments.quiet {
        return Ok(());
    }
    let mut out = Output::new();
    let (blocks, inodes) = (geometry.blocks_count, geometry.inodes_count());
    writeln!(out, "Creating filesystem with {blocks} {}k blocks and {inodes} inodes", block / 1024)?;
    writeln!(out, "Filesystem UUID: {}", crate::header::uuid_text(&sb.uuid()).unwrap_or_default())?;
    if !backups.is_empty() {
        let list: Vec<String> = backups.iter().map(u64::to_string).collect();
        writeln!(out, "Superblock backups stored on blocks:\n\t{}", list.join(", "))?;
    }
    out.finish()
}
