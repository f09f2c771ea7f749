//! Inspects a closed image after a workload: extents per file, and free-space fragmentation.
//!
//! The image is opened read-only, so the kernel's work is measured by the same code as ours; it has to be
//! unmounted before. Files are searched in one directory, the one the workload worked in.

use crate::fragmentation::{FileExtents, Fragmentation};
use hectare_device::FileOptions;
use hectare_engine::{OpenOptions, Volume};
use hectare_tools::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// What a workload left behind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inspection {
    /// The extents of the files.
    pub files: FileExtents,
    /// The free-space fragmentation of the volume.
    pub fragmentation: Fragmentation,
}

/// Inspects the closed image; `folder` is a directory path in it, which may be missing: then there are no
/// files.
///
/// # Errors
/// If the image can't be read; the error names it.
pub fn inspect(image: &Path, folder: &str) -> Result<Inspection> {
    let fail = |error: hectare_engine::Error| Error::at(image.display().to_string(), error);
    let device = FileOptions::new().open(image).map_err(|error| Error::Invalid(error.to_string()))?;
    let volume = Volume::open(Arc::new(device), OpenOptions::read_only()).map_err(fail)?;
    let files = match FileExtents::under(&volume, folder.as_bytes()) {
        Err(hectare_engine::Error::NotFound) => FileExtents::default(),
        counted => counted.map_err(fail)?,
    };
    Ok(Inspection { files, fragmentation: Fragmentation::of(&volume).map_err(fail)? })
}
