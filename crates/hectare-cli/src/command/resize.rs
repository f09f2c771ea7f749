//! `hectare resize`.

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, refuse_other, while_held, whole_device};
use crate::logical::volume_in;
use crate::name::{JsonName, shown};
use crate::output::Output;
use crate::partition_args::Part;
use crate::reproducible;
use crate::size_arg::parse_size;
use hectare_device::os::OsStrExt;
use hectare_resize::{Options, Target, Width};
use hectare_units::{BlockSize, Blocks, Bytes};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Make a volume larger or smaller
///
/// The volume must be clean and not in use. SIZE is a size (10G), what to add or take away (+1G, -500M), min
/// (as small as moving everything makes it) or max, as without SIZE: as large as the device, the partition or
/// the file. An image file is made longer as needed, and cut behind a volume that shrinks; a partition or
/// logical volume, named or found, keeps its length.
///
/// The volume is checked before, and the result in memory before it is written. A crash leaves the old
/// volume, the new one, or one that the next mount or e2fsck -p finishes; only where no journal finds room for
/// the changes must e2fsck -f mend it, which is printed then.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare resize disk.img 20G\n  hectare resize disk.img min\n  \
                        hectare resize --estimate disk.img")]
pub(crate) struct Arguments {
    /// Print the least size and the greatest, and change nothing
    #[arg(long, conflicts_with = "size")]
    estimate: bool,
    /// Turn the feature 64bit on
    #[arg(short = 'b', long = "64bit", conflicts_with = "narrow")]
    wide: bool,
    /// Turn the feature 64bit off
    #[arg(short = 's', long = "32bit")]
    narrow: bool,
    /// Do not check the volume before, nor the result: faster, and a volume with errors may get more
    #[arg(long)]
    no_check: bool,
    /// Keep the length of the image file
    #[arg(long)]
    keep_file: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    part: Part,
    /// The image or block device
    image: PathBuf,
    /// The new size: bytes or a size with a suffix, +SIZE, -SIZE, min or max
    #[arg(allow_hyphen_values = true)]
    size: Option<String>,
}

#[derive(Serialize)]
struct Json {
    image: JsonName,
    block_size: u32,
    blocks_before: u64,
    blocks: u64,
    blocks_moved: u64,
    inodes_moved: u32,
    in_place: bool,
    unchecked: Vec<String>,
    /// Why the image keeps its length although the volume became shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    uncut: Option<String>,
}

#[derive(Serialize)]
struct JsonEstimate {
    image: JsonName,
    block_size: u32,
    min_blocks: u64,
    max_blocks: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let name = shown(arguments.image.as_os_str().as_bytes());
    let target = target(arguments.size.as_deref()).map_err(Failure::Usage)?;
    let hold = if arguments.estimate { Hold::Writers } else { Hold::Everybody };
    let whole = whole_device(&arguments.image, arguments.part, hold)?;
    let disk = match arguments.part.is_whole() {
        true => volume_in(Arc::clone(&whole), &arguments.image)?,
        false => arguments.part.of(Arc::clone(&whole))?,
    };
    // A partition or logical volume keeps its length, also one that was found and not named.
    let fills_file = Arc::ptr_eq(&whole, &disk);
    drop(whole);
    refuse_other(&*disk, &arguments.part.shown(&name))?;
    let options = Options { width: width(arguments), check: !arguments.no_check, now: now()? };
    let of = |error: hectare_resize::Error| Failure::of(arguments.part.shown(&name), error);
    if arguments.estimate {
        return print_estimate(arguments, &hectare_resize::estimate(&disk, &options).map_err(of)?);
    }
    let is_file = std::fs::metadata(&arguments.image).is_ok_and(|metadata| metadata.is_file());
    let cuts = is_file && fills_file && !arguments.keep_file;
    let shown_as = arguments.part.shown(&name);
    let done = while_held(&arguments.image, &shown_as, &disk, |disk| {
        hectare_resize::resize(disk, target, cuts, &options).map_err(of)
    })?;
    let mut out = Output::report();
    if arguments.json {
        return out.json(&Json {
            image: JsonName(arguments.image.as_os_str().as_bytes().to_vec()),
            block_size: done.block_size,
            blocks_before: done.before.get(),
            blocks: done.after.get(),
            blocks_moved: done.blocks_moved,
            inodes_moved: done.inodes_moved,
            in_place: done.in_place,
            unchecked: done.unchecked,
            uncut: done.uncut,
        });
    }
    if let Some(why) = &done.uncut {
        writeln!(out, "note: the image keeps its length: {why}")?;
    }
    for what in &done.unchecked {
        writeln!(out, "not checked: {what}")?;
    }
    if done.in_place {
        writeln!(out, "note: no journal could hold the changes, so a power cut would have needed e2fsck -f")?;
    }
    if done.after == done.before {
        writeln!(out, "{name}: {} blocks of {} bytes, as before", done.after, done.block_size)?;
    } else {
        writeln!(
            out,
            "{name}: {} blocks of {} bytes, before {} ({} blocks and {} inodes moved)",
            done.after, done.block_size, done.before, done.blocks_moved, done.inodes_moved
        )?;
    }
    out.finish()
}

fn print_estimate(arguments: &Arguments, (least, most, block_size): &(Blocks, Blocks, u32)) -> Outcome {
    let mut out = Output::report();
    if arguments.json {
        return out.json(&JsonEstimate {
            image: JsonName(arguments.image.as_os_str().as_bytes().to_vec()),
            block_size: *block_size,
            min_blocks: least.get(),
            max_blocks: most.get(),
        });
    }
    let size = BlockSize::from_bytes(u64::from(*block_size)).unwrap_or(BlockSize::KIB4);
    writeln!(out, "min {least} blocks ({} bytes)", least.bytes(size))?;
    writeln!(out, "max {most} blocks ({} bytes)", most.bytes(size))?;
    out.finish()
}

fn width(arguments: &Arguments) -> Width {
    match (arguments.wide, arguments.narrow) {
        (true, _) => Width::Wide,
        (_, true) => Width::Narrow,
        _ => Width::AsNeeded,
    }
}

fn target(size: Option<&str>) -> Result<Target, String> {
    let bytes =
        |text: &str| parse_size(text).map(Bytes::new).map_err(|error| format!("SIZE {text}: {error}"));
    Ok(match size {
        None | Some("max") => Target::Device,
        Some("min") => Target::Min,
        Some(size) => match (size.strip_prefix('+'), size.strip_prefix('-')) {
            (Some(more), _) => Target::More(bytes(more)?),
            (_, Some(less)) => Target::Less(bytes(less)?),
            _ => Target::Bytes(bytes(size)?),
        },
    })
}

/// The time that is recorded: of the clock, or `SOURCE_DATE_EPOCH`.
fn now() -> Outcome<Duration> {
    if let Some(seconds) = reproducible::epoch()? {
        return Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    }
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}
