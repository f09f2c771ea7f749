//! What lies on a device, as a tree: a partition table and its partitions, each looked into in turn, and of
//! every kind of content that is known its label, UUID, size and what else its header says. [`search`] finds
//! ext volumes by their superblocks anywhere, so also those whose partition table or first block is lost.
//!
//! `hectare-probe` says of what kind a content is, `hectare-partition` reads the tables; here are the parsers
//! of the headers ([`Details`]) and the walk over tables.
//!
//! Hazards: all bytes are untrusted. Headers are read whole or not at all; each parser reads a bounded number
//! of bytes, none follows a chain. Tables in partitions are looked into to a depth of [`DEPTH_MAX`], and no
//! more than [`PLACES_MAX`] places in all, so that tables that hold each other end. What is left out for
//! that, and tables that are damaged, are [notes](Place::notes).
//!
//! What it is not: it verifies no content (a check of the volume does), unpacks nothing and decrypts nothing.

mod details;
mod record;
mod search;

pub use details::Details;
pub use hectare_partition::Partition;
pub use hectare_probe::What;
pub use search::{Start, SuperblockCopy, Survey, Volume, search};

use hectare_device::{Device, Result, SliceDevice};
use hectare_ext4::superblock::Tolerances;
use hectare_probe::{in_usual_places, probe};
use hectare_units::Bytes;

/// How many tables may lie inside each other.
pub const DEPTH_MAX: u32 = 4;

/// The most places that are looked into.
pub const PLACES_MAX: usize = 512;

/// A device or a partition, and what lies there.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it begins, from the start of the whole device.
    pub start: Bytes,
    /// How long it is.
    pub len: Bytes,
    /// Its entry in the table above; `None` for the whole device.
    pub partition: Option<Partition>,
    /// Whether that table itself lies in a partition.
    pub is_nested: bool,
    /// The kind of its content, if it is known.
    pub what: Option<What>,
    /// What the content says of itself.
    pub details: Details,
    /// What is wrong with the place, or was left out, in words.
    pub notes: Vec<String>,
    /// The partitions, in the order of their numbers.
    pub parts: Vec<Place>,
}

/// What lies on a device.
///
/// # Errors
/// If the device can't be read.
pub fn identify(device: &dyn Device) -> Result<Place> {
    let mut left = PLACES_MAX;
    look(device, Bytes::ZERO, None, 0, &mut left)
}

/// What lies on a device that begins `start` bytes after the whole one, below `depth` tables.
fn look(
    device: &dyn Device,
    start: Bytes,
    partition: Option<Partition>,
    depth: u32,
    left: &mut usize,
) -> Result<Place> {
    *left = left.saturating_sub(1);
    let found = probe(device)?;
    let mut details = match &found {
        Some(found) => details::of(found.what, device)?,
        None => Details::default(),
    };
    if details == Details::default() {
        details.label = found.as_ref().and_then(|found| found.label.clone());
    }
    let mut what = found.map(|found| found.what);
    // A volume whose first superblock is lost or damaged may be known by a copy.
    if what.is_none() || details.value("fault").is_some() {
        let copy = in_usual_places(device, Tolerances { allow_truncated: true, ignore_checksums: false });
        if let Some(copy) = copy.filter(|copy| copy.group.get() > 0) {
            what = what.or_else(|| {
                details = details::of_lost_volume(&copy.superblock);
                Some(hectare_probe::kind_of(&copy.superblock))
            });
            details.add_copy(&copy);
        }
    }
    let (len, notes, parts) = (device.len(), Vec::new(), Vec::new());
    let mut place = Place { start, len, partition, is_nested: depth > 1, what, details, notes, parts };
    if what.is_some_and(may_have_a_table) {
        look_into_table(device, &mut place, depth, left)?;
    }
    Ok(place)
}

/// Whether a content of this kind is a table of partitions, or may have one beside it: images for discs and
/// sticks alike do.
fn may_have_a_table(what: What) -> bool {
    matches!(what, What::Gpt | What::Mbr | What::Iso9660)
}

/// Looks into each partition of the table on a device.
fn look_into_table(device: &dyn Device, place: &mut Place, depth: u32, left: &mut usize) -> Result<()> {
    let is_table = place.what != Some(What::Iso9660);
    let found = match hectare_partition::partitions(device) {
        Ok(found) => found,
        Err(hectare_partition::Error::Device(error)) => return Err(error),
        Err(hectare_partition::Error::NoTable(_)) if is_table => {
            let backup = "only the copy of its table at the end is left: gdisk writes the other anew";
            place.notes.push(backup.to_owned());
            return Ok(());
        }
        Err(error @ hectare_partition::Error::Damaged { .. }) if is_table => {
            place.notes.push(error.to_string());
            return Ok(());
        }
        Err(_) => return Ok(()),
    };
    if found.is_empty() {
        place.notes.push("the table is empty".to_owned());
    }
    if depth == DEPTH_MAX {
        place.notes.push(format!("not looked into: it lies in {DEPTH_MAX} other tables"));
        return Ok(());
    }
    for (index, partition) in found.iter().enumerate() {
        if *left == 0 {
            let rest = found.len() - index;
            place.notes.push(format!("{rest} partitions are left out: {PLACES_MAX} places were looked into"));
            return Ok(());
        }
        place.parts.push(part(device, place.start, partition, depth, left)?);
    }
    Ok(())
}

/// What lies in a partition of a device that begins `base` bytes after the whole one.
fn part(
    device: &dyn Device,
    base: Bytes,
    partition: &Partition,
    depth: u32,
    left: &mut usize,
) -> Result<Place> {
    let start = Bytes::new(base.get().saturating_add(partition.start.get()));
    let on_device = device.len().saturating_sub(partition.start).min(partition.len);
    let mut notes = Vec::new();
    if on_device < partition.len {
        let missing = partition.len.saturating_sub(on_device);
        notes.push(format!("{missing} of its {} bytes lie beyond the end of the device", partition.len));
    }
    let covers = partition.start == Bytes::ZERO;
    if covers {
        notes.push("it begins where the table lies, so it is not looked into".to_owned());
    }
    if covers || on_device == Bytes::ZERO {
        let (partition, is_nested) = (Some(partition.clone()), depth > 0);
        let (details, parts) = (Details::default(), Vec::new());
        return Ok(Place { start, len: on_device, partition, is_nested, what: None, details, notes, parts });
    }
    let slice = SliceDevice::new(device, partition.start, on_device)?;
    let mut place = look(&slice, start, Some(partition.clone()), depth + 1, left)?;
    notes.append(&mut place.notes);
    place.notes = notes;
    Ok(place)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tools_tests;
