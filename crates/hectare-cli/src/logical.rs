//! What holds the volume in a disk: a partition, a logical volume of LVM2, or all of it; named or found.
//!
//! A logical volume may lie on several physical volumes. The image is one of them, `--pv` names others
//! ([`PhysicalVolumes`]); each is a file, device or export that is one itself, or has one in a partition.
//!
//! What is found without being named is the only ext volume there is. Where there are several, nothing is
//! guessed: the error lists them.

use crate::failure::{Failure, Outcome, tell};
use crate::heading;
use crate::image_device::{Hold, disk_of, file_device, holds_ext, whole_device};
use crate::name::shown;
use crate::partition_args::Part;
use crate::remote::is_address;
use hectare_device::os::OsStrExt;
use hectare_device::{Device, FileDevice, SliceDevice};
use hectare_lvm::{VolumeSet, is_physical_volume};
use hectare_units::Bytes;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

static PATHS: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Files that were opened while that was still possible.
static OPENED: Mutex<Vec<(PathBuf, FileDevice)>> = Mutex::new(Vec::new());

/// Other physical volumes of the group of an image.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = heading::PLACE)]
pub(crate) struct PhysicalVolumes {
    /// Another file or device that holds a physical volume of the group of --lv; may be repeated
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pv: Vec<PathBuf>,
}

impl PhysicalVolumes {
    /// Holds for all images from here on.
    pub(crate) fn apply(self) {
        let _ = PATHS.set(self.pv);
    }

    /// The equivalent arguments for another process.
    pub(crate) fn arguments() -> Vec<OsString> {
        paths().iter().flat_map(|path| ["--pv".into(), path.clone().into()]).collect()
    }

    /// Opens the files now, for a process that can't do it later; none of them is read.
    pub(crate) fn open_early(write: bool) -> Outcome {
        let hold = if write { Hold::Everybody } else { Hold::Writers };
        for path in paths() {
            if is_address(path) {
                let reason = "the other physical volumes of a mount are files and devices of this machine";
                return Err(Failure::of(shown(path.as_os_str().as_bytes()), reason));
            }
            OPENED.lock().push((path.clone(), file_device(path, hold)?));
        }
        Ok(())
    }
}

fn paths() -> &'static [PathBuf] {
    PATHS.get().map_or(&[], Vec::as_slice)
}

/// The part of a disk that holds the volume: what is named, or else the disk, or the only ext volume in it.
pub fn device(path: &Path, part: Part, hold: Hold) -> Outcome<Arc<dyn Device>> {
    let disk = whole_device(path, part, hold)?;
    if part.is_whole() { volume_in(disk, path) } else { part.of(disk) }
}

impl Part {
    /// This part of a disk.
    pub(crate) fn of(self, disk: Arc<dyn Device>) -> Outcome<Arc<dyn Device>> {
        let around = self.around(disk)?;
        let Some(logical) = self.logical() else { return Ok(around) };
        let set = VolumeSet::open(Arc::clone(&around), &others(&*around)?).map_err(failed)?;
        Ok(Arc::new(set.volume(logical.name()).map_err(failed)?))
    }

    /// Where this part of a disk begins; `None` for a logical volume that begins on another disk.
    pub(crate) fn start(self, disk: Arc<dyn Device>) -> Outcome<Option<Bytes>> {
        let start = self.start_around(&*disk)?;
        let Some(logical) = self.logical() else { return Ok(Some(start)) };
        let around = self.around(disk)?;
        let set = VolumeSet::open(Arc::clone(&around), &others(&*around)?).map_err(failed)?;
        Ok(set.start(logical.name()).map_err(failed)?.and_then(|within| start.checked_add(within)))
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: hectare_lvm::Error) -> Failure {
    Failure::Line(error.to_string())
}

/// The other physical volumes that are named, opened as the one that is there.
fn others(first: &dyn Device) -> Outcome<Vec<Arc<dyn Device>>> {
    let hold = if first.is_read_only() { Hold::Writers } else { Hold::Everybody };
    let mut found = Vec::new();
    for path in paths() {
        let name = path.to_string_lossy();
        let after = first.name().strip_prefix(&*name);
        if after.is_some_and(|rest| rest.is_empty() || rest.starts_with('@')) {
            continue;
        }
        let opened = {
            let mut opened = OPENED.lock();
            let at = opened.iter().position(|(known, _)| known == path);
            at.map(|at| opened.swap_remove(at).1)
        };
        let disk = match opened {
            Some(file) => disk_of(file, path, Part::default())?,
            None => whole_device(path, Part::default(), hold)?,
        };
        let physical = physical_volumes(&disk);
        if physical.is_empty() {
            let reason = "there is no physical volume of LVM2 in it";
            return Err(Failure::of(shown(path.as_os_str().as_bytes()), reason));
        }
        found.extend(physical.into_iter().map(|(device, _)| device));
    }
    Ok(found)
}

/// The physical volumes of a disk, with the number of the partition that each is.
fn physical_volumes(disk: &Arc<dyn Device>) -> Vec<(Arc<dyn Device>, Option<u32>)> {
    if is_physical_volume(&**disk) {
        return vec![(Arc::clone(disk), None)];
    }
    let mut found: Vec<(Arc<dyn Device>, _)> = Vec::new();
    for partition in hectare_partition::partitions(&**disk).unwrap_or_default() {
        let Ok(slice) = SliceDevice::new(Arc::clone(disk), partition.start, partition.len) else { continue };
        if is_physical_volume(&slice) {
            found.push((Arc::new(slice), Some(partition.number)));
        }
    }
    found
}

/// A volume that was found in a disk.
struct Found {
    /// How it is named, and what it is.
    line: String,
    /// What a note calls it.
    what: String,
    /// Its bytes, if it is an ext volume.
    device: Option<Arc<dyn Device>>,
}

/// The only ext volume in a disk, which is mentioned, or else the disk.
pub(crate) fn volume_in(disk: Arc<dyn Device>, path: &Path) -> Outcome<Arc<dyn Device>> {
    if holds_ext(&*disk) {
        return Ok(disk);
    }
    let name = shown(path.as_os_str().as_bytes());
    let mut found = partitions_with_ext(&disk);
    let mut has_logical = false;
    for (device, number) in physical_volumes(&disk) {
        match VolumeSet::open(Arc::clone(&device), &others(&*device)?) {
            Ok(set) => {
                has_logical = true;
                found.extend(set.volumes().into_iter().map(|listed| logical_in(&set, listed, number)));
            }
            Err(error) if number.is_none() => return Err(failed(error)),
            Err(error) => tell(format_args!("{name}: note: {error}")),
        }
    }
    let lines: Vec<String> = found.iter().map(|found| found.line.clone()).collect();
    let mut usable = found.into_iter().filter_map(|found| found.device.map(|device| (found.what, device)));
    match (usable.next(), usable.next()) {
        (Some((what, device)), None) => {
            tell(format_args!("{name}: note: {what} is used, the only one with an ext volume"));
            Ok(device)
        }
        _ if has_logical => {
            let there = if lines.is_empty() { "there are none".to_owned() } else { lines.join(", ") };
            Err(Failure::of(name, format_args!("it holds logical volumes; name one: {there}")))
        }
        // What it is instead is found where it is opened.
        _ => Ok(disk),
    }
}

fn partitions_with_ext(disk: &Arc<dyn Device>) -> Vec<Found> {
    let partitions = hectare_partition::partitions(&**disk).unwrap_or_default().into_iter();
    let found = |partition: hectare_partition::Partition| {
        let slice = SliceDevice::new(Arc::clone(disk), partition.start, partition.len).ok()?;
        let number = partition.number;
        holds_ext(&slice).then(|| Found {
            line: format!("--partition {number} ({} MiB, ext)", partition.len.get() >> 20),
            what: format!("partition {number}"),
            device: Some(Arc::new(slice) as _),
        })
    };
    partitions.filter_map(found).collect()
}

fn logical_in(set: &VolumeSet, listed: hectare_lvm::Listed, partition: Option<u32>) -> Found {
    let within = partition.map(|number| format!("--partition {number} ")).unwrap_or_default();
    let volume = set.volume(&listed.name).ok();
    let kind = match (&volume, listed.refused) {
        (Some(volume), _) if holds_ext(volume) => "ext".to_owned(),
        (Some(_), _) => "no ext volume".to_owned(),
        (None, Some(why)) => why,
        (None, None) => "it can't be used as it is".to_owned(),
    };
    Found {
        line: format!("{within}--lv {} ({} MiB, {kind})", listed.name, listed.len.get() >> 20),
        what: format!("logical volume {}", listed.name),
        device: volume.filter(|volume| holds_ext(volume)).map(|volume| Arc::new(volume) as _),
    }
}
