//! `--partition` and `--offset`: which part of an image or disk holds the volume.
//!
//! Commands that open a volume have them among their own arguments ([`Part`]), so that the help of each
//! command shows exactly what it takes; [`Part::of`] opens the device.

use crate::failure::{Failure, Outcome};
use crate::size_arg::parse_size;
use hectare_device::{Device, SliceDevice};
use hectare_units::Bytes;
use std::sync::Arc;

/// The part of an image or disk that holds the volume.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Part {
    /// The volume is in this partition of the image or disk (MBR or GPT; numbers as in sda1)
    #[arg(long, value_name = "N", conflicts_with = "offset")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    partition: Option<u32>,
    /// The volume begins this many bytes after the start of the image (suffixes: k, M, G...)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    offset: Option<u64>,
}

impl Part {
    /// What begins this many bytes after the start.
    pub(crate) fn from_byte(offset: u64) -> Self {
        Self { partition: None, offset: (offset > 0).then_some(offset) }
    }

    /// The equivalent arguments for another process.
    pub(crate) fn arguments(self) -> Vec<String> {
        let partition = self.partition.map(|number| format!("--partition={number}"));
        let offset = self.offset.map(|bytes| format!("--offset={bytes}"));
        partition.into_iter().chain(offset).collect()
    }

    /// Whether the image is used as a whole.
    pub(crate) fn is_whole(self) -> bool {
        self.partition.is_none() && self.offset.is_none()
    }

    /// The name of this part of an image in messages.
    pub(crate) fn shown(self, image: &str) -> String {
        match (self.partition, self.offset) {
            (Some(number), _) => format!("{image}: partition {number}"),
            (None, Some(offset)) => format!("{image} from byte {offset}"),
            (None, None) => image.to_owned(),
        }
    }

    /// Where this part begins, if it is named by that.
    pub(crate) fn offset(self) -> Option<Bytes> {
        self.offset.map(Bytes::new)
    }

    /// Where this part of a device begins.
    pub(crate) fn start(self, device: &dyn Device) -> Outcome<Bytes> {
        let Some(number) = self.partition else { return Ok(Bytes::new(self.offset.unwrap_or(0))) };
        let found =
            hectare_partition::find(device, number).map_err(|error| Failure::Line(error.to_string()))?;
        Ok(found.start)
    }

    /// This part of a device.
    pub(crate) fn of(self, device: impl Device + 'static) -> Outcome<Arc<dyn Device>> {
        if let Some(number) = self.partition {
            let slice =
                hectare_partition::open(device, number).map_err(|error| Failure::Line(error.to_string()))?;
            return Ok(Arc::new(slice));
        }
        match self.offset.filter(|offset| *offset > 0) {
            Some(offset) => from_offset(device, Bytes::new(offset)),
            None => Ok(Arc::new(device)),
        }
    }
}

/// The part of the source images, where it differs from that of the destination.
#[derive(clap::Args, Clone, Copy, Default)]
pub(crate) struct SourcePart {
    /// The sources are in this partition of their images [default: as --partition]
    #[arg(long, value_name = "N", conflicts_with = "from_offset")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    from_partition: Option<u32>,
    /// The sources' volumes begin this many bytes after the start of their images [default: as --offset]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    from_offset: Option<u64>,
}

impl SourcePart {
    /// Whether one was named.
    pub(crate) fn is_given(self) -> bool {
        self.from_partition.is_some() || self.from_offset.is_some()
    }

    /// The part of the sources, where that of the destination is `other`.
    pub(crate) fn or(self, other: Part) -> Part {
        if self.is_given() {
            Part { partition: self.from_partition, offset: self.from_offset }
        } else {
            other
        }
    }
}

/// A device from a byte offset on.
pub(crate) fn from_offset(device: impl Device + 'static, offset: Bytes) -> Outcome<Arc<dyn Device>> {
    let len = device.len().saturating_sub(offset);
    let slice = SliceDevice::new(device, offset, len).map_err(|error| Failure::Line(error.to_string()))?;
    Ok(Arc::new(slice))
}
