//! Where a new volume goes: a file that is made for it, or a file or device that is there.

use crate::failure::{Failure, Outcome};
use crate::part;
use hectare_device::{Device, FileOptions, Overwrite, PendingFile};
use hectare_mkfs::refuse_occupied;
use hectare_units::Bytes;
use std::path::Path;
use std::sync::Arc;

/// Where the volume goes.
pub(super) struct Goal {
    target: Target,
    /// Bytes of a logical sector, if it is on a block device.
    sector: Option<u32>,
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
        let file = crate::image::file_device(path, true)?;
        let sector = file.sector_size();
        let device = part::cut(file)?;
        if !force {
            refuse_occupied(&*device).map_err(|error| super::failed(shown, &error))?;
        }
        if let Some(size) = size.filter(|size| *size > device.len()) {
            device.resize(size).map_err(device_failed)?;
        }
        Ok(Self { target: Target::There(device), sector })
    }

    fn new_file(path: &Path, shown: &str, size: Option<Bytes>) -> Outcome<Self> {
        let size =
            size.ok_or_else(|| Failure::of(shown, "there is no such file; give a SIZE to make one"))?;
        if !part::is_whole() {
            return Err(Failure::of(shown, "there is no such file with partitions in it"));
        }
        let options = FileOptions::new().write(true);
        let pending = options.create_pending(path, size, Overwrite::Refuse).map_err(device_failed)?;
        Ok(Self { target: Target::New(Box::new(pending)), sector: None })
    }

    pub(super) fn device(&self) -> &dyn Device {
        match &self.target {
            Target::There(device) => &**device,
            Target::New(pending) => pending.device(),
        }
    }

    /// Bytes of a logical sector, below which a file system can't go, if it is on a block device.
    pub(super) const fn sector_size(&self) -> Option<u32> {
        self.sector
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
