//! `--partition` and `--offset`: which part of an image or disk holds the volume.
//!
//! They mean the same for every command and for every image on its command line, so they are read once and
//! kept for the process; [`cut`] is where a device is opened. Commands whose images are no volumes, or
//! become as large as they need, refuse them ([`Part::refuse`]).

use crate::command::format_options::parse_size;
use crate::failure::{Failure, Outcome};
use hectare_device::{Device, FileDevice, SliceDevice};
use hectare_units::Bytes;
use std::sync::{Arc, OnceLock};

static PART: OnceLock<Part> = OnceLock::new();

/// Which part of every image is meant.
#[derive(clap::Args, Clone, Copy, Default)]
pub(crate) struct Part {
    /// The volume is in this partition of the image or disk (MBR or GPT; numbers as in sda1)
    #[arg(long, global = true, value_name = "N", conflicts_with = "offset")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    partition: Option<u32>,
    /// The volume begins so many bytes after the start of the image (suffixes: k, M, G...)
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_size)]
    offset: Option<u64>,
}

impl Part {
    /// Keeps it for the process. To be called once, before anything is opened.
    pub(crate) fn note(self) {
        let _ = PART.set(self); // a second one would be the same
    }

    /// The arguments that say the same to another process.
    fn arguments(self) -> Vec<String> {
        let partition = self.partition.map(|number| format!("--partition={number}"));
        let offset = self.offset.map(|bytes| format!("--offset={bytes}"));
        partition.into_iter().chain(offset).collect()
    }

    fn is_whole(self) -> bool {
        self.partition.is_none() && self.offset.is_none()
    }

    /// Refuses to go on if a part was named, for a command that has no use for one.
    pub(crate) fn refuse(self, command: &str) -> Outcome {
        if self.is_whole() {
            return Ok(());
        }
        Err(Failure::Usage(format!("{command} takes neither --partition nor --offset")))
    }
}

/// What was said of the part, for another process of this program.
pub(crate) fn arguments() -> Vec<String> {
    PART.get().copied().unwrap_or_default().arguments()
}

/// Whether images are meant as a whole.
pub(crate) fn is_whole() -> bool {
    PART.get().is_none_or(|part| part.is_whole())
}

/// The part of a device that was named; all of it, if none was.
pub(crate) fn cut(device: FileDevice) -> Outcome<Arc<dyn Device>> {
    let part = PART.get().copied().unwrap_or_default();
    if let Some(number) = part.partition {
        let slice =
            hectare_partition::open(device, number).map_err(|error| Failure::Line(error.to_string()))?;
        return Ok(Arc::new(slice));
    }
    match part.offset.filter(|offset| *offset > 0) {
        Some(offset) => from_offset(device, Bytes::new(offset)),
        None => Ok(Arc::new(device)),
    }
}

/// What a device has from a byte on.
pub(crate) fn from_offset(device: FileDevice, offset: Bytes) -> Outcome<Arc<dyn Device>> {
    let len = device.len().saturating_sub(offset);
    let slice = SliceDevice::new(device, offset, len).map_err(|error| Failure::Line(error.to_string()))?;
    Ok(Arc::new(slice))
}
