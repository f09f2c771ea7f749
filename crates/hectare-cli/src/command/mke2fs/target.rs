//! The file or device to format, looked at before anything is changed.

use super::{Arguments, given_size, name_of};
use crate::command::mkfs::{Goal, failed, of_part};
use crate::failure::{Failure, Outcome, tell};
use crate::image_device::{Hold, is_there, with_topology};
use crate::partition_args::Part;
use hectare_device::{Device, Topology};
use hectare_mkfs::whole_pages;
use hectare_units::Bytes;
use std::path::Path;

/// What is known of the target.
pub(super) struct Target<'a> {
    pub(super) path: &'a Path,
    pub(super) part: Part,
    pub(super) exists: bool,
    /// The volume's size: whole blocks where the block size is given.
    pub(super) size: Bytes,
    /// Whether that was given.
    sized: bool,
    pub(super) topology: Topology,
}

impl<'a> Target<'a> {
    pub(super) fn of(path: &'a Path, part: Part, arguments: &Arguments) -> Outcome<Self> {
        let given = given_size(arguments)?;
        let exists = is_there(path);
        let mut target = Self {
            path,
            part,
            exists,
            size: Bytes::ZERO,
            sized: given.is_some(),
            topology: Topology::default(),
        };
        let missing = || Failure::of(target.shown(), "there is no such file; give a SIZE to make one");
        let block = arguments.format.block_bytes().unwrap_or(1024);
        if !exists {
            target.size = target.rounded(given.ok_or_else(missing)?, block);
        } else {
            let (whole, topology) = with_topology(path, part, Hold::Writers)?;
            target.topology = of_part(topology, part);
            let whole = part.of(whole)?.len();
            target.size = match given {
                Some(given) => target.rounded(given, block),
                None if whole.get() < 1024 => {
                    let reason = "it holds nothing to format; give a SIZE to make it larger";
                    return Err(Failure::of(target.shown(), reason));
                }
                None => whole_pages(whole),
            };
        }
        target.topology = with_environment(target.topology)?;
        Ok(target)
    }

    /// The target's name, safe to print.
    pub(super) fn shown(&self) -> String {
        name_of(self.path)
    }

    /// Whole blocks of a size, and a word where that is less.
    fn rounded(&self, size: Bytes, block: u64) -> Bytes {
        let whole = Bytes::new(size.get() / block * block);
        if whole != size {
            tell(format_args!("{}: note: {size} bytes are not whole blocks; {whole} are used", self.shown()));
        }
        whole
    }

    /// Opens the target, or makes a file.
    pub(super) fn open(&self, force: bool) -> Outcome<Goal> {
        let size = self.sized.then_some(self.size);
        Goal::open(self.path, self.part, &self.shown(), size, force).map_err(|failure| match failure {
            Failure::Line(line) => Failure::Line(line.replace("use --force to", "use -F to")),
            other => other,
        })
    }

    pub(super) fn failed(&self, error: &hectare_mkfs::Error) -> Failure {
        match error {
            hectare_mkfs::Error::Option { .. } => Failure::of("mke2fs", error),
            other => failed(&self.shown(), other),
        }
    }
}

/// The sectors that the environment says the device has.
fn with_environment(topology: Topology) -> Outcome<Topology> {
    let sector = |name: &str, usual: u32| match std::env::var(name) {
        Ok(text) if text != "0" && !text.is_empty() => {
            let size = text.parse::<u32>().ok().filter(|size| size.is_power_of_two() && *size >= 512);
            size.ok_or_else(|| Failure::of(name, format_args!("{text} is no size of a sector")))
        }
        _ => Ok(usual),
    };
    Ok(Topology {
        logical_sector: sector("MKE2FS_DEVICE_SECTSIZE", topology.logical_sector)?,
        physical_sector: sector("MKE2FS_DEVICE_PHYS_SECTSIZE", topology.physical_sector)?,
        ..topology
    })
}
