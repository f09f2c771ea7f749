//! Makes a volume and opens it, in one call.

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::stores::mmp;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_mkfs::{FormatOptions, Plan, execute, refuse_occupied, whole_pages};
use std::sync::Arc;

/// Whether a format may destroy what the device holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overwrite {
    /// A device that holds a file system or a partition table is refused.
    #[default]
    Refuse,
    /// Whatever the device holds is lost, except for a volume that another host has in use (MMP).
    Allow,
}

impl From<hectare_mkfs::Error> for Error {
    fn from(error: hectare_mkfs::Error) -> Self {
        match error {
            hectare_mkfs::Error::Device(error) => error.into(),
            other => Self::Format(other.to_string()),
        }
    }
}

impl Volume {
    /// Makes an empty volume on a device, as large as the device, and opens it.
    ///
    /// # Errors
    /// [`Error::Format`] if the options are impossible or the device holds something and may not be
    /// overwritten; [`Error::Unsupported`] if another host has it in use; [`Error::Device`] if writing
    /// failed: the device then holds no volume.
    pub fn format(
        device: Arc<dyn Device>,
        format: &FormatOptions,
        overwrite: Overwrite,
        options: OpenOptions,
    ) -> Result<Self> {
        match overwrite {
            Overwrite::Refuse => refuse_occupied(&*device)?,
            Overwrite::Allow => mmp::refuse_living(&*device, &options)?,
        }
        let plan = Plan::new(format, whole_pages(device.len()), device.is_zeroed())?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        execute(&plan, &*device, &plan.empty(), threads)?;
        Self::open(device, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::node::Creation;
    use hectare_device::MemoryDevice;
    use hectare_units::Bytes;

    #[test]
    fn a_volume_is_made_used_and_not_overwritten() {
        let device = Arc::new(MemoryDevice::new(Bytes::mib(16)));
        let format = FormatOptions::default();
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        let make =
            |overwrite| Volume::format(Arc::clone(&shared), &format, overwrite, OpenOptions::default());
        let volume = make(Overwrite::Refuse).unwrap();
        volume.write_file("/hello", b"world", Creation::default()).unwrap();
        assert_eq!(volume.read("/hello").unwrap(), b"world");
        volume.close().unwrap();
        assert!(matches!(make(Overwrite::Refuse), Err(Error::Format(_))));
        assert!(make(Overwrite::Allow).unwrap().read_dir("/").unwrap().len() == 1);
    }
}
