//! What fills partitions: prepared before anything is placed, written when everything has its place.
//!
//! Each kind says how small it can be, and writes itself to a device of the size that it got. What it returns
//! is the bytes that stand for it in UUIDs.

mod ext;
mod fat;
mod file;
mod tree;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::identity::Slot;
use crate::spec::{Content, Rule, Spec};
use crate::verity;
use ext::ExtContent;
use fat::FatContent;
pub(crate) use file::SourceFile;
use hectare_device::Device;
use hectare_ext4::time::Timestamp;
use hectare_mkfs::xfs;
use hectare_populate::Progress;
use hectare_units::Bytes;
use std::num::NonZeroUsize;
use uuid::Uuid;

/// The content of a partition, read as far as its size needs it.
pub(crate) enum Prepared {
    Empty,
    File(Box<SourceFile>),
    Ext(Box<ExtContent>),
    Fat(Box<FatContent>),
    /// Its format, and the partition, if the UUID follows from both.
    Xfs(Box<xfs::FormatOptions>, Option<Slot>),
    Verity,
}

impl Prepared {
    /// Reads what the partition with this index is to hold. `volume` is the UUID of its volume, if a seed
    /// decides.
    pub(crate) fn new(
        spec: &Spec,
        index: usize,
        env: &Environment<'_>,
        volume: Option<Uuid>,
    ) -> Result<Self> {
        let wrong = |reason: String| spec.wrong(index, reason);
        let part = &spec.partitions[index];
        let slot = Slot::of(index, &part.name);
        Ok(match &part.content {
            Content::Empty => Self::Empty,
            Content::Verity(_) => Self::Verity,
            Content::File(path) => Self::File(Box::new(SourceFile::open(path).map_err(wrong)?)),
            Content::Ext(ext) => {
                Self::Ext(Box::new(ExtContent::new(ext, env, volume, &slot).map_err(wrong)?))
            }
            Content::Fat(fat) => {
                let volume = volume.map(Uuid::into_bytes);
                let made = FatContent::new(fat, env, (volume, &slot), spec.sector);
                Self::Fat(Box::new(made.map_err(wrong)?))
            }
            Content::Xfs(xfs) => {
                let mut format = xfs.format.clone();
                let id = format.uuid.or(volume.map(Uuid::into_bytes));
                format.uuid = id;
                if let Some(epoch) = env.epoch {
                    format.now = Timestamp::from_seconds(epoch);
                }
                format.sector_size = format.sector_size.or((spec.sector > 512).then_some(spec.sector));
                let is_derived = env.epoch.is_some() && format.uuid.is_none();
                Self::Xfs(Box::new(format), is_derived.then_some(slot))
            }
        })
    }

    /// How many bytes a partition by this rule has at least; a multiple of 4096.
    pub(crate) fn size(&self, spec: &Spec, index: usize) -> Result<u64> {
        let part = &spec.partitions[index];
        let wrong = |reason: String| spec.wrong(index, reason);
        let rule = part.size.rule;
        let by_content = match (self, rule) {
            (_, Rule::Exactly(bytes)) => return Ok(bytes),
            (Self::Empty | Self::Verity | Self::Xfs(..), _) => 0,
            (Self::File(file), _) => file.len(),
            (Self::Ext(ext), rule) => ext.size(rule).map_err(wrong)?,
            (Self::Fat(fat), _) => fat.least().map_err(wrong)?,
        };
        let bytes = by_content.max(part.size.least).max(1).checked_next_multiple_of(4096);
        let bytes = bytes.ok_or_else(|| spec.wrong(index, "size: it is larger than any disk"))?;
        match part.size.most {
            Some(most) if bytes > most => {
                Err(spec.wrong(index, format_args!("it needs {bytes} bytes, and may have {most} at most")))
            }
            _ => Ok(bytes),
        }
    }

    /// Refuses a partition of `len` bytes that can't hold the content.
    pub(crate) fn check(&self, len: u64) -> std::result::Result<(), String> {
        match self {
            Self::Empty | Self::Verity => Ok(()),
            Self::File(file) if file.len() > len => {
                Err(format!("size: the file has {} bytes, and the partition {len}", file.len()))
            }
            Self::File(_) => Ok(()),
            Self::Ext(ext) => ext.check(len),
            Self::Fat(fat) => fat.check(len),
            Self::Xfs(format, _) => {
                let made = xfs::Plan::new(format, Bytes::new(len), true);
                made.map(drop).map_err(|error| format!("size: {len} bytes: {error}"))
            }
        }
    }

    /// Writes the content to its partition; what stands for it in UUIDs is returned.
    pub(crate) fn write(
        &self,
        device: &dyn Device,
        shown: &str,
        threads: NonZeroUsize,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>> {
        let failed = |reason: String| Error::part(shown, reason);
        match self {
            Self::Empty | Self::Verity => Ok(Vec::new()),
            Self::File(file) => file.copy(device, Bytes::ZERO, progress).map_err(failed),
            Self::Ext(ext) => ext.write(device, threads, progress).map_err(failed),
            Self::Fat(fat) => fat.write(device, progress).map_err(failed),
            Self::Xfs(format, slot) => {
                let made = write_xfs(format, slot.as_ref(), device, threads);
                made.map_err(|error| failed(error.to_string()))
            }
        }
    }
}

fn write_xfs(
    format: &xfs::FormatOptions,
    slot: Option<&Slot>,
    device: &dyn Device,
    threads: NonZeroUsize,
) -> hectare_mkfs::Result<Vec<u8>> {
    let mut format = format.clone();
    if let Some(slot) = slot {
        format.derive_identity(device.len());
        format.uuid = format.uuid.map(|uuid| slot.volume(uuid));
    }
    let plan = xfs::Plan::new(&format, device.len(), device.is_zeroed())?;
    xfs::execute(&plan, device, threads.get())?;
    Ok(plan.volume().uuid.to_vec())
}

/// How many bytes the hash tree of a partition of `data` bytes needs.
pub(crate) fn verity_size(data: u64) -> std::result::Result<u64, String> {
    verity::Shape::new(data).map(|shape| shape.bytes())
}
