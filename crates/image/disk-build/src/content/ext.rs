//! An ext volume, as `hectare build` makes it.

use super::tree;
use crate::environment::Environment;
use crate::identity::Slot;
use crate::spec::{Ext, Rule};
use hectare_device::Device;
use hectare_mkfs::{FormatOptions, whole_pages};
use hectare_populate::{Excludes, Image, ImageError, Progress, Size, Tree, reproducible};
use hectare_units::Bytes;
use std::num::NonZeroUsize;
use uuid::Uuid;

/// The files of an ext volume, and its format.
pub(crate) struct ExtContent {
    tree: Tree,
    format: FormatOptions,
}

impl ExtContent {
    pub(super) fn new(
        ext: &Ext,
        env: &Environment<'_>,
        volume: Option<Uuid>,
        slot: &Slot,
    ) -> Result<Self, String> {
        let mut tree = tree::read(&ext.files, env, &ext.format, ext.dedupe)?;
        let mut sealed = Excludes::default();
        for pattern in &ext.fs_verity {
            sealed.add_of(pattern.as_bytes(), "fs-verity").map_err(|error| error.to_string())?;
        }
        if !sealed.is_empty() {
            tree.seal(&sealed);
        }
        let mut format = ext.format.clone();
        format.uuid = format.uuid.or(volume.map(Uuid::into_bytes));
        if let Some(epoch) = env.epoch {
            let given = format.uuid;
            format = reproducible(&format, epoch, &tree);
            format.uuid = given.or(format.uuid.map(|uuid| slot.volume(uuid)));
        }
        Ok(Self { tree, format })
    }

    /// The bytes that the volume has by a rule.
    pub(super) fn size(&self, rule: Rule) -> Result<u64, String> {
        let size = match rule {
            Rule::Min | Rule::Rest => Size::Min,
            Rule::Roomy | Rule::Grow(_) => Size::Default,
            Rule::Free(bytes) => Size::Free(Bytes::new(bytes)),
            Rule::Exactly(bytes) => Size::Exactly(whole_pages(Bytes::new(bytes))),
        };
        self.plan(size).map(|image| image.size().get())
    }

    /// Refuses a size that is too small.
    pub(super) fn check(&self, len: u64) -> Result<(), String> {
        self.plan(Size::Exactly(whole_pages(Bytes::new(len)))).map(drop)
    }

    fn plan(&self, size: Size) -> Result<Image<'_>, String> {
        Image::plan(&self.tree, &self.format, size, true).map_err(|error| match error {
            ImageError::TooSmall { size, lacking, enough } => {
                format!("size: {size} bytes are {lacking} too few for the files; {enough} are enough")
            }
            other => other.to_string(),
        })
    }

    /// Writes the volume over all of a device that is zeros; returns its UUID.
    pub(super) fn write(
        &self,
        device: &dyn Device,
        threads: NonZeroUsize,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, String> {
        let image = self.plan(Size::Exactly(whole_pages(device.len())))?;
        image.write(device, threads, progress).map_err(|error| error.to_string())?;
        Ok(image.format().superblock().uuid().to_vec())
    }
}
