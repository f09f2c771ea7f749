//! The tree and the list of found volumes, for people.

use super::next::{Source, command, for_volume};
use crate::dumpe2fs::uuid_text;
use crate::failure::Outcome;
use crate::name::shown;
use crate::output::Output;
use hectare_identify::{Place, Survey, Volume};
use hectare_units::Bytes;
use indicatif::BinaryBytes;

/// Bytes with a unit.
fn size(len: Bytes) -> String {
    BinaryBytes(len.get()).to_string()
}

/// Prints a device and everything in it.
pub(super) fn tree(out: &mut Output, name: &str, place: &Place, source: &Source) -> Outcome {
    writeln!(out, "{name}: {}, {}", content(place), size(place.len))?;
    below(out, place, 1, source)
}

/// The kind in words.
fn content(place: &Place) -> &'static str {
    place.what.map_or("nothing that is known", hectare_identify::What::name)
}

/// Prints what there is to say of a place, and its partitions.
fn below(out: &mut Output, place: &Place, depth: usize, source: &Source) -> Outcome {
    let indent = " ".repeat(4 * depth);
    let details = &place.details;
    let size = details.size.map(|bytes| format!("{bytes} ({})", size(bytes)));
    let first = [("label", details.label.clone()), ("UUID", details.uuid.clone()), ("size", size)];
    let first = first.into_iter().filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in first.chain(details.facts.iter().cloned()) {
        writeln!(out, "{indent}{name}: {}", shown(value.as_bytes()))?;
    }
    for note in &place.notes {
        writeln!(out, "{indent}note: {}", shown(note.as_bytes()))?;
    }
    if let Some(command) = command(place, source) {
        writeln!(out, "{indent}next: {}", shown(command.as_bytes()))?;
    }
    for part in &place.parts {
        let Some(partition) = &part.partition else { continue };
        let name = match partition.name.as_str() {
            "" => String::new(),
            name => format!(", named {}", shown(name.as_bytes())),
        };
        writeln!(
            out,
            "{indent}{}: {} from byte {} ({}{name}): {}",
            partition.number,
            self::size(partition.len),
            part.start,
            partition.kind,
            content(part)
        )?;
        below(out, part, depth + 1, source)?;
    }
    Ok(())
}

/// Prints the volumes that were found.
pub(super) fn survey(out: &mut Output, survey: &Survey, source: &Source) -> Outcome {
    match survey.volumes.len() {
        0 => writeln!(out, "no superblock of an ext volume was found")?,
        1 => writeln!(out, "1 volume was found by its superblocks:")?,
        count => writeln!(out, "{count} volumes were found by their superblocks:")?,
    }
    for volume in &survey.volumes {
        found(out, volume, source)?;
    }
    if survey.left_out > 0 {
        writeln!(out, "{} superblocks are left out: they fit no volume, or are too many", survey.left_out)?;
    }
    if survey.unreadable > Bytes::ZERO {
        writeln!(out, "{} bytes could not be read", survey.unreadable)?;
    }
    Ok(())
}

fn found(out: &mut Output, volume: &Volume, source: &Source) -> Outcome {
    const SHOWN: usize = 8;
    let sb = &volume.superblock;
    writeln!(out, "    {} from {}", size(volume.len()), volume.start)?;
    if !sb.label().is_empty() {
        writeln!(out, "        label: {}", shown(sb.label()))?;
    }
    if let Some(uuid) = uuid_text(&sb.uuid()) {
        writeln!(out, "        UUID: {uuid}")?;
    }
    writeln!(out, "        size: {} ({})", volume.len(), size(volume.len()))?;
    let listed = volume.copies.iter().take(SHOWN);
    let listed: Vec<String> =
        listed.map(|copy| format!("group {} at byte {}", copy.group, copy.at)).collect();
    let more = match volume.copy_count.saturating_sub(hectare_units::u64_of(listed.len())) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    writeln!(out, "        superblocks: {}{more}", listed.join(", "))?;
    if volume.strays > 0 {
        writeln!(out, "        further copies in its journal or in files: {}", volume.strays)?;
    }
    if !volume.has_primary() {
        writeln!(out, "        note: the first superblock is lost")?;
    }
    if let Some(other) = volume.inside {
        writeln!(out, "        note: it lies in the volume from {other}: an image in a file, or remains")?;
    }
    match for_volume(volume, source) {
        Some(command) => writeln!(out, "        next: {}", shown(command.as_bytes())),
        None => writeln!(out, "        note: its start lies before the device: is it a part of a disk?"),
    }
}
