//! Makes empty volumes.

use crate::error::{Error, Result};
use crate::watch::{Step, Watch};
use hectare_device::{Device, FileOptions, Overwrite, Until};
pub use hectare_mkfs::{
    FeatureEdit, FormatOptions, FsType, InodeCount, JournalDeviceId, MountDefaults, OnError, ResizeLimit,
    Usage,
};
use hectare_mkfs::{Plan, Run, execute, parse_features, refuse_occupied, whole_pages};
use hectare_mmp::refuse_living;
pub use hectare_units::BlockSize;
use hectare_units::Bytes;
use std::num::NonZeroUsize;
use std::path::Path;

/// What volume is made: what mke2fs makes, unless something is set.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Format {
    options: FormatOptions,
    features: Option<String>,
    replace: bool,
    watch: Watch,
}

impl Format {
    /// As mke2fs makes an ext4 volume.
    pub fn new() -> Self {
        Self::default()
    }

    /// ext2, ext3 or ext4.
    pub fn fs_type(mut self, fs_type: FsType) -> Self {
        self.options.fs_type = fs_type;
        self
    }

    /// The label, up to 16 bytes.
    pub fn label(mut self, label: impl AsRef<[u8]>) -> Self {
        self.options.label = label.as_ref().to_vec();
        self
    }

    /// The UUID; random if not given.
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.options.uuid = Some(uuid);
        self
    }

    /// Bytes of a block: a power of two from 1024 to 65,536. By size if not given.
    pub fn block_size(mut self, bytes: BlockSize) -> Self {
        self.options.block_size = Some(bytes);
        self
    }

    /// Features by their names in mke2fs, separated by commas; `^` before one leaves it out.
    pub fn features(mut self, features: impl Into<String>) -> Self {
        self.features = Some(features.into());
        self
    }

    /// The percentage of the blocks that only root may take; 0 to 50.
    pub fn reserved_percent(mut self, percent: f64) -> Self {
        self.options.reserved_percent = percent;
        self
    }

    /// User and group of the root directory.
    pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
        self.options.root_owner = Some((uid, gid));
        self
    }

    /// Changes the options that have no method here.
    pub fn with_options(mut self, change: impl FnOnce(&mut FormatOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Whether a file or a volume that is there may be replaced. It may not, if not given.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Reports progress to a watch, and ends if it is cancelled.
    pub fn watch(mut self, watch: &Watch) -> Self {
        self.watch = watch.clone();
        self
    }

    /// Makes a volume of `bytes` in a new file, which gets its name when it is complete.
    ///
    /// # Errors
    /// If there is such a file and it may not be replaced, or somebody writes to it, the options are
    /// impossible, writing failed, or the call was cancelled. There is no new file then, and one that was to
    /// be replaced is as it was.
    pub fn create(&self, image: impl AsRef<Path>, bytes: u64) -> Result<()> {
        let image = image.as_ref();
        let overwrite = if self.replace { Overwrite::Replace } else { Overwrite::Refuse };
        let plan = self.plan(&image.display().to_string(), Bytes::new(bytes), true)?;
        let pending = FileOptions::new().write(true).create_pending(image, Bytes::new(bytes), overwrite)?;
        let place = image.display().to_string();
        self.execute(&place, &plan, pending.device())?;
        self.watch.check(&place)?;
        Ok(pending.publish()?.flush()?)
    }

    /// Makes a volume on a device, as large as it is.
    ///
    /// # Errors
    /// If the device holds something that may not be replaced, or a volume that another host has in use (MMP),
    /// the options are impossible, writing failed, or the call was cancelled. The device is then as it was, or
    /// holds no whole volume.
    pub fn on_device(&self, device: &dyn Device) -> Result<()> {
        let name = device.name().to_owned();
        let plan = self.plan(&name, device.len(), device.is_zeroed())?;
        if self.replace {
            // May wait for the mark of another host, and is no checkpoint meanwhile.
            let protection = hectare_mmp::Options::default();
            refuse_living(device, &protection).map_err(|cause| Error::living(&name, cause))?;
        } else {
            refuse_occupied(device).map_err(|cause| Error::of_format(&name, cause))?;
        }
        self.watch.check(&name)?;
        self.execute(&name, &plan, device)
    }

    fn execute(&self, place: &str, plan: &Plan, device: &dyn Device) -> Result<()> {
        let device = self.watch.wrap(device, Until::End);
        let watch = |step, done, total| self.watch.at(Step::of_mkfs(step), done, Some(total));
        let run = Run { threads: threads().get(), watch: Some(&watch) };
        let done = execute(plan, &device, &plan.empty(), run);
        self.watch.outcome(place, done.map_err(|cause| Error::of_format(place, cause)))
    }

    /// The options, for [`crate::build`], too.
    ///
    /// # Errors
    /// If a feature has no such name.
    pub(crate) fn options(&self, place: &str) -> Result<FormatOptions> {
        let mut options = self.options.clone();
        if let Some(features) = &self.features {
            options
                .features
                .extend(parse_features(features).map_err(|cause| Error::of_format(place, cause))?);
        }
        Ok(options)
    }

    fn plan(&self, place: &str, size: Bytes, zeroed: bool) -> Result<Plan> {
        let options = self.options(place)?;
        Plan::new(&options, whole_pages(size), zeroed).map_err(|cause| Error::of_format(place, cause))
    }
}

impl Step {
    fn of_mkfs(step: hectare_mkfs::Step) -> Self {
        match step {
            hectare_mkfs::Step::Discard => Self::Discard,
            hectare_mkfs::Step::Write => Self::Structures,
        }
    }
}

/// Threads for work that is divided.
pub(crate) fn threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}
