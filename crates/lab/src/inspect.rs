//! What a workload left behind, seen from a closed image: extents per file, and how the free space is cut up.
//!
//! The image is opened for reading only, so a kernel's work is judged by the same eyes as ours; it has to be
//! unmounted before. Files are looked for in one folder, the one the workload worked in.

use crate::error::{Error, Result};
use crate::fragmentation::{FileExtents, Fragmentation};
use hectare_device::FileOptions;
use hectare_engine::{OpenOptions, Volume};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// What was left behind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inspection {
    /// The extents of the files.
    pub files: FileExtents,
    /// How the free space of the volume is cut up.
    pub fragmentation: Fragmentation,
}

/// Looks at the closed image; `folder` is a path in it. Without such a folder there are no files.
///
/// # Errors
/// If the image can't be read; it is named.
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
