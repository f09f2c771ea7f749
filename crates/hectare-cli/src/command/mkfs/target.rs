//! The target of a new volume: a new file, or an existing file or device.

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, is_there, refuse_living, whole_device, with_topology};
use crate::new_disk::{Kind, NewDisk};
use crate::partition_args::Part;
use crate::remote;
use hectare_device::{Device, FileOptions, Overwrite, SliceDevice, Topology};
use hectare_mkfs::refuse_occupied;
use hectare_units::Bytes;
use std::path::Path;
use std::sync::Arc;

/// The target of a new volume.
pub(in crate::command) struct Goal {
    target: Target,
    topology: Topology,
}

enum Target {
    /// An existing file or device, or a part of it.
    There(Arc<dyn Device>),
    /// A file that gets its name when it is complete.
    New(Box<NewDisk>),
}

impl Goal {
    /// Opens the existing target, unless it has content and `force` is not given; or creates a file of
    /// `size`. A volume that another host has in use (MMP) is refused whatever is given.
    pub(in crate::command) fn open(
        path: &Path,
        part: Part,
        shown: &str,
        size: Option<Bytes>,
        force: bool,
    ) -> Outcome<Self> {
        if !is_there(path) {
            return Self::new_file(path, part, shown, size);
        }
        let (whole, topology) = with_topology(path, part, Hold::Everybody)?;
        let topology = of_part(topology, part);
        let mut device = part.of(whole)?;
        if force {
            refuse_living(path, shown, &*device)?;
        } else {
            refuse_occupied(&*device).map_err(|error| super::failed(shown, &error))?;
        }
        match size.filter(|size| *size > device.len()) {
            Some(size) if part.is_whole() => device.resize(size).map_err(device_failed)?,
            Some(size) if part.offset().is_none() => {
                let reason =
                    format_args!("the partition has {} bytes, and {size} are asked for", device.len());
                return Err(Failure::of(shown, reason));
            }
            Some(size) => {
                drop(device);
                device = grown(whole_device(path, part, Hold::Everybody)?, part, shown, size)?;
            }
            None => {}
        }
        if let Some(size) = size.filter(|size| *size < device.len()) {
            // What lies behind the volume is the caller's, as with mke2fs.
            device = Arc::new(SliceDevice::new(device, Bytes::ZERO, size).map_err(device_failed)?);
        }
        Ok(Self { target: Target::There(device), topology })
    }

    fn new_file(path: &Path, part: Part, shown: &str, size: Option<Bytes>) -> Outcome<Self> {
        let size =
            size.ok_or_else(|| Failure::of(shown, "there is no such file; give a SIZE to make one"))?;
        if remote::is_address(path) {
            let end = if part.is_whole() { size } else { end_of(part, shown, size)? };
            remote::create(path, end)?;
            let device = part.of(whole_device(path, part, Hold::Everybody)?)?;
            return Ok(Self { target: Target::There(device), topology: Topology::default() });
        }
        let options = FileOptions::new().write(true);
        if !part.is_whole() {
            // It has its name from the start, as what is before the volume is the caller's.
            let end = end_of(part, shown, size)?;
            let file = options.create(path, end, Overwrite::Refuse).map_err(device_failed)?;
            let target = Target::There(part.of(Arc::new(file))?);
            return Ok(Self { target, topology: Topology::default() });
        }
        let new = NewDisk::create(path, Kind::of_name(path)?, size, Overwrite::Refuse)?;
        Ok(Self { target: Target::New(Box::new(new)), topology: Topology::default() })
    }

    pub(in crate::command) fn device(&self) -> &dyn Device {
        match &self.target {
            Target::There(device) => &**device,
            Target::New(new) => new.device(),
        }
    }

    /// The topology to format for.
    pub(super) const fn topology(&self) -> Topology {
        self.topology
    }

    /// Makes the volume durable, and gives a new file its name.
    pub(in crate::command) fn finish(self) -> Outcome {
        match self.target {
            Target::There(device) => device.flush().map_err(device_failed),
            Target::New(new) => new.finish(),
        }
    }
}

/// A part of a file that is made longer for it.
fn grown(file: Arc<dyn Device>, part: Part, shown: &str, size: Bytes) -> Outcome<Arc<dyn Device>> {
    file.resize(end_of(part, shown, size)?).map_err(device_failed)?;
    part.of(file)
}

/// Where a part of this size ends: only one that is named by its start can be made.
fn end_of(part: Part, shown: &str, size: Bytes) -> Outcome<Bytes> {
    let start =
        part.offset().ok_or_else(|| Failure::of(shown, "there is no such file with partitions in it"))?;
    let end = start.get().checked_add(size.get()).map(Bytes::new);
    end.ok_or_else(|| Failure::of(shown, "no file is as long as that"))
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn device_failed(error: hectare_device::Error) -> Failure {
    Failure::Line(error.to_string())
}

/// The topology of a part of something. It has the logical sectors of the whole; its alignment is unknown.
pub(in crate::command) fn of_part(whole: Topology, part: Part) -> Topology {
    let of_part = Topology { physical_sector: whole.logical_sector, minimum_io: 0, optimal_io: 0, ..whole };
    if part.is_whole() { whole } else { of_part }
}
