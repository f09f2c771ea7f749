//! The disk of an image, opened, before anything is known of what it holds: the bytes of a file, block device
//! or export, or those that a disk image (qcow2, VHD ...) has a map of.
//!
//! Hazard: what a file is, it says itself. One with an ext volume in its bytes is taken for that, whatever it
//! begins with: its first KiB is for boot loaders, where anybody may have put the head of a disk image that names
//! other files.

use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::partition_args::Part;
use crate::remote;
use hectare_device::os::OsStrExt;
use hectare_device::{Device, FileDevice, FileOptions, Topology};
use hectare_disk::{Format, Named};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{MAGIC, SIZE, SuperBlock, Tolerances};
use hectare_mmp::Hold as Mark;
use hectare_probe::in_usual_places;
use hectare_units::Bytes;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Where the magic number of an ext superblock is.
const MAGIC_AT: Bytes = Bytes::new(1024 + 0x38);

/// Which processes a command locks out of a file or device that it opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Everybody: it writes.
    Everybody,
    /// Writers: it reads.
    Writers,
    /// Nobody: it reads, whatever others do meanwhile.
    Nobody,
}

/// The disk as a whole.
pub(crate) fn whole_device(path: &Path, part: Part, hold: Hold) -> Outcome<Arc<dyn Device>> {
    Ok(with_topology(path, part, hold)?.0)
}

/// The bytes of a file, block device or export, also if they are those of a disk image.
pub(crate) fn as_it_lies(path: &Path, hold: Hold) -> Outcome<Arc<dyn Device>> {
    Ok(match remote::is_address(path) {
        true => remote::open(path, hold == Hold::Everybody)?,
        false => Arc::new(file_device(path, hold)?),
    })
}

/// The disk as a whole, with what its sectors are; nothing is known of those of files and servers.
pub(crate) fn with_topology(path: &Path, part: Part, hold: Hold) -> Outcome<(Arc<dyn Device>, Topology)> {
    if remote::is_address(path) {
        return Ok((as_it_lies(path, hold)?, Topology::default()));
    }
    let file = file_device(path, hold)?;
    let topology = file.topology().unwrap_or_default();
    Ok((disk_of(file, path, part)?, topology))
}

/// The disk that a file or block device holds.
pub(crate) fn disk_of(file: FileDevice, path: &Path, part: Part) -> Outcome<Arc<dyn Device>> {
    disk_with(file, path, part, Named::default())
}

/// Likewise, with files that the image names and that are open already.
pub(crate) fn disk_with(file: FileDevice, path: &Path, part: Part, named: Named) -> Outcome<Arc<dyn Device>> {
    let failed = |error: &dyn std::fmt::Display| Failure::Line(error.to_string());
    match Format::of(&file).map_err(|error| failed(&error))? {
        Some(format) => hectare_disk::open_named(file, path, format, part.backing(), named)
            .map_err(|error| failed(&error)),
        None => Ok(Arc::new(file)),
    }
}

/// Returns an error for a file whose bytes are not those of a disk: a disk image of a kind that is not read, an
/// archive, or a compressed file.
pub(crate) fn refuse_wrapped(disk: &dyn Device, name: &str) -> Outcome {
    // The first KiB of a volume is for boot loaders, and may look like anything.
    if holds_ext(disk) {
        return Ok(());
    }
    match hectare_probe::probe(disk).map_err(|error| Failure::of(name, error))? {
        Some(found) if found.what.wraps_a_disk() => {
            Err(Failure::of(name, format_args!("it is {found}; {}", found.what.advice())))
        }
        _ => Ok(()),
    }
}

/// Whether there is the magic number of an ext superblock; what can't be read has none.
pub(crate) fn holds_ext(device: &dyn Device) -> bool {
    let mut magic = [0; 2];
    device.read_at(MAGIC_AT, &mut magic).is_ok() && u16::from_le_bytes(magic) == MAGIC
}

/// Whether there is something by that name; a server that is named is taken to be there.
pub(crate) fn is_there(path: &Path) -> bool {
    let missing = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
    if remote::is_address(path) {
        return remote::is_there(path);
    }
    !std::fs::symlink_metadata(path).is_err_and(missing)
}

/// Changes the volume on a device while other hosts see that it is in use, if it has multiple mount
/// protection.
pub(crate) fn while_held<T>(
    image: &Path,
    name: &str,
    disk: &Arc<dyn Device>,
    change: impl FnOnce(&Arc<dyn Device>) -> Outcome<T>,
) -> Outcome<T> {
    let (held, hold) =
        hectare_mmp::hold(disk, &remote::protection(image)).map_err(|error| Failure::of(name, error))?;
    let done = change(&held);
    drop(held);
    // After a failure, too; that one counts more.
    let released = hold.release().map_err(|error| Failure::of(name, error));
    done.and_then(|done| released.map(|()| done))
}

/// Repairs the volume on a device, or takes a repair back, while other hosts see that it is in use. With
/// `ignores` no mark of another is heeded.
pub(crate) fn while_repaired<T>(
    image: &Path,
    name: &str,
    disk: &Arc<dyn Device>,
    ignores: bool,
    change: impl FnOnce(&Arc<dyn Device>, &Mark) -> Outcome<T>,
) -> Outcome<(T, Outcome)> {
    let failed = |error| Failure::of(name, error);
    let Some(sb) = any_superblock(&**disk) else {
        return change(disk, &Mark::NOTHING).map(|done| (done, Ok(())));
    };
    let protection = remote::protection(image);
    let (held, hold) = hectare_mmp::hold_to_repair(disk, &sb, &protection, ignores).map_err(failed)?;
    if let Some(why) = hold.why_unmarked() {
        tell(format_args!(
            "{name}: note: {why}: no other machine can see that the volume is being changed, so open it on \
             none"
        ));
    }
    let done = change(&held, &hold);
    drop(held);
    // After a failure, too; that one counts more.
    let released = hold.release().map_err(failed);
    done.map(|done| (done, released))
}

/// The superblock, or the first backup that can be used, or the superblock with a checksum that is wrong.
pub(crate) fn any_superblock(device: &dyn Device) -> Option<SuperBlock> {
    let mut bytes = [0; SIZE];
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes);
    let primary = read.ok().and_then(|()| SuperBlock::parse(&bytes, Bytes::new(u64::MAX)).ok());
    let tolerances = Tolerances { allow_truncated: true, ..Tolerances::default() };
    let backup = || Some(in_usual_places(device, tolerances)?.superblock);
    primary.or_else(backup).or_else(|| SuperBlock::parse_torn(&bytes, Bytes::new(u64::MAX)).ok())
}

/// Refuses a device with a volume that another host has in use, before it is overwritten.
pub(crate) fn refuse_living(image: &Path, name: &str, device: &dyn Device) -> Outcome {
    hectare_mmp::refuse_living(device, &remote::protection(image)).map_err(|error| Failure::of(name, error))
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
