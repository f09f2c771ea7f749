//! The file, block device or export of an image, opened, before anything is known of what it holds.

use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::partition_args::Part;
use crate::remote;
use hectare_device::{Device, FileDevice, FileOptions, Topology};
use std::io::ErrorKind;
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

/// The file, block device or export, or the part of it that holds the volume.
pub(crate) fn device(path: &Path, part: Part, hold: Hold) -> Outcome<Arc<dyn Device>> {
    part.of(whole_device(path, hold)?)
}

/// The file, block device or export as a whole.
pub(crate) fn whole_device(path: &Path, hold: Hold) -> Outcome<Arc<dyn Device>> {
    Ok(with_topology(path, hold)?.0)
}

/// Likewise, with what its sectors are; nothing is known of those of files and servers.
pub(crate) fn with_topology(path: &Path, hold: Hold) -> Outcome<(Arc<dyn Device>, Topology)> {
    if remote::is_address(path) {
        return Ok((Arc::new(remote::open(path, hold == Hold::Everybody)?), Topology::default()));
    }
    let file = file_device(path, hold)?;
    let topology = file.topology().unwrap_or_default();
    Ok((Arc::new(file), topology))
}

/// Whether there is something by that name; a server that is named is taken to be there.
pub(crate) fn is_there(path: &Path) -> bool {
    let missing = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
    remote::is_address(path) || !std::fs::symlink_metadata(path).is_err_and(missing)
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
