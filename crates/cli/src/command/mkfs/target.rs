//! Where a new volume goes: a file that is made for it, or a file or device that is there.

use crate::failure::{Failure, Outcome};
use crate::image::{Hold, file_device};
use crate::partition_args;
use hectare_device::{Device, FileDevice, FileOptions, Overwrite, PendingFile, Topology};
use hectare_mkfs::refuse_occupied;
use hectare_units::Bytes;
use std::path::Path;
use std::sync::Arc;

/// Where the volume goes.
pub(super) struct Goal {
    target: Target,
    topology: Topology,
}

enum Target {
    /// A file or device that is there, or a part of it.
    There(Arc<dyn Device>),
    /// A file that gets its name when it is finished.
    New(Box<PendingFile>),
}

impl Goal {
    /// Opens what is there, unless it holds something and `force` is not given; or starts a file of `size`.
    pub(super) fn open(path: &Path, shown: &str, size: Option<Bytes>, force: bool) -> Outcome<Self> {
        if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Self::new_file(path, shown, size);
        }
        let file = file_device(path, Hold::Everybody)?;
        let topology = topology(&file);
        let device = partition_args::cut(file)?;
        if !force {
            refuse_occupied(&*device).map_err(|error| super::failed(shown, &error))?;
        }
        if let Some(size) = size.filter(|size| *size > device.len()) {
            device.resize(size).map_err(device_failed)?;
        }
        Ok(Self { target: Target::There(device), topology })
    }

    fn new_file(path: &Path, shown: &str, size: Option<Bytes>) -> Outcome<Self> {
        let size =
            size.ok_or_else(|| Failure::of(shown, "there is no such file; give a SIZE to make one"))?;
        if !partition_args::is_whole() {
            return Err(Failure::of(shown, "there is no such file with partitions in it"));
        }
        let options = FileOptions::new().write(true);
        let pending = options.create_pending(path, size, Overwrite::Refuse).map_err(device_failed)?;
        Ok(Self { target: Target::New(Box::new(pending)), topology: Topology::default() })
    }

    pub(super) fn device(&self) -> &dyn Device {
        match &self.target {
            Target::There(device) => &**device,
            Target::New(pending) => pending.device(),
        }
    }

    /// What a volume there has to do with.
    pub(super) const fn topology(&self) -> Topology {
        self.topology
    }

    /// Makes the volume durable, and gives a new file its name.
    pub(super) fn finish(self) -> Outcome {
        match self.target {
            Target::There(device) => device.flush().map_err(device_failed),
            Target::New(pending) => {
                pending.publish().and_then(|device| device.flush()).map_err(device_failed)
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn device_failed(error: hectare_device::Error) -> Failure {
    Failure::Line(error.to_string())
}

/// What a file or device is like. A part of one has its logical sectors; how it is aligned is not known.
pub(super) fn topology(file: &FileDevice) -> Topology {
    let whole = file.topology().unwrap_or_default();
    let part = Topology { physical_sector: whole.logical_sector, minimum_io: 0, optimal_io: 0, ..whole };
    if partition_args::is_whole() { whole } else { part }
}
