//! `hectare info`.

use crate::dumpe2fs::{Fields, fields, journal_fields};
use crate::failure::{Failure, LeftOut, Outcome};
use crate::image::Image;
use crate::image_device::Hold;
use crate::logical::device;
use crate::name::shown;
use crate::output::Output;
use crate::partition_args::Part;
use crate::write_args::Looking;
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_engine::{GroupReport, StatFs, zero_runs};
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::group::GroupFlags;
use hectare_ext4::raw::SuperBlock;
use hectare_ext4::superblock::{MAGIC, SIZE};
use hectare_units::BlockNr;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use zerocopy::FromBytes;

/// Show superblock and group information
///
/// Prints the fields of `dumpe2fs -h` under the same names and in the same order, then the volume's usage. Of
/// a volume that can't be opened, prints what its superblock has, and fails with the reason.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare info disk.img\n  hectare info --groups disk.img")]
pub(crate) struct Arguments {
    /// Show every block group, too: the location of its bitmaps and inode table, and its free counts
    #[arg(short, long)]
    groups: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image or block device
    image: PathBuf,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct Json {
    superblock: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<BTreeMap<&'static str, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<Space>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<Group>>,
}

/// Usage, as `df` counts it.
#[derive(Serialize)]
struct Space {
    block_size: u32,
    blocks: u64,
    free: u64,
    available: u64,
    inodes: u32,
    free_inodes: u32,
}

#[derive(Serialize)]
struct Group {
    group: u32,
    first_block: u64,
    blocks: u32,
    flags: Vec<&'static str>,
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    free_clusters: u32,
    free_inodes: u32,
    directories: u32,
    unused_inodes: u32,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let first = || superblock(&arguments.image, arguments.looking.part, arguments.looking.hold());
    let other = arguments.looking.tolerant.names_superblock();
    let first = (!other).then(first).transpose()?;
    let opened = Image::read(&arguments.image, &arguments.looking);
    let raw = match (first, &opened) {
        (Some(raw), _) => raw,
        (None, Ok(image)) => *image.volume().superblock().raw(),
        (None, Err(_)) => return opened.map(drop),
    };
    let left_out = LeftOut::default();
    if arguments.json {
        json(arguments, &raw, opened.as_ref().ok(), &left_out)?;
    } else {
        print(arguments, &raw, opened.as_ref().ok(), &left_out)?;
    }
    opened?;
    left_out.outcome()
}

/// The superblock's record, whatever the state of the rest.
fn superblock(path: &Path, part: Part, hold: Hold) -> Outcome<SuperBlock> {
    let device = device(path, part, hold)?;
    let mut bytes = [0; SIZE];
    let name = shown(path.as_os_str().as_bytes());
    let instead = || hectare_probe::instead(&*device).map_err(|error| Failure::Line(error.to_string()));
    if device.len() < SUPERBLOCK_OFFSET + hectare_units::Bytes::of(SIZE) {
        if let Some(instead) = instead()? {
            return Err(Failure::of(name, instead));
        }
        return Err(Failure::of(name, format!("{} bytes are too few for a superblock", device.len())));
    }
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(|error| Failure::Line(error.to_string()))?;
    let raw = SuperBlock::read_from_bytes(&bytes).map_err(|_| Failure::of(&name, "it is too short"))?;
    if raw.s_magic.get() != MAGIC {
        let none = || {
            "there is no ext2, ext3 or ext4 volume on it, nor anything else that is known \
             (--superblock auto finds one whose superblock is lost)"
                .to_owned()
        };
        let reason = instead()?.unwrap_or_else(none);
        return Err(Failure::of(name, reason));
    }
    Ok(raw)
}

/// The fields of the journal's superblock, if it is readable.
fn journal(image: &Image) -> Option<Fields> {
    let volume = image.volume();
    let file = volume.open_inode(volume.superblock().journal_inode()?).ok()?;
    let mut bytes = vec![0; 1024];
    let n = file.read_at(0, &mut bytes).ok()?;
    journal_fields(&bytes[..n])
}

fn space(statfs: &StatFs) -> Space {
    Space {
        block_size: statfs.block_size.get(),
        blocks: statfs.blocks.get(),
        free: statfs.free.get(),
        available: statfs.available.get(),
        inodes: statfs.inodes,
        free_inodes: statfs.free_inodes,
    }
}

fn json(arguments: &Arguments, raw: &SuperBlock, image: Option<&Image>, left_out: &LeftOut) -> Outcome {
    let groups = image.filter(|_| arguments.groups).map(|image| {
        let mut groups = Vec::new();
        for group in image.groups(left_out) {
            match image.volume().group_report(group) {
                Ok(report) => groups.push(json_group(&report)),
                Err(error) => left_out.tell(image.name(), error),
            }
        }
        groups
    });
    let value = Json {
        superblock: fields(raw).into_iter().collect(),
        journal: image.and_then(journal).map(|fields| fields.into_iter().collect()),
        space: image.and_then(|image| image.volume().statfs().ok()).map(|statfs| space(&statfs)),
        groups,
    };
    Output::report().json(&value)
}

fn json_group(report: &GroupReport) -> Group {
    let desc = &report.desc;
    Group {
        group: report.group.get(),
        first_block: report.first_block.get(),
        blocks: report.blocks,
        flags: flags(report),
        block_bitmap: desc.block_bitmap.get(),
        inode_bitmap: desc.inode_bitmap.get(),
        inode_table: desc.inode_table.get(),
        free_clusters: desc.free_clusters,
        free_inodes: desc.free_inodes,
        directories: desc.used_dirs,
        unused_inodes: desc.itable_unused,
    }
}

fn flags(report: &GroupReport) -> Vec<&'static str> {
    [
        (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
        (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
        (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
    ]
    .into_iter()
    .filter(|(flag, _)| report.desc.flags.contains(*flag))
    .map(|(_, name)| name)
    .collect()
}

fn print(arguments: &Arguments, raw: &SuperBlock, image: Option<&Image>, left_out: &LeftOut) -> Outcome {
    let mut out = Output::report();
    let journal = image.and_then(journal).unwrap_or_default();
    for (name, value) in fields(raw).into_iter().chain(journal) {
        writeln!(out, "{:<25} {value}", format!("{name}:"))?;
    }
    let Some(image) = image else { return out.finish() };
    match image.volume().statfs() {
        Ok(statfs) => print_space(&mut out, &statfs)?,
        Err(error) => left_out.tell(image.name(), error),
    }
    if arguments.groups {
        writeln!(out)?;
        for group in image.groups(left_out) {
            match image.volume().group_report(group) {
                Ok(report) => print_group(&mut out, image, &report, left_out)?,
                Err(error) => left_out.tell(image.name(), error),
            }
        }
    }
    out.finish()
}

fn print_space(out: &mut Output, statfs: &StatFs) -> Outcome {
    let size = |blocks: u64| crate::picture::size_text(blocks << statfs.block_size.shift());
    let used = statfs.blocks.saturating_sub(statfs.free).get();
    let whole = statfs.blocks.get();
    writeln!(out)?;
    for (name, blocks) in [
        ("Space for files", whole),
        ("Space used", used),
        ("Space free", statfs.free.get()),
        ("Space available", statfs.available.get()),
    ] {
        let percent = blocks.saturating_mul(100).checked_div(whole).unwrap_or(0);
        writeln!(out, "{:<25} {blocks} blocks ({}, {percent}%)", format!("{name}:"), size(blocks))?;
    }
    let used = statfs.inodes.saturating_sub(statfs.free_inodes);
    writeln!(out, "{:<25} {used} of {}", "Inodes used:", statfs.inodes)
}

/// Whether the group's descriptor block lies in its own meta group, so that there is just one.
fn in_meta_group(image: &Image, report: &GroupReport) -> bool {
    let geometry = image.volume().superblock().geometry();
    geometry.features.incompat.contains(Incompat::META_BG)
        && report.group.get() / geometry.descs_per_block() >= geometry.first_meta_bg
}

/// First and last, as dumpe2fs prints a range.
fn first_last(range: &Range<BlockNr>) -> String {
    format!("{}-{}", range.start, range.end.get().saturating_sub(1))
}

fn print_group(out: &mut Output, image: &Image, report: &GroupReport, left_out: &LeftOut) -> Outcome {
    let (volume, desc) = (image.volume(), &report.desc);
    let last = report.first_block.get() + u64::from(report.blocks) - 1;
    write!(out, "Group {}: (Blocks {}-{last})", report.group, report.first_block)?;
    let flags = flags(report);
    if !flags.is_empty() {
        write!(out, " [{}]", flags.join(", "))?;
    }
    writeln!(out)?;
    let kind = if report.group.get() == 0 { "Primary" } else { "Backup" };
    match (&report.superblock, &report.descriptors) {
        (Some(block), Some(range)) if in_meta_group(image, report) => {
            writeln!(out, "  {kind} superblock at {block}, Group descriptor at {}", range.start)?;
        }
        (Some(block), Some(range)) => {
            writeln!(out, "  {kind} superblock at {block}, Group descriptors at {}", first_last(range))?;
        }
        (Some(block), None) => writeln!(out, "  {kind} superblock at {block}")?,
        (None, Some(range)) => writeln!(out, "  Group descriptor at {}", range.start)?,
        (None, None) => {}
    }
    if let Some(range) = &report.reserved_descriptors {
        writeln!(out, "  Reserved GDT blocks at {}", first_last(range))?;
    }
    let sums = volume.superblock().features().metadata_csum();
    let place = |block: BlockNr| {
        let geometry = volume.superblock().geometry();
        match geometry.group_of(block) {
            Some(group) if group == report.group => format!("(+{})", block - report.first_block),
            Some(group) => format!("(bg #{group} + {})", block - geometry.first_block(group)),
            None => String::new(),
        }
    };
    let sum = |sum: u32| if sums { format!(", csum 0x{sum:08x}") } else { String::new() };
    let table = desc.inode_table..desc.inode_table + hectare_units::Blocks::new(report.itable_blocks.into());
    writeln!(
        out,
        "  Block bitmap at {} {}{}",
        desc.block_bitmap,
        place(desc.block_bitmap),
        sum(desc.block_bitmap_csum)
    )?;
    writeln!(
        out,
        "  Inode bitmap at {} {}{}",
        desc.inode_bitmap,
        place(desc.inode_bitmap),
        sum(desc.inode_bitmap_csum)
    )?;
    writeln!(out, "  Inode table at {} {}", first_last(&table), place(desc.inode_table))?;
    let unit = if volume.superblock().geometry().cluster_ratio_shift > 0 { "clusters" } else { "blocks" };
    write!(
        out,
        "  {} free {unit}, {} free inodes, {} directories",
        desc.free_clusters, desc.free_inodes, desc.used_dirs
    )?;
    if desc.itable_unused > 0 {
        write!(out, ", {} unused inodes", desc.itable_unused)?;
    }
    writeln!(out)?;
    print_free(out, image, report, left_out)
}

fn print_free(out: &mut Output, image: &Image, report: &GroupReport, left_out: &LeftOut) -> Outcome {
    let list = |ranges: Vec<Range<u64>>| {
        let one = |range: Range<u64>| match range.end - range.start {
            1 => range.start.to_string(),
            _ => format!("{}-{}", range.start, range.end - 1),
        };
        ranges.into_iter().map(one).collect::<Vec<_>>().join(", ")
    };
    match image.volume().free_runs(report.group) {
        Ok(runs) => {
            let runs = runs.into_iter().map(|run| run.start.get()..run.end.get()).collect();
            writeln!(out, "  Free blocks: {}", list(runs))?;
        }
        Err(error) => left_out.tell(image.name(), error),
    }
    match image.volume().inode_bitmap(report.group) {
        Ok(bitmap) => {
            let per_group = u64::from(image.volume().superblock().geometry().inodes_per_group);
            let first = u64::from(report.group.get()) * per_group + 1;
            let runs = zero_runs(&bitmap, per_group).into_iter();
            writeln!(
                out,
                "  Free inodes: {}",
                list(runs.map(|run| run.start + first..run.end + first).collect())
            )
        }
        Err(error) => {
            left_out.tell(image.name(), error);
            Ok(())
        }
    }
}
