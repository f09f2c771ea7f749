//! The file or block device of an image, opened, before anything is known of what it holds.

use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::partition_args::Part;
use hectare_device::{Device, FileDevice, FileOptions};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Which processes a command locks out of a file or device that it opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// Everybody: it writes.
    Everybody,
    /// Writers: it reads.
    Writers,
    /// Nobody: it reads, whatever others do meanwhile.
    Nobody,
}

/// The file or block device, or the part of it that holds the volume.
pub(crate) fn device(path: &Path, part: Part, hold: Hold) -> Outcome<Arc<dyn Device>> {
    part.of(file_device(path, hold)?)
}

/// Refuses a device that holds something else than an ext volume, by its name and with what to do.
pub(crate) fn refuse_other(device: &dyn Device, name: &str) -> Outcome {
    match hectare_probe::instead(device) {
        Ok(Some(instead)) => Err(Failure::of(name, instead)),
        // What can't be read is an error of the command that needs it.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// The file or block device as a whole.
pub(crate) fn file_device(path: &Path, hold: Hold) -> Outcome<FileDevice> {
    let options = FileOptions::new().write(hold == Hold::Everybody).exclusive(hold != Hold::Nobody);
    let device = options.open(path).map_err(|error| Failure::Line(error.to_string()))?;
    if hold == Hold::Writers && device.is_claimed_by_writer() {
        let name = shown(path.as_os_str().as_bytes());
        tell(format_args!(
            "{name}: note: a process that can't be identified has locked it for writing, as qemu does: the \
             output may mix several states"
        ));
    }
    Ok(device)
}
