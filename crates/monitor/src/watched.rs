//! The objects that a monitor reads from.

use hectare_device::{Device, StatsDevice};
use hectare_engine::Volume;
use hectare_fuse::{MountOptions, Operations};
use std::path::PathBuf;
use std::sync::Arc;

/// The objects to monitor.
pub struct Watched {
    /// The volume.
    pub volume: Volume,
    /// The device under it.
    pub device: Arc<StatsDevice<Arc<dyn Device>>>,
    /// The requests of its mount.
    pub operations: Arc<Operations>,
    /// The image.
    pub image: PathBuf,
    /// The directory it is mounted on.
    pub dir: PathBuf,
    /// The mount options.
    pub options: MountOptions,
}
