//! Whether a volume is sound, judged as `e2fsck -fn` does, without changing it.

use crate::error::{Error, Result};
pub use hectare_check::{Counts, Options, Problem, Report, What};
use hectare_device::{Device, FileOptions};
use std::num::NonZeroUsize;
use std::path::Path;

/// Checks the volume in a file, with a thread for each processor. Nothing is written, nor a journal replayed.
///
/// A broken volume is no error: the report has its problems.
///
/// # Errors
/// If the file can't be read, is in use for writing, or holds no volume that can be checked.
pub fn check(image: impl AsRef<Path>) -> Result<Report> {
    let device = FileOptions::new().open(image)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    check_device(&device, &Options { threads, ..Options::default() })
}

/// Checks the volume on a device.
///
/// # Errors
/// If the device can't be read, or holds no volume that can be checked.
pub fn check_device(device: &dyn Device, options: &Options) -> Result<Report> {
    hectare_check::check(device, options).map_err(|cause| match cause {
        hectare_check::Error::Device(cause) => cause.into(),
        other => Error::invalid(device.name(), other),
    })
}
