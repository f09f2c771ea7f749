//! `hectare df`.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::name::{JsonName, shown};
use crate::output::Output;
use crate::write_args::Looking;
use hectare_device::os::OsStrExt;
use hectare_engine::StatFs;
use indicatif::HumanBytes;
use serde::Serialize;
use std::path::PathBuf;

/// Show how full volumes are
///
/// As df: Size is without the format's fixed overhead, Available is what users other than root may take.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:\n  hectare df -h disk.img\n  hectare df -i disk.img other.img")]
pub(crate) struct Arguments {
    /// Count inodes instead of space
    #[arg(short, long)]
    inodes: bool,
    /// Show sizes with units (powers of 1024) instead of in KiB
    #[arg(short = 'h', long = "human-readable", conflicts_with = "inodes")]
    human: bool,
    /// Print JSON, sizes in bytes
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The images
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    looking: Looking,
}

/// A line: all, used, available.
#[derive(Clone, Copy)]
struct Fill {
    all: u64,
    used: u64,
    available: u64,
}

#[derive(Serialize)]
struct Json {
    image: JsonName,
    size: u64,
    used: u64,
    available: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_free: u64,
}

impl Fill {
    /// Bytes.
    fn space(stat: &StatFs) -> Self {
        let bytes =
            |blocks: hectare_units::Blocks| blocks.get().saturating_mul(stat.block_size.bytes().get());
        let used = stat.blocks.saturating_sub(stat.free);
        Self { all: bytes(stat.blocks), used: bytes(used), available: bytes(stat.available) }
    }

    fn inodes(stat: &StatFs) -> Self {
        let (all, available) = (u64::from(stat.inodes), u64::from(stat.free_inodes));
        Self { all, used: all.saturating_sub(available), available }
    }

    /// Per cent of what users may take, rounded up as df does.
    fn percent(self) -> u128 {
        let of = u128::from(self.used) + u128::from(self.available);
        if of == 0 { 0 } else { (u128::from(self.used) * 100).div_ceil(of) }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut rows = Vec::new();
    for path in &arguments.images {
        let image = Image::read(path, &arguments.looking)?;
        let stat = image.volume().statfs().map_err(|error| Failure::of(image.name(), error))?;
        rows.push((path, Fill::space(&stat), Fill::inodes(&stat)));
    }
    if arguments.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(path, space, inodes)| Json {
                image: JsonName(path.as_os_str().as_bytes().to_vec()),
                size: space.all,
                used: space.used,
                available: space.available,
                inodes: inodes.all,
                inodes_used: inodes.used,
                inodes_free: inodes.available,
            })
            .collect();
        return Output::listing().json(&rows);
    }
    let text = |value: u64| match (arguments.inodes, arguments.human) {
        (true, _) => value.to_string(),
        (false, true) => HumanBytes(value).to_string(),
        (false, false) => value.div_ceil(1024).to_string(),
    };
    let head = if arguments.inodes {
        ["Inodes", "IUsed", "IFree", "IUse%"]
    } else {
        [if arguments.human { "Size" } else { "1K-blocks" }, "Used", "Available", "Use%"]
    };
    let mut out = Output::listing();
    writeln!(out, "{:>14} {:>14} {:>14} {:>5} Image", head[0], head[1], head[2], head[3])?;
    for (path, space, inodes) in rows {
        let fill = if arguments.inodes { inodes } else { space };
        let (all, used, available) = (text(fill.all), text(fill.used), text(fill.available));
        let percent = format!("{}%", fill.percent());
        let name = shown(path.as_os_str().as_bytes());
        writeln!(out, "{all:>14} {used:>14} {available:>14} {percent:>5} {name}")?;
    }
    out.finish()
}
