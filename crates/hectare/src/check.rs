//! Whether a volume is sound, judged as `e2fsck -fn` does, without changing it.

use crate::error::{Error, Result};
use crate::watch::{Step, Watch};
pub use hectare_check::{Counts, Options, Place, Problem, Report, What};
use hectare_device::{Device, FileOptions, Until};
use std::num::NonZeroUsize;
use std::path::Path;

/// Checks the volume in a file, with a thread for each processor. Nothing is written, nor a journal replayed.
///
/// A broken volume is no error: the report has its problems.
///
/// # Errors
/// If the file can't be read, is in use for writing, or holds no volume that can be checked.
pub fn check(image: impl AsRef<Path>) -> Result<Report> {
    check_watched(image, &Watch::default())
}

/// As [`check`], and reports progress to a watch.
///
/// # Errors
/// As [`check`]; if the call was cancelled, which leaves nothing.
pub fn check_watched(image: impl AsRef<Path>, watch: &Watch) -> Result<Report> {
    let device = FileOptions::new().open(image)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    check_device_watched(&device, &Options { threads, ..Options::default() }, watch)
}

/// Checks the volume on a device.
///
/// # Errors
/// If the device can't be read, or holds no volume that can be checked.
pub fn check_device(device: &dyn Device, options: &Options) -> Result<Report> {
    check_device_watched(device, options, &Watch::default())
}

/// As [`check_device`], and reports progress to a watch.
///
/// # Errors
/// As [`check_device`]; if the call was cancelled, which leaves nothing.
pub fn check_device_watched(device: &dyn Device, options: &Options, watch: &Watch) -> Result<Report> {
    let name = device.name();
    let device = watch.wrap(device, Until::End);
    let report = |step, done, total| watch.at(Step::of_check(step), done, Some(total));
    let found = hectare_check::check_watched(&device, None, options, &report);
    // A report of a check that was refused some reads would be wrong, were there one.
    watch.check(name)?;
    found.map_err(|cause| match cause {
        hectare_check::Error::Device(cause) => cause.into(),
        other => Error::of_check(name, other),
    })
}

impl Step {
    fn of_check(step: hectare_check::Step) -> Self {
        match step {
            hectare_check::Step::Inodes => Self::Inodes,
            hectare_check::Step::Directories => Self::Directories,
            // Of another version of the checker, which comes with this crate.
            _ => Self::Bitmaps,
        }
    }
}
