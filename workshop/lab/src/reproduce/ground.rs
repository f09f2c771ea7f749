//! The directory of an experiment with its volumes, removed when the value is dropped.

use super::Options;
use super::kernel::{self, Mount};
use super::plan::{Failed, FileSystem, How, Section, Volume};
use crate::age::Figures;
use crate::bench::{After, Bench, On, bench};
use crate::image_copy::fresh_copy;
use crate::inspect::inspect;
use crate::run::Run;
use crate::target::engine::Through;
use hectare_device::{DaxDevice, Device, FileOptions};
use hectare_engine::{OpenOptions, Overwrite, Volume as Opened};
use hectare_mkfs::FormatOptions;
use hectare_tools::error::{Error, Result};
use hectare_units::BlockSize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The identity of every volume, so that the same seed gives the same volume.
const UUID: [u8; 16] = *b"hectare's volume";

/// The directory.
pub(super) struct Ground {
    dir: tempfile::TempDir,
}

impl Ground {
    /// Makes it.
    pub(super) fn prepare(options: &Options) -> Result<Self> {
        let made = tempfile::Builder::new().prefix("hectare-reproduce-").tempdir_in(&options.work);
        let dir = made.map_err(|error| Error::at(options.work.display().to_string(), error))?;
        Ok(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a volume to copy from, aged if it is to be; and what came of that.
    pub(super) fn volume(&self, volume: &Volume) -> Result<(PathBuf, Option<String>)> {
        let image = self.path("base");
        let fail = |error: &dyn ToString| Error::at(image.display().to_string(), error.to_string());
        let file = std::fs::File::create(&image).and_then(|file| file.set_len(volume.size));
        file.map_err(|error| fail(&error))?;
        let device = FileOptions::new().write(true).open(&image).map_err(|error| fail(&error))?;
        let device: Arc<dyn Device> = Arc::new(device);
        let format = FormatOptions {
            block_size: Some(
                BlockSize::from_bytes(volume.block.into()).ok_or_else(|| fail(&"no such block size"))?,
            ),
            uuid: Some(UUID),
            hash_seed: Some(UUID),
            reserved_percent: 0.0,
            ..FormatOptions::default()
        };
        let opened = Opened::format(Arc::clone(&device), &format, Overwrite::Allow, OpenOptions::default())
            .map_err(|error| fail(&error))?;
        opened.close().map_err(|error| fail(&error))?;
        let Some(aged) = &volume.aged else { return Ok((image, None)) };
        let report = crate::age::age(&device, aged).map_err(|error| fail(&error))?;
        let Figures { fill, mean, extents } = report.reached;
        let state =
            format!("{fill:.1} % full, {extents} free extents of {:.0} KiB on average", mean / 1024.0);
        if !report.is_reached() {
            return Err(fail(&format!("the starting point can't be made: {state}")));
        }
        Ok((image, Some(state)))
    }

    /// Runs a section's workload once by one side, on a copy of `base`.
    pub(super) fn run(&self, base: &Path, section: &Section, how: &How) -> std::result::Result<Run, Failed> {
        let other = Removed(self.path("other"));
        match how {
            How::Raw => workload(section, On::Raw(other.0.clone())),
            How::Engine(through, settings) => {
                let copy = fresh_copy(base)?;
                if *through == Through::Dax {
                    check_dax(copy.path())?;
                }
                let (image, through, settings) = (copy.path().to_owned(), *through, *settings);
                workload(section, On::Engine { image, through, settings })
            }
            How::Kernel(FileSystem::Ext4, options) => {
                let image = fresh_copy(base)?;
                let mut run = by_kernel(image.path(), section, FileSystem::Ext4, options)?;
                run.inspection = Some(inspect(image.path(), &format!("bench-{}", section.workload.name()))?);
                Ok(run)
            }
            How::Kernel(file_system, options) => {
                kernel::make(&other.0, *file_system, section.volume.size)?;
                by_kernel(&other.0, section, *file_system, options)
            }
        }
    }
}

fn by_kernel(
    image: &Path,
    section: &Section,
    file_system: FileSystem,
    options: &str,
) -> std::result::Result<Run, Failed> {
    let mount = Mount::new(image, file_system, options)?;
    let ran = workload(section, On::Directory(mount.path().to_owned()));
    let open = mount.seconds;
    let close = mount.unmount()?;
    let mut run = ran?;
    run.timing.open_seconds = Some(open);
    run.timing.close_seconds = Some(close);
    Ok(run)
}

/// Runs the workload and leaves its files: where they lie is looked at.
fn workload(section: &Section, on: On) -> std::result::Result<Run, Failed> {
    let what = Bench {
        workload: section.workload.clone(),
        on,
        threads: vec![section.threads],
        after: After::Keep,
        replace: true,
        label: None,
    };
    let runs = bench(&what, |_| ())?;
    runs.into_iter().next().ok_or_else(|| Failed::Broken(Error::Invalid("nothing was run".into())))
}

/// Leaves the side out where the volume does not lie in memory.
fn check_dax(image: &Path) -> std::result::Result<(), Failed> {
    let mapped = FileOptions::new().write(true).open(image).and_then(DaxDevice::new);
    mapped.map(drop).map_err(|error| Failed::LeftOut(error.to_string()))
}

/// A file that goes with the value.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // the directory goes, too
    }
}
