//! The objects that a monitor reads from.

use hectare_device::{Device, StatsDevice};
use hectare_engine::Volume;
use hectare_fuse::{MountOptions, Operations};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// What was asked of a server that has an image, since the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerReport {
    /// Requests, those that were made again included.
    pub requests: u64,
    /// Lost connections that were made again.
    pub reconnects: u64,
}

/// The objects to monitor.
pub struct Watched {
    /// The volume.
    pub volume: Volume,
    /// The device under it.
    pub device: Arc<StatsDevice<Arc<dyn Device>>>,
    /// Reads the counters of the server that has the image, if one has it.
    pub server: Option<Box<dyn Fn() -> ServerReport + Send + Sync>>,
    /// The requests of its mount.
    pub operations: Arc<Operations>,
    /// The image.
    pub image: PathBuf,
    /// The directory it is mounted on.
    pub dir: PathBuf,
    /// The mount options.
    pub options: MountOptions,
}
