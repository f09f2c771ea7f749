//! `hectare stat`.

use crate::clock;
use crate::entry::{JsonEntry, arrow, mode_text, words};
use crate::failure::Outcome;
use crate::image::{Image, read_each};
use crate::image_path::{ImagePath, split};
use crate::name::{JsonName, shown};
use crate::output::Output;
use crate::write_args::Looking;
use hectare_engine::{Kind, Metadata, Result};
use hectare_units::InodeNr;
use hectare_units::hex;
use serde::Serialize;

/// Show all metadata of a file: inode, owners, times, flags, attributes, data ranges
///
/// A symbolic link is not followed. With --json: an array of entries, each with flags, attributes (values in
/// hexadecimal) and the ranges that hold data.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare stat disk.img:/etc/passwd")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The files: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct Attribute {
    name: JsonName,
    value_hex: String,
}

#[derive(Serialize)]
struct Range {
    offset: u64,
    length: u64,
}

#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    entry: JsonEntry,
    flags: Vec<&'static str>,
    generation: u32,
    project: u32,
    attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Vec<Range>>,
}

/// What is shown of one inode.
struct Seen {
    meta: Metadata,
    target: Option<Vec<u8>>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    data: Option<Vec<(u64, u64)>>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut out = Output::listing();
    let mut json = Vec::new();
    read_each(&arguments.places, &arguments.looking, |image, place| {
        let nr = image.resolve(&place.path, false)?;
        let seen = look(image, nr).map_err(|error| image.fail(&place.path, &error))?;
        if arguments.json {
            json.push(whole(place, seen));
            return Ok(());
        }
        print(&mut out, place, &seen)
    })?;
    if arguments.json { out.json(&json) } else { out.finish() }
}

fn look(image: &Image, nr: InodeNr) -> Result<Seen> {
    let volume = image.volume();
    let meta = volume.stat(nr)?;
    let target = meta.is_symlink().then(|| volume.read_link_at(nr)).transpose()?;
    let attributes = volume.xattrs(nr)?;
    let data = meta.is_file().then(|| volume.open_inode(nr)?.data_ranges()).transpose()?;
    Ok(Seen { meta, target, attributes, data })
}

fn flags(meta: &Metadata) -> Vec<&'static str> {
    meta.flags.iter_names().map(|(name, _)| name).collect()
}

fn whole(place: &ImagePath, seen: Seen) -> Whole {
    let flags = flags(&seen.meta);
    let mut entry = JsonEntry::new(split(&place.path).1, &seen.meta, seen.target);
    entry.path = Some(JsonName(place.path.clone()));
    let attribute =
        |(name, value): (Vec<u8>, Vec<u8>)| Attribute { name: JsonName(name), value_hex: hex(&value) };
    let range = |(offset, length)| Range { offset, length };
    Whole {
        entry,
        flags,
        generation: seen.meta.generation,
        project: seen.meta.project,
        attributes: seen.attributes.into_iter().map(attribute).collect(),
        data: seen.data.map(|ranges| ranges.into_iter().map(range).collect()),
    }
}

fn print(out: &mut Output, place: &ImagePath, seen: &Seen) -> Outcome {
    let meta = &seen.meta;
    writeln!(out, "  File: {}{}", place.show(), arrow(seen.target.as_deref()))?;
    writeln!(
        out,
        "  Size: {:<15} Sectors: {:<10} Block: {:<6} {}",
        meta.size,
        meta.sectors,
        meta.block_size,
        words(meta.kind)
    )?;
    write!(out, " Inode: {:<15}   Links: {}", meta.inode.get(), meta.links)?;
    if matches!(meta.kind, Kind::CharDevice | Kind::BlockDevice) {
        write!(out, "  Device: {},{}", meta.device.major, meta.device.minor)?;
    }
    let mode = mode_text(meta.kind, meta.permissions);
    writeln!(out, "\n  Mode: ({:04o}/{mode})  Uid: {}  Gid: {}", meta.permissions, meta.uid, meta.gid)?;
    for (name, time) in [("Access", meta.atime), ("Modify", meta.mtime), ("Change", meta.ctime)] {
        writeln!(out, "{name}: {}", clock::full(time))?;
    }
    if let Some(time) = meta.crtime {
        writeln!(out, " Birth: {}", clock::full(time))?;
    }
    let flags = flags(meta);
    if !flags.is_empty() {
        writeln!(out, " Flags: {}", flags.join(" ").to_lowercase())?;
    }
    for (name, value) in &seen.attributes {
        writeln!(out, " Xattr: {} = {}", shown(name), value_text(value))?;
    }
    if let Some(ranges) = &seen.data {
        let held: u64 = ranges.iter().map(|(_, length)| length).sum();
        writeln!(out, "  Data: {held} bytes in {} ranges", ranges.len())?;
    }
    Ok(())
}

fn value_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if shown(value) == text => format!("\"{text}\""),
        _ => format!("0x{}", hex(value)),
    }
}
