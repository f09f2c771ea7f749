//! `hectare mkfs`: ext2, ext3 and ext4. XFS has other options and thus a command of its own ([`xfs`]), to
//! which `-t xfs` hands over as mkfs(8) does.

mod image_arguments;
pub(super) mod journal_device;
mod target;
pub(crate) mod xfs;

use super::format_options::FormatArguments;
use crate::disk_format::refuse_disk_format_name;
use crate::failure::{Failure, Outcome, tell};
use crate::image_device::is_there;
use crate::progress::Meter;
use crate::remote::first_features;
use crate::reproducible::epoch;
use crate::size_arg::with_suffix;
use hectare_device::os::OsStrExt;
use hectare_mkfs::{FormatOptions, FsType, Plan, Run, Step, Usage, execute, join_journal, whole_pages};
use hectare_units::Bytes;
use hectare_units::hex;
use image_arguments::ImageArguments;
use serde::Serialize;
use std::ffi::OsString;
pub(super) use target::{Goal, of_part};

/// Make an empty volume
///
/// Takes mke2fs's options, with its defaults. SIZE is in KiB, or in blocks if -b is given, or has a suffix: s
/// (512 bytes), K, M, G, T, P, E. A missing image file is created, and needs SIZE; it appears only when it is
/// complete.
///
/// Volumes above 16 TiB get meta_bg and flex groups of 64 groups, and above 128 TiB bigalloc clusters, so
/// that there are about a million groups at most; automatic choices are printed. The device's old content is
/// discarded first (-E nodiscard keeps it).
///
/// An existing file system or partition table is not overwritten unless --force is given.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare mkfs disk.img 1G\n  \
    hectare mkfs -t ext4 -b 4096 -L data -m 0 disk.img 20G\n  \
    hectare mkfs -O bigalloc -C 65536 disk.img 1T\n  \
    hectare mkfs -O journal_dev journal.img 64M && hectare mkfs -J device=journal.img disk.img 20G")]
pub(crate) struct Arguments {
    /// Type: ext2, ext3 or ext4; with xfs the options are those of mkfs.xfs
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    /// Usage type: floppy, small, default, big, huge, news, largefile, largefile4
    #[arg(short = 'T', value_name = "USAGE")]
    usage: Option<String>,
    #[command(flatten)]
    format: FormatArguments,
    /// Overwrite existing content of the image
    #[arg(short = 'F', long)]
    force: bool,
    /// Only print what would be made
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    image: ImageArguments,
}

impl Arguments {
    /// The requested options; a wrong one is reported in one line, as is an impossible one.
    fn options(&self) -> Outcome<FormatOptions> {
        let mut options = self.format.options().map_err(|failure| match failure {
            Failure::Usage(line) => Failure::of("mkfs", line),
            other => other,
        })?;
        let wrong = |error| Failure::of("mkfs", error);
        options.fs_type = FsType::by_name(&self.fs_type).map_err(wrong)?;
        if !self.format.makes_journal() {
            options.features.splice(..0, first_features(&self.image.image, &options));
        }
        options.usage = self.usage.as_deref().map(Usage::by_name).transpose().map_err(wrong)?;
        Ok(options)
    }

    fn size(&self) -> Outcome<Option<Bytes>> {
        let plain = self.format.block_bytes().unwrap_or(1024);
        let size = self.image.size.as_deref().map(|text| with_suffix(text, plain)).transpose();
        Ok(size.map_err(|reason| Failure::of("mkfs", reason))?.map(Bytes::new))
    }
}

/// The position of the command, given or implied: before it are only options of the program, and the values of
/// those that have one.
pub(crate) fn command_at(arguments: &[OsString], program: &clap::Command) -> usize {
    let has_value = |argument: &OsString| {
        let mut options = program.get_arguments().filter(|option| option.get_action().takes_values());
        options.any(|option| option.get_long().is_some_and(|long| *argument == *format!("--{long}")))
    };
    let mut is_value = false;
    let is_before = |argument: &&OsString| {
        let was_value = is_value;
        is_value = !was_value && has_value(argument);
        was_value || argument.as_bytes().starts_with(b"-")
    };
    1 + arguments.iter().skip(1).take_while(is_before).count()
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let image = &arguments.image;
    let failed = |error: hectare_mkfs::Error| image.failed(&error);
    refuse_disk_format_name(&image.image, image.part.is_whole() && !is_there(&image.image))?;
    let mut options = arguments.options()?;
    let size = arguments.size()?;
    if arguments.format.makes_journal() {
        return journal_device::make(arguments, &options, size);
    }
    let journal = journal_device::find(arguments, &mut options)?;
    if arguments.dry_run {
        let (whole, device) = image.look(size)?;
        options.device = device;
        let size = size.unwrap_or_else(|| whole_pages(whole));
        identify(&mut options, size)?;
        return say(image, &Plan::new(&options, size, true).map_err(failed)?);
    }
    // An impossible request is refused before anything is modified.
    if let Some(size) = size {
        Plan::new(&options, size, true).map_err(failed)?;
    }
    let goal = Goal::open(&image.image, image.part, &image.shown(), size, arguments.force)?;
    options.device = goal.topology();
    let whole = goal.device().len();
    let size = size.map_or_else(|| whole_pages(whole), |size| size.min(whole));
    identify(&mut options, size)?;
    let plan = Plan::new(&options, size, goal.device().is_zeroed()).map_err(failed)?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    watched(threads, |run| execute(&plan, goal.device(), &plan.empty(), run)).map_err(failed)?;
    goal.finish()?;
    if let Some(journal) = journal {
        join_journal(&journal, plan.geometry().block_size, plan.superblock().uuid()).map_err(failed)?;
    }
    let block = plan.geometry().block_size.bytes();
    if size.get() % block.get() != 0 {
        let shown = image.shown();
        tell(format_args!("{shown}: note: {size} bytes are not whole blocks of {block}; the rest is unused"));
    }
    say(image, &plan)
}

/// With `SOURCE_DATE_EPOCH` the same request gives the same volume.
fn identify(options: &mut FormatOptions, size: Bytes) -> Outcome {
    if epoch()?.is_some() {
        options.derive_identity(size);
    }
    Ok(())
}

/// Carries out a plan with this many threads, and shows progress.
pub(super) fn watched<T>(threads: usize, execute: impl FnOnce(Run<'_>) -> T) -> T {
    let meter = Meter::new();
    let watch = |step, done, all| {
        let step = match step {
            Step::Discard => "discarding",
            Step::Write => "writing",
        };
        meter.show(step, done, all);
    };
    execute(Run { threads, watch: Some(&watch) })
}

/// The failure for an image that can't be made.
pub(super) fn failed(shown: &str, error: &hectare_mkfs::Error) -> Failure {
    match error {
        hectare_mkfs::Error::Option { .. } => Failure::of("mkfs", error),
        // The messages of these name the device themselves.
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
}

/// The blocks of the superblock's backups.
fn backups(plan: &Plan) -> Vec<u64> {
    plan.backups().iter().map(|group| plan.geometry().super_block(*group).get()).collect()
}

/// What a plan makes, in the lines of mke2fs.
pub(super) fn lines(plan: &Plan) -> Vec<String> {
    let geometry = plan.geometry();
    let (blocks, inodes) = (geometry.blocks_count, geometry.inodes_count());
    let (block, uuid) = (geometry.block_size.bytes().get(), plan.superblock().uuid());
    let mut lines = vec![
        format!("Creating filesystem with {blocks} {}k blocks and {inodes} inodes", block / 1024),
        format!("Filesystem UUID: {}", crate::dumpe2fs::uuid_text(&uuid).unwrap_or_default()),
    ];
    let list: Vec<String> = backups(plan).iter().map(u64::to_string).collect();
    if !list.is_empty() {
        lines.push(format!("Superblock backups stored on blocks:\n\t{}", list.join(", ")));
    }
    lines
}

/// Prints what was made.
fn say(image: &ImageArguments, plan: &Plan) -> Outcome {
    let (sb, geometry) = (plan.superblock(), plan.geometry());
    let block = geometry.block_size.bytes().get();
    let json = Json {
        blocks: geometry.blocks_count.get(),
        block_size: geometry.block_size.get(),
        inodes: geometry.inodes_count(),
        inode_size: geometry.inode_size,
        groups: geometry.groups(),
        cluster_size: block << geometry.cluster_ratio_shift,
        reserved_blocks: sb.reserved_blocks().get(),
        uuid_hex: hex(&sb.uuid()),
        features: geometry.features.names(),
        superblock_backups: backups(plan),
    };
    image.say(json, plan.notes(), lines(plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn regression_the_value_of_an_option_was_taken_for_the_command() {
        let program = crate::Cli::command();
        let command =
            |option: String| command_at(&["hectare", &option, "ls", "find"].map(OsString::from), &program);
        let options = program.get_arguments().filter(|option| option.get_action().takes_values());
        let options: Vec<_> = options.filter_map(clap::Arg::get_long).collect();
        assert!(options.len() > 5);
        for long in options {
            assert_eq!((command(format!("--{long}")), command(format!("--{long}=value"))), (3, 2), "{long}");
        }
    }
}
