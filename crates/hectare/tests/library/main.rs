//! The library as its users have it.

#![allow(clippy::unwrap_used)] // a test that can't go on fails

mod beside_std;
mod devices;
mod durable;
mod examples;
mod files;
mod names;

use hectare::device::{Bytes, Device, MemoryDevice};
use hectare::{Volume, mkfs};
use std::sync::Arc;

/// A new volume in memory, and its device.
fn in_memory() -> (Volume, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::new(Bytes::mib(32)));
    mkfs::Format::new().on_device(&*device).unwrap();
    let shared: Arc<dyn Device> = Arc::clone(&device) as _;
    (Volume::options().write(true).open_device(shared).unwrap(), device)
}

/// Closes it; e2fsck finds nothing.
fn close_clean(volume: Volume, device: &MemoryDevice) {
    volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, device.to_vec()).unwrap();
    hectare_oracle::assert_clean(&image)
        .unwrap_or_else(|reason| hectare_oracle::skip_part!("library, e2fsck", reason));
}
