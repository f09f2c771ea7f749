//! `--partition`, `--offset` and `--lv`: which part of an image or disk holds the volume.
//!
//! Commands that open a volume have them among their own arguments ([`Part`]), so that the help of each
//! command shows exactly what it takes. [`Part::around`] opens the partition, and [`crate::logical`] the logical
//! volume in it.

use crate::failure::{Failure, Outcome};
use crate::heading;
use crate::size_arg::parse_size;
use hectare_device::{Device, SliceDevice};
use hectare_disk::Backing;
use hectare_partition::Partition;
use hectare_units::Bytes;
use std::sync::Arc;

/// The part of an image or disk that holds the volume.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Default)]
#[command(next_help_heading = heading::PLACE)]
pub struct Part {
    /// The volume is in this partition of the image or disk (MBR or GPT): its number as in sda1, name or UUID
    #[arg(long, value_name = "N|NAME|UUID", conflicts_with = "offset", value_parser = parse_partition)]
    partition: Option<Named>,
    /// The volume begins this many bytes after the start of the image (suffixes: k, M, G...)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    offset: Option<u64>,
    /// The volume is this logical volume of LVM2, in the partition if one is named (see --pv)
    #[arg(long, value_name = "VG/LV", value_parser = parse_lv)]
    lv: Option<Logical>,
    /// Let a qcow2 image be backed by files outside of its directory
    #[arg(long)]
    backing: bool,
}

/// How a partition is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    Number(u32),
    /// Its name or UUID. Arguments live as long as the process.
    Text(&'static str),
}

impl Named {
    fn find(self, disk: &dyn Device) -> Outcome<Partition> {
        let found = match self {
            Self::Number(number) => hectare_partition::find(disk, number),
            Self::Text(text) => hectare_partition::find_named(disk, text),
        };
        found.map_err(|error| Failure::Line(error.to_string()))
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The name of a logical volume, with that of its group. Arguments live as long as the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Logical(&'static str);

impl Logical {
    /// `GROUP/VOLUME`.
    pub(crate) const fn name(self) -> &'static str {
        self.0
    }
}

fn parse_lv(text: &str) -> Result<Logical, String> {
    match text.split_once('/') {
        Some((group, volume)) if !group.is_empty() && !volume.is_empty() && !volume.contains('/') => {
            Ok(Logical(Box::leak(text.to_owned().into_boxed_str())))
        }
        _ => Err("write VG/LV: the group, a slash, the volume".to_owned()),
    }
}

fn parse_partition(text: &str) -> Result<Named, String> {
    match text.parse() {
        Ok(0) => Err("partitions are counted from 1".to_owned()),
        Ok(number) => Ok(Named::Number(number)),
        Err(_) if text.is_empty() => Err("it has no name".to_owned()),
        Err(_) => Ok(Named::Text(Box::leak(text.to_owned().into_boxed_str()))),
    }
}

impl Part {
    /// What begins this many bytes after the start.
    pub(crate) fn from_byte(offset: u64) -> Self {
        Self { offset: (offset > 0).then_some(offset), ..Self::default() }
    }

    /// The equivalent arguments for another process.
    pub(crate) fn arguments(self) -> Vec<String> {
        let partition = self.partition.map(|number| format!("--partition={number}"));
        let offset = self.offset.map(|bytes| format!("--offset={bytes}"));
        let lv = self.lv.map(|lv| format!("--lv={}", lv.name()));
        let backing = self.backing.then(|| "--backing".to_owned());
        [partition, offset, lv, backing].into_iter().flatten().collect()
    }

    /// Which backing files a disk image may have opened.
    pub(crate) fn backing(self) -> Backing {
        if self.backing { Backing::Anywhere } else { Backing::Beside }
    }

    /// Whether the image is used as a whole.
    pub(crate) fn is_whole(self) -> bool {
        self.partition.is_none() && self.offset.is_none() && self.lv.is_none()
    }

    /// The logical volume that is named.
    pub(crate) const fn logical(self) -> Option<Logical> {
        self.lv
    }

    /// The name of this part of an image in messages.
    pub(crate) fn shown(self, image: &str) -> String {
        let around = match (self.partition, self.offset) {
            (Some(number), _) => format!("{image}: partition {number}"),
            (None, Some(offset)) => format!("{image} from byte {offset}"),
            (None, None) => image.to_owned(),
        };
        match self.lv {
            Some(lv) => format!("{around}: logical volume {}", lv.name()),
            None => around,
        }
    }

    /// Where this part begins, if it is named by that alone.
    pub(crate) fn offset(self) -> Option<Bytes> {
        self.offset.filter(|_| self.lv.is_none()).map(Bytes::new)
    }

    /// Where the partition that is named begins, or the place.
    pub(crate) fn start_around(self, disk: &dyn Device) -> Outcome<Bytes> {
        match self.partition {
            Some(partition) => Ok(partition.find(disk)?.start),
            None => Ok(Bytes::new(self.offset.unwrap_or(0))),
        }
    }

    /// The partition of a disk that is named, or what begins at the place; a logical volume lies in that.
    pub(crate) fn around(self, disk: Arc<dyn Device>) -> Outcome<Arc<dyn Device>> {
        if let Some(partition) = self.partition {
            let Partition { start, len, .. } = partition.find(&*disk)?;
            return slice(disk, start, len);
        }
        match self.offset.filter(|offset| *offset > 0) {
            Some(offset) => from_offset(disk, Bytes::new(offset)),
            None => Ok(disk),
        }
    }
}

/// The part of the source images, where it differs from that of the destination.
#[derive(clap::Args, Clone, Copy, Default)]
#[command(next_help_heading = heading::PLACE)]
pub(crate) struct SourcePart {
    /// The sources are in this partition of their images [default: as --partition]
    #[arg(long, value_name = "N|NAME|UUID", conflicts_with = "from_offset", value_parser = parse_partition)]
    from_partition: Option<Named>,
    /// The sources' volumes begin this many bytes after the start of their images [default: as --offset]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    from_offset: Option<u64>,
    /// The sources are in this logical volume of their images [default: as --lv]
    #[arg(long, value_name = "VG/LV", value_parser = parse_lv)]
    from_lv: Option<Logical>,
}

impl SourcePart {
    /// Whether one was named.
    pub(crate) fn is_given(self) -> bool {
        self.from_partition.is_some() || self.from_offset.is_some() || self.from_lv.is_some()
    }

    /// The part of the sources, where that of the destination is `other`.
    pub(crate) fn or(self, other: Part) -> Part {
        if self.is_given() {
            Part { partition: self.from_partition, offset: self.from_offset, lv: self.from_lv, ..other }
        } else {
            other
        }
    }
}

/// A disk from a byte offset on.
pub(crate) fn from_offset(disk: Arc<dyn Device>, offset: Bytes) -> Outcome<Arc<dyn Device>> {
    let len = disk.len().saturating_sub(offset);
    slice(disk, offset, len)
}

fn slice(disk: Arc<dyn Device>, at: Bytes, len: Bytes) -> Outcome<Arc<dyn Device>> {
    let slice = SliceDevice::new(disk, at, len).map_err(|error| Failure::Line(error.to_string()))?;
    Ok(Arc::new(slice))
}
